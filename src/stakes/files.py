"""Files are written whole or not at all, and truncated only after a torn line of our own.

``write_whole`` replaces a file by a finished one. A new file gets the mode that the umask leaves; an existing one keeps
its mode, so that a gateway under another user can go on reading it.

``is_torn`` says whether bytes can be the beginning of a line that this package writes: a JSON object whose first fields
have known names in a known order. A log may end in half such a line, because its writer was killed. A file that
somebody named by mistake does not, and must not change.

    >>> is_torn(b'{"key": "k1", "ti', ("key", "tier")), is_torn(b'{"my": "one-line file"}', ("key", "tier"))
    (True, False)
"""

import contextlib
import math
import os
import re
import secrets
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_VALUE = re.compile(r'"(?:[^"\\]|\\.)*"|null|true|false|-?\d[\d.eE+-]*')


def write_whole(path: Path, text: str) -> None:
    """Write a file whole or not at all, and wait until it is on disk; after an OSError the old file is unchanged."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{secrets.token_hex(8)}.part")
    # Not mkstemp, which ignores the umask and gives every file the mode 0600.
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            if path.exists():
                os.fchmod(descriptor, stat.S_IMODE(path.stat().st_mode))
            file.write(text)
            file.flush()
            os.fsync(descriptor)
        os.replace(part, path)
        _sync_folder(path.parent)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _sync_folder(folder: Path) -> None:
    """Wait until a renamed file is on disk under its new name, where the system can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def is_torn(tail: bytes, names: Sequence[str]) -> bool:
    """Whether ``tail`` can begin a line ``{"name": value, …}`` with these names first, in this order."""
    rest = tail.decode("utf-8", "replace")
    for number, name in enumerate(names):
        lead = f'{", " if number else "{"}"{name}": '
        if not rest.startswith(lead):
            return lead.startswith(rest)
        rest = rest[len(lead) :]
        value = _VALUE.match(rest)
        if value is None:
            return rest.startswith('"') or any(word.startswith(rest) for word in ("null", "true", "false", "-"))
        rest = rest[value.end() :]
    return rest.startswith(", ") or rest in ("", ",", "}")


def clean(value: Any) -> Any:
    """The value with null for infinities and NaN, which JSON does not have."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {str(key): clean(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [clean(item) for item in value]
    return value
