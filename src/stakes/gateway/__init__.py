"""The online door: OpenAI in, OpenAI out."""
