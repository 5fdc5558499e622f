"""Decode an image safely (``decode``), find its margins (``trim``), resize it (``resize``, ``tile_sizes``)."""

MAX_PIXELS = 89_478_485
"""The largest image that is decoded by default: Pillow's own limit. It stands here to be read without Pillow."""
