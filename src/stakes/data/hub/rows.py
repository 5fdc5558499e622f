"""Where do a benchmark's rows come from? The hub, streamed, or parquet files here in the same columns.

Both give rows in the order of the split from an absolute offset, with the image as the bytes that were stored, so
that nothing is decoded before it is known to be wanted. ``pip install 'stakes[hub]'`` brings both readers.

    rows(SOURCES["docvqa"], start=257)                             # streamed from lmms-lab/DocVQA
    rows(SOURCES["docvqa"], parquet=Path("copies/DocVQA"))         # .../DocVQA/validation-00000-of-00006.parquet, …
"""

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from stakes.data.hub.specs import Source
from stakes.errors import BadInput, StakesError

Row = dict[str, Any]
_SHARD = re.compile(r"-(\d+)-of-(\d+)")
_BATCH = 16  # rows held in memory at once; a DocVQA page is about 1 MB


def rows(source: Source, *, parquet: Path | None = None, start: int = 0) -> Iterator[Row]:
    """The benchmark's rows from number ``start`` on; the image of each is ``{"bytes", "path"}``."""
    if start < 0:
        raise BadInput(f"a scan starts at row 0 or later, not at {start}")
    if parquet is not None:
        return _local(source, parquet_files(source, parquet), start)
    return _streamed(source, start)


def parquet_files(source: Source, place: Path) -> list[Path]:
    """The split's files in order: the file itself, or those in a folder that are named as on the hub.

    A shard that is missing would shift every absolute index after it, so it is an error.
    """
    if place.is_file():
        return [place]
    if not place.is_dir():
        raise BadInput(f"there is no parquet file or folder {place}; check the path")
    every = sorted(place.rglob("*.parquet"))
    found = [file for file in every if re.match(rf"{source.split}\b", file.name)]
    if source.config is not None:
        found = [file for file in found if source.config in file.relative_to(place).parts] or found
    if not found:
        others = ", ".join(file.name for file in every[:3]) or "no parquet file at all"
        raise BadInput(f"{place} has no file {source.split}-*.parquet for {source.name}, but {others}")
    if len(folders := {file.parent for file in found}) > 1:
        names = " and ".join(str(folder) for folder in sorted(folders)[:2])
        raise BadInput(f"{source.name} could be in {names}; give the folder of one")
    _require_all_shards(found)
    return found


def _require_all_shards(files: list[Path]) -> None:
    shards = [match for file in files if (match := _SHARD.search(file.name))]
    if not shards:
        return
    numbers, totals = sorted(int(shard[1]) for shard in shards), {int(shard[2]) for shard in shards}
    if len(shards) != len(files) or len(totals) != 1 or numbers != list(range(max(totals))):
        raise BadInput(
            f"{files[0].parent} holds the shards {', '.join(map(str, numbers))} of {max(totals)}; "
            "row numbers need every shard of one set, numbered from 0"
        )


def _local(source: Source, files: list[Path], start: int) -> Iterator[Row]:
    try:
        import pyarrow as arrow
        from pyarrow import parquet
    except ImportError:
        raise BadInput("parquet files need the library datasets; run: pip install 'stakes[hub]'") from None
    before = 0
    for file in files:
        try:
            with parquet.ParquetFile(file) as table:
                _require_columns(source, table.schema_arrow.names, str(file))
                sizes = [table.metadata.row_group(i).num_rows for i in range(table.metadata.num_row_groups)]
                wanted, skipped = [], before
                for group, size in enumerate(sizes):
                    if before + size > start:
                        wanted.append(group)
                    else:
                        skipped += size
                    before += size
                index = skipped
                for batch in table.iter_batches(_BATCH, row_groups=wanted, columns=list(source.columns)):
                    for row in batch.to_pylist():
                        if index >= start:
                            yield row
                        index += 1
        except (arrow.ArrowException, OSError) as error:
            why = " ".join(str(error).split())[:200]
            raise BadInput(f"{file} cannot be read as parquet ({why}); download it again") from None


def _streamed(source: Source, start: int) -> Iterator[Row]:
    try:
        import datasets
    except ImportError:
        raise BadInput(
            f"{source.name} is read from the hub by the library datasets; run: pip install 'stakes[hub]'"
        ) from None
    try:
        with _quiet():
            stream = datasets.load_dataset(source.repo, source.config, split=source.split, streaming=True)
        names = stream.column_names or list(next(iter(stream.take(1)), {}))
        _require_columns(source, names, source.repo)
        kept = stream.select_columns(list(source.columns))
        yield from kept.cast_column("image", datasets.Image(decode=False)).skip(start)
    except StakesError:
        raise
    except Exception as error:  # the hub's own errors, the network's and the parser's share no base
        why = (" ".join(str(error).split()) or type(error).__name__).split(". ")[0][:200]
        raise BadInput(
            f"{source.repo} cannot be read from the hub ({why}); check the network, or give a local copy as parquet"
        ) from None


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the hub library's own lines on each attempt: our one sentence says what came of them."""
    logger = logging.getLogger("huggingface_hub")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _require_columns(source: Source, names: list[str], place: str) -> None:
    missing = [column for column in source.columns if column not in names]
    if missing:
        raise BadInput(
            f"{place} is not {source.name} as the hub has it: no column {', '.join(missing)} among {', '.join(names)}"
        )
