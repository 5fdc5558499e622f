"""Serve a model on this machine through the OpenAI API."""
