"""What each word on the command line does: one file a command, each turning a question into a record and a page."""
