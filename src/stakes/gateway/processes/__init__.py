"""One gateway in several processes of one host."""
