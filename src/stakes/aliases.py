"""Old names that are still accepted on input, and what replaces them.

One table for the whole package. They were the names of version 0.1, are hidden from ``--help``, and stay until 1.0.
"""

from collections.abc import Mapping, Sequence
from typing import Any

KEYS = {
    "dearest": "most_expensive",
    "dear": "high_cost",
    "sureness": "required_confidence",
    "race": "adaptive",
    "soft": "per_request",
    "soft_stakes": "per_request_costs",
    "apart": "excluded",
}
"""Keys of signals in files, and of ``--json`` output: old name to new name."""

OPTIONS = {
    "--dearest": "--most-expensive",
    "--apart-from": "--exclude",
    "--race": "--adaptive",
    "--soft": "--per-request",
}
"""Command-line options: old name to new name."""

ESTIMATORS = dict.fromkeys(("hybrid", "bootstrap", "isotonic", "smooth", "auto"), "pooled")
"""Estimators of error curves that measurements rejected: name to the one to use instead."""


def with_new_keys(record: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON object with its old keys renamed. A new key wins over its old name."""
    old = {KEYS[key]: value for key, value in record.items() if key in KEYS}
    return old | {key: value for key, value in record.items() if key not in KEYS}


def with_old_keys(record: Any) -> Any:
    """JSON values in which every new key also stands under its old name, for scripts that read ``--json`` output.

    A map by tier is left alone, since a tier may be called ``high_cost``. Its values are of one type, a record's not.
    """
    if isinstance(record, list | tuple):
        return [with_old_keys(one) for one in record]
    if not isinstance(record, Mapping):
        return record
    same = {key: with_old_keys(value) for key, value in record.items()}
    if len({type(value) for value in same.values()}) < 2:
        return same
    return same | {old: same[new] for old, new in KEYS.items() if new in same}


def with_new_options(words: Sequence[str]) -> list[str]:
    """Command-line words with old option names replaced, also in the form ``--option=value``."""
    pairs = [word.partition("=") for word in words]
    return [OPTIONS.get(name, name) + equals + value for name, equals, value in pairs]
