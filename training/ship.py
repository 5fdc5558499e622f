"""How do trained weights reach the package? Copied into it, with a checksum of every file.

PYTHONPATH=src:. python -m training.ship runs/reader/export reader

A folder that is new in the package also needs its name in ``stakes.models.embedded.SHIPPED``.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

from stakes.models.embedded import CHECKSUMS, SHIPPED, WEIGHTS, checksum

FOLDERS = ("reader", "reader-small", "reader-llava")


def main() -> None:
    """Replace ``weights/NAME`` in the package by an exported folder."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("export", type=Path, help="a run's export/ folder")
    p.add_argument("name", choices=FOLDERS)
    a = p.parse_args()
    large = [f.name for f in a.export.iterdir() if f.stat().st_size > 15_000_000]
    if large:
        raise SystemExit(f"{', '.join(large)}: a shipped file has at most 15 MB; save with smaller shards")
    target = WEIGHTS / a.name
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(a.export, target)
    write_checksums(target)
    total = sum(f.stat().st_size for f in target.iterdir())
    if a.name not in SHIPPED.values():
        print(f"{a.name} is not in stakes.models.embedded.SHIPPED yet, so models.load does not know it")
    print(f"{target}: {len(list(target.iterdir()))} files, {total / 1e6:.1f} MB")


def write_checksums(folder: Path) -> None:
    """Write the checksum of every file of a folder that is to be shipped."""
    files = sorted(path for path in folder.iterdir() if path.name != CHECKSUMS)
    text = json.dumps({path.name: checksum(path) for path in files}, indent=1)
    (folder / CHECKSUMS).write_text(text + "\n", "utf-8")


if __name__ == "__main__":
    main()
