"""The embedded readers: small VLMs that ship inside the package, so that everything runs offline.

    model = load("embedded")          # a stock Qwen2.5-VL folder of about 9M parameters, 18 MB

``weights/<name>/`` are normal Hugging Face folders (safetensors, no pickle), made by ``training/``. Every file is
compared with ``checksums.json`` before it is loaded; a partial download or an edited file is refused by name.
"""

import hashlib
import json
from pathlib import Path

from stakes.errors import BadInput

WEIGHTS = Path(__file__).with_name("weights")
CHECKSUMS = "checksums.json"
# name for models.load -> folder in weights/
SHIPPED = {"embedded": "reader", "embedded-small": "reader-small", "embedded-llava": "reader-llava"}
UNSURE_BELOW = 0.85
"""The confidence below which an answer of "embedded" is probably wrong; what that marks: docs/appendix.md."""
READS = "It was trained on synthetic pages; others may need a larger model."


def unsure(name: str, confidence: float | None) -> str | None:
    """The warning beside an answer of the model called ``name``; None for a sure one and for other models.

    >>> unsure("embedded", 0.31)
    'The embedded reader is not sure (0.31). It was trained on synthetic pages; others may need a larger model.'
    """
    if name != "embedded" or confidence is None or confidence >= UNSURE_BELOW:
        return None
    return f"The embedded reader is not sure ({confidence:.2f}). {READS}"


def shipped_folder(name: str) -> Path:
    """The folder of a shipped model, after comparing all of its files with their checksums."""
    folder = WEIGHTS / SHIPPED[name]
    try:
        expected: dict[str, str] = json.loads((folder / CHECKSUMS).read_text("utf-8"))
    except OSError:
        raise BadInput(
            f"the weights of {name!r} are not in this installation ({folder} has no {CHECKSUMS}); install stakes again"
        ) from None
    for file, digest in expected.items():
        path = folder / file
        if not path.is_file():
            raise BadInput(f"the weights of {name!r} lack {path}; install stakes again")
        if checksum(path) != digest:
            raise BadInput(f"{path} is not the file that was shipped (its checksum differs); install stakes again")
    return folder


def checksum(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
