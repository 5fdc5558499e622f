"""Prepare samples, answer them at every budget, grade and log the answers, and test the differences."""
