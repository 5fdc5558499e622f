"""What a tier can do besides a fixed budget: ask again with more tokens, and hand over to a person."""
