"""Delete visual tokens exactly: ``exact`` before the language model, ``inside_layers`` between its layers."""
