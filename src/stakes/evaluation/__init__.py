"""Was it right, and is that luck? Grading, statistics and the log of answers."""
