"""Asking again with more tokens where an answer is unsure: the answer's confidence, and the two attempts."""
