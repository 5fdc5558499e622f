"""Run a transformers model on this machine: encode, select, delete, pack, decode."""
