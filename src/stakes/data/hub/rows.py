"""The rows of a benchmark: streamed from the hub, or read from local parquet files with the same columns.

Both give rows in the order of the split from an absolute offset. An image stays as the bytes that were stored, so that
only images in use are decoded. ``pip install 'stakes[hub]'`` installs both readers.

    read_rows(SOURCES["docvqa"], start=257)                        # streamed from lmms-lab/DocVQA
    read_rows(SOURCES["docvqa"], parquet=Path("copies/DocVQA"))    # .../DocVQA/validation-00000-of-00006.parquet, …
"""

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from stakes.data.hub.sources import Source
from stakes.errors import BadInput, StakesError

Row = dict[str, Any]
_SHARD = re.compile(r"-(\d+)-of-(\d+)")
_BATCH = 16  # rows held in memory at once; a DocVQA page is about 1 MB


def read_rows(source: Source, *, parquet: Path | None = None, start: int = 0) -> Iterator[Row]:
    """The benchmark's rows from number ``start`` on; the image of each is ``{"bytes", "path"}``."""
    if start < 0:
        raise BadInput(f"a scan starts at row 0 or later, not at {start}")
    if parquet is not None:
        return _local(source, parquet_files(source, parquet), start)
    return _streamed(source, start)


def parquet_files(source: Source, path: Path) -> list[Path]:
    """The split's files in order: the file itself, or those in a folder that are named as on the hub.

    A missing shard would shift every absolute index after it, so it is an error.
    """
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise BadInput(f"there is no parquet file or folder {path}; check the path")
    every = sorted(path.rglob("*.parquet"))
    files = [file for file in every if re.match(rf"{source.split}\b", file.name)]
    if source.config is not None:
        files = [file for file in files if source.config in file.relative_to(path).parts] or files
    if not files:
        others = ", ".join(file.name for file in every[:3]) or "no parquet file at all"
        raise BadInput(f"{path} has no file {source.split}-*.parquet for {source.name}, but {others}")
    if len(folders := {file.parent for file in files}) > 1:
        names = " and ".join(str(folder) for folder in sorted(folders)[:2])
        raise BadInput(f"{source.name} could be in {names}; give the folder of one")
    _require_all_shards(files)
    return files


def _require_all_shards(files: list[Path]) -> None:
    shards = [match for file in files if (match := _SHARD.search(file.name))]
    numbers, totals = sorted(int(shard[1]) for shard in shards), {int(shard[2]) for shard in shards}
    if shards and (len(shards) != len(files) or len(totals) != 1 or numbers != list(range(max(totals)))):
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
    skip = start
    for file in files:
        try:
            with parquet.ParquetFile(file) as table:
                _require_columns(source, table.schema_arrow.names, str(file))
                groups = list(range(table.metadata.num_row_groups))
                while groups and skip >= (size := table.metadata.row_group(groups[0]).num_rows):
                    skip -= size
                    del groups[0]
                for batch in table.iter_batches(_BATCH, row_groups=groups, columns=list(source.columns)):
                    yield from batch.to_pylist()[skip:]
                    skip = max(0, skip - batch.num_rows)
        except (arrow.ArrowException, OSError) as error:
            why = " ".join(str(error).split())[:200]
            raise BadInput(f"{file} cannot be read as parquet ({why}); download it again") from None


def _streamed(source: Source, start: int) -> Iterator[Row]:
    try:
        import datasets
    except ImportError:
        raise BadInput("the hub is read by the library datasets; run: pip install 'stakes[hub]'") from None
    try:
        with _quiet():
            stream = datasets.load_dataset(source.repo, source.config, split=source.split, streaming=True)
        names = stream.column_names or list(next(iter(stream.take(1)), {}))
        _require_columns(source, names, source.repo)
        columns = stream.select_columns(list(source.columns))
        yield from columns.cast_column("image", datasets.Image(decode=False)).skip(start)
    except StakesError:
        raise
    except Exception as error:  # errors of the hub, of the network and of the parser share no base class
        why = (" ".join(str(error).split()) or type(error).__name__).split(". ")[0][:200]
        raise BadInput(
            f"{source.repo} cannot be read from the hub ({why}); check the network, or give a local copy as parquet"
        ) from None


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the hub library's own lines on each attempt; our one message names the result."""
    logger = logging.getLogger("huggingface_hub")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _require_columns(source: Source, names: list[str], where: str) -> None:
    missing = [column for column in source.columns if column not in names]
    if missing:
        raise BadInput(
            f"{where} is not {source.name} as the hub has it: no column {', '.join(missing)} among {', '.join(names)}"
        )
