"""Samples: their files, validation, images, benchmarks from the hub, and synthetic documents."""
