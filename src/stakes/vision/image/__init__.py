"""Decode an image safely and resize it to a token budget."""
