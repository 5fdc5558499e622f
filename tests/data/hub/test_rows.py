"""Rows are the same from the hub and from a local copy, and what cannot be read is refused in one sentence."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("datasets")

from tests.data.hub.tables import mixed, write_copy

from stakes.data.hub.rows import parquet_files, read_rows
from stakes.data.hub.sources import SOURCES
from stakes.errors import BadInput


@pytest.mark.parametrize("name", SOURCES)
def test_the_hubs_reader_and_ours_give_the_same_rows(tmp_path: Path, name: str) -> None:
    copy = write_copy(name, tmp_path, mixed(name, 11), shards=2)
    source = replace(SOURCES[name], repo=str(copy))  # datasets streams a folder as it streams a repository
    for start in (0, 4, 7):
        streamed = list(read_rows(source, start=start))
        assert streamed == list(read_rows(source, parquet=copy, start=start))
        assert len(streamed) == 11 - start
        assert set(streamed[0]) == set(source.columns)


def test_copies_that_are_not_whole_are_refused(tmp_path: Path) -> None:
    docvqa = SOURCES["docvqa"]
    copy = write_copy("docvqa", tmp_path / "a", mixed("docvqa", 9), shards=3)
    files = parquet_files(docvqa, copy)
    assert [file.name[:16] for file in files] == ["validation-00000", "validation-00001", "validation-00002"]
    files[1].unlink()
    with pytest.raises(BadInput, match="holds the shards 0, 2 of 3; row numbers need every shard"):
        read_rows(docvqa, parquet=copy)
    with pytest.raises(BadInput, match="no file test-.* for chartqa, but validation-00000"):
        read_rows(SOURCES["chartqa"], parquet=copy)
    with pytest.raises(BadInput, match="there is no parquet file or folder"):
        read_rows(docvqa, parquet=tmp_path / "none")
    with pytest.raises(BadInput, match="row 0 or later, not at -1"):
        read_rows(docvqa, parquet=copy, start=-1)
    with pytest.raises(BadInput, match="is not textvqa as the hub has it: no column question_id, image_id among"):
        list(read_rows(SOURCES["textvqa"], parquet=files[0]))
    files[0].write_bytes(b"PAR1 but no more")
    with pytest.raises(BadInput, match="cannot be read as parquet"):
        list(read_rows(docvqa, parquet=files[0]))


def test_two_configs_in_one_folder_are_distinguished(tmp_path: Path) -> None:
    write_copy("docvqa", tmp_path / "both", mixed("docvqa", 2))
    other = write_copy("infographicvqa", tmp_path / "other", mixed("infographicvqa", 2))
    (other / "InfographicVQA").rename(tmp_path / "both" / "InfographicVQA")
    for name in ("docvqa", "infographicvqa"):
        (file,) = parquet_files(SOURCES[name], tmp_path / "both")
        assert file.parent.name.lower() == name
    with pytest.raises(BadInput, match="textvqa could be in .*DocVQA and .*InfographicVQA"):
        parquet_files(SOURCES["textvqa"], tmp_path / "both")


def test_without_the_extra_the_command_to_run_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    copy = write_copy("docvqa", tmp_path, mixed("docvqa", 2))
    monkeypatch.setitem(sys.modules, "datasets", None)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for place in (None, copy):
        with pytest.raises(BadInput, match=r"run: pip install 'stakes\[hub\]'"):
            next(read_rows(SOURCES["docvqa"], parquet=place))


def test_an_unreachable_hub_is_one_sentence(tmp_path: Path) -> None:
    code = (
        "from stakes.data.hub.rows import read_rows; from stakes.data.hub.sources import SOURCES; "
        "from stakes.errors import BadInput\n"
        "try: next(read_rows(SOURCES['docvqa']))\n"
        "except BadInput as error: print(error)"
    )
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert run.stdout.startswith("lmms-lab/DocVQA cannot be read from the hub (")
    assert run.stdout.strip().endswith("or give a local copy as parquet")
    assert run.stdout.count("\n") == 1
