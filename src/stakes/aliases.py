"""Old names that are still accepted on input, and what replaces them.

One table for the whole package. They were the names of version 0.1, are hidden from ``--help``, and stay until 1.0.
"""

KEYS = {"dearest": "most_expensive"}
"""Keys of JSON files: old name to new name."""

OPTIONS = {"--dearest": "--most-expensive"}
"""Command-line options: old name to new name."""

ESTIMATORS = {"hybrid": "pooled", "bootstrap": "pooled", "isotonic": "pooled"}
"""Estimators of error curves that measurements rejected: name to the one to use instead."""


def with_new_keys(record: dict[str, object]) -> dict[str, object]:
    """A JSON object with its old keys renamed. A new key wins over its old name."""
    return {
        KEYS.get(key, key): value
        for key, value in record.items()
        if KEYS.get(key, key) == key or KEYS[key] not in record
    }
