"""Pictures and pages for people: the report of a run, the paper's figures, curves in a terminal."""
