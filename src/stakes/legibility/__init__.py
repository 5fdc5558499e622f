"""OCR as a model: measure what can still be read at a token budget, without a VLM."""
