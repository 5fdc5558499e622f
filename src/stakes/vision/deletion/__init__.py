"""Delete visual tokens exactly, before or inside the language model."""
