"""What is asked? Samples, the files they come from, and synthetic documents."""
