"""Decode an image safely (``decode``) and resize it to a token budget (``resize``, ``tile_sizes``), without its margins (``trim``)."""

MAX_PIXELS = 89_478_485
"""The largest image that is decoded by default: Pillow's own limit. It stands here to be read without Pillow."""
