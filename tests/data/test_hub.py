"""Benchmarks by the paper's protocol: rows numbered from the split's start, images scaled, tiers filled, no overlap."""

import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("datasets")

from tests.data.hub_tables import HIGH, LOW, picture, row, write_copy

from stakes.data.export import Item, page_items
from stakes.data.hub import MIN_NATIVE, Scan, Selection, disjoint, require_disjoint, scaled_size, scan, write
from stakes.data.hub.rows import parquet_files, rows
from stakes.data.hub.specs import SOURCES, find_source
from stakes.data.sample import read_samples
from stakes.data.sight import sight
from stakes.errors import BadInput
from stakes.signals import KeywordRule, TaskIdentity
from stakes.vision.geometry import count_tokens
from stakes.vision.image.decode import probe

QWEN = sight("qwen2.5-vl")


def _mixed(name: str, count: int) -> list[dict[str, Any]]:
    return [row(name, i, HIGH if i % 2 else LOW) for i in range(count)]


def _ids(items: list[Item]) -> list[str]:
    return [item.sample.id for item in items]


@pytest.mark.parametrize(
    ("name", "id_", "document", "answers"),
    [
        ("docvqa", "docvqa_val_1001", "xyz0000_3", ("$1", "1 dollars")),
        ("infographicvqa", "infographicvqa_val_2001", "https://example.org/0.jpeg", ("1",)),
        ("textvqa", "textvqa_val_34603", f"{0:016x}", ("dakota",) * 6 + ("nous",) * 4),
        ("vqav2", "vqav2_val_262148001", "0", ("down",) * 7 + ("table",) * 3),
    ],
)
def test_each_layout_becomes_samples(
    tmp_path: Path, name: str, id_: str, document: str, answers: tuple[str, ...]
) -> None:
    copy = write_copy(name, tmp_path, _mixed(name, 4))
    low, high = list(scan(name, QWEN, per_tier=1, parquet=copy))
    assert (high.sample.id, high.sample.document, high.sample.answers) == (id_, document, answers)
    assert (high.sample.task, high.sample.tier, low.sample.tier) == (name, "high", "low")
    assert (high.sample.question, high.sample.image) == (HIGH, None)


def test_chartqa_has_neither_ids_nor_documents_so_row_and_bytes_stand_in(tmp_path: Path) -> None:
    items = list(scan("chartqa", QWEN, per_tier=2, parquet=write_copy("chartqa", tmp_path, _mixed("chartqa", 4))))
    assert _ids(items) == [f"chartqa_test_{i:05d}" for i in range(4)]
    documents = [item.sample.document for item in items]
    assert documents[0] == documents[1] != documents[2] == documents[3]
    assert [item.sample.answers for item in items] == [("0",), ("1",), ("2",), ("3",)]


@pytest.mark.parametrize("name", SOURCES)
def test_the_hubs_reader_and_ours_give_the_same_rows(tmp_path: Path, name: str) -> None:
    copy = write_copy(name, tmp_path, _mixed(name, 11), shards=2)
    source = replace(SOURCES[name], repo=str(copy))  # datasets streams a folder as it streams a repository
    for start in (0, 4, 7):
        streamed = list(rows(source, start=start))
        assert streamed == list(rows(source, parquet=copy, start=start))
        assert len(streamed) == 11 - start
        assert set(streamed[0]) == set(source.columns)


@pytest.mark.parametrize("shards", [1, 3])
def test_rows_are_numbered_from_the_start_of_the_split_whatever_the_shards(tmp_path: Path, shards: int) -> None:
    copy = write_copy("docvqa", tmp_path, _mixed("docvqa", 20), shards)
    found = scan("docvqa", QWEN, per_tier=3, start=7, parquet=copy)
    assert _ids(list(found)) == [f"docvqa_val_{1000 + i}" for i in range(7, 13)]
    assert found.selection == Selection("docvqa", "validation", 7, 6)
    assert found.selection.stop == 13


def test_narrow_images_and_full_tiers_are_passed_over_and_counted(tmp_path: Path) -> None:
    narrow = picture(300, 1000)
    asked = [(HIGH, None), (HIGH, narrow), (HIGH, None), (HIGH, None), (LOW, narrow), (LOW, None), (LOW, None)]
    table = [row("docvqa", i, question, image) for i, (question, image) in enumerate(asked)]
    found = scan("docvqa", QWEN, per_tier=1, parquet=write_copy("docvqa", tmp_path, table))
    assert _ids(list(found)) == ["docvqa_val_1000", "docvqa_val_1005"]
    assert (found.small, found.surplus, found.selection.scanned) == (2, 2, 6)
    assert found.taken == Counter(high=1, low=1)


def test_images_are_scaled_up_and_down_to_1008(tmp_path: Path) -> None:
    table = [row("docvqa", 0, HIGH, picture(2000, 1600)), row("docvqa", 1, LOW, picture(60, 100, kind="JPEG"))]
    down, up = scan("docvqa", QWEN, per_tier=1, parquet=write_copy("docvqa", tmp_path, table))
    assert (down.paint().size, up.paint().size) == ((1008, 806), (605, 1008))
    assert (down.suffix, up.suffix) == (".png", ".jpg")


def test_only_infographics_go_on_to_1512() -> None:
    tall = (500, 1500)  # at 1008: 12 x 36 = 432 tokens
    assert scaled_size(*tall, SOURCES["docvqa"], QWEN, MIN_NATIVE) is None
    size = scaled_size(*tall, SOURCES["infographicvqa"], QWEN, MIN_NATIVE)
    assert size is not None
    assert size[1] == 1232
    assert count_tokens("qwen2.5-vl", *size) >= 640
    assert scaled_size(200, 1500, SOURCES["infographicvqa"], QWEN, MIN_NATIVE) is None


@given(st.integers(1, 6000), st.integers(1, 6000), st.sampled_from(["docvqa", "infographicvqa"]))
def test_a_scaled_image_keeps_its_shape_and_is_enlarged_no_further_than_needed(
    width: int, height: int, name: str
) -> None:
    if max(width, height) > 150 * min(width, height):
        return  # Qwen's own processor refuses 200 to 1
    source = SOURCES[name]
    size = scaled_size(width, height, source, QWEN, MIN_NATIVE)
    shorter_by = min(width, height) / max(width, height)
    if size is None:
        most = source.most_side, max(1, round(source.most_side * shorter_by))
        assert count_tokens("qwen2.5-vl", *most) < 640
        return
    longer, shorter = max(size), min(size)
    assert source.side <= longer <= source.most_side
    assert abs(shorter - longer * shorter_by) <= 1
    assert count_tokens("qwen2.5-vl", *size) >= 640
    if longer > source.side:
        before = longer - 28, max(1, round((longer - 28) * shorter_by))
        assert count_tokens("qwen2.5-vl", *before) < 640


def test_task_identity_puts_a_whole_benchmark_into_one_tier(tmp_path: Path) -> None:
    copy = write_copy("vqav2", tmp_path, _mixed("vqav2", 6))
    found = scan("vqav2", QWEN, per_tier=4, signal=TaskIdentity({"vqav2": "low"}), parquet=copy)
    assert [item.sample.tier for item in found] == ["low"] * 4
    assert found.selection.scanned == 4


def test_a_set_that_starts_in_or_runs_into_another_is_refused(tmp_path: Path) -> None:
    copy = write_copy("docvqa", tmp_path, _mixed("docvqa", 30))
    pilot = Selection("docvqa", "validation", 0, 8)
    later = Selection("docvqa", "validation", 20, 5)
    with pytest.raises(BadInput, match="came to row 3, which another set has looked at .*start it at row 8 or after"):
        list(scan("docvqa", QWEN, per_tier=2, start=3, apart_from=[pilot], parquet=copy))
    with pytest.raises(BadInput, match="came to row 20.* 6 of 9 high, 6 of 9 low; start it at row 25 or after"):
        list(scan("docvqa", QWEN, per_tier=9, start=8, apart_from=[pilot, later], parquet=copy))
    fits = scan("docvqa", QWEN, per_tier=6, start=8, apart_from=[pilot, later], parquet=copy)
    assert len(list(fits)) == 12
    assert disjoint([pilot, fits.selection, later])


def test_the_papers_sets_are_disjoint_only_where_1184_counts_from_row_0() -> None:
    pilot, mixed = Selection("docvqa", "validation", 0, 257), Selection("docvqa", "validation", 1184, 120)
    require_disjoint([pilot, Selection("docvqa", "validation", 257, 1184 - 257), mixed])
    with pytest.raises(BadInput, match="overlap by 120; start the later set at row 1441 or after"):
        require_disjoint([pilot, Selection("docvqa", "validation", 257, 1184), mixed])
    assert not disjoint([pilot, Selection("docvqa", "validation", 256, 1)])
    assert disjoint([pilot, Selection("chartqa", "test", 0, 257), Selection("docvqa", "test", 0, 9)])


def test_a_split_that_ends_too_early_says_with_how_many(tmp_path: Path) -> None:
    copy = write_copy("docvqa", tmp_path / "copy", [row("docvqa", i, HIGH) for i in range(4)])
    with pytest.raises(BadInput, match="ended at row 4 with 2 of 2 high, 0 of 2 low"):
        write(scan("docvqa", QWEN, per_tier=2, parquet=copy), tmp_path / "out")
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["images"]


def test_a_written_set_reads_back_and_says_what_it_looked_at(tmp_path: Path) -> None:
    copy = write_copy("docvqa", tmp_path / "copy", _mixed("docvqa", 12))
    out = tmp_path / "out"
    write(scan("docvqa", QWEN, per_tier=3, start=2, parquet=copy), out)
    samples = read_samples(out / "samples.jsonl")
    assert [sample.id for sample in samples] == [f"docvqa_val_{1000 + i}" for i in range(2, 8)]
    assert len({sample.image for sample in samples}) == len(list((out / "images").iterdir())) == 3
    assert all(probe(out / str(sample.image))[1:] == (756, 1008) for sample in samples)
    assert Selection.load(out) == Selection.load(out / "selection.json") == Selection("docvqa", "validation", 2, 6)
    assert json.loads((out / "selection.json").read_text())["stop"] == 8
    with pytest.raises(BadInput, match="is there already"):
        write(scan("docvqa", QWEN, per_tier=3, start=2, parquet=copy), out)


def test_a_selection_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="there is no .*selection.json"):
        Selection.load(tmp_path)
    for text in ("{", "[]", '{"dataset": "docvqa"}', '{"dataset": "d", "split": "s", "start": "0", "scanned": 5}'):
        (tmp_path / "selection.json").write_text(text)
        with pytest.raises(BadInput, match="does not say which rows"):
            Selection.load(tmp_path)


def test_bad_rows_are_named_by_their_number(tmp_path: Path) -> None:
    def first(**changed: Any) -> list[Item]:
        table = [{**row("docvqa", 5, HIGH), **changed}]
        return list(Scan(SOURCES["docvqa"], table, QWEN, 1, start=5))

    with pytest.raises(BadInput, match="row 5 of docvqa: the image cannot be decoded"):
        first(image={"bytes": b"not an image", "path": None})
    with pytest.raises(BadInput, match="row 5 of docvqa has no image bytes"):
        first(image={"bytes": None, "path": "p.png"})
    with pytest.raises(BadInput, match="row 5 of docvqa has no answers"):
        first(answers=None)
    with pytest.raises(BadInput, match="row 5 of docvqa has no question"):
        first(question=" ")


def test_copies_that_are_not_whole_are_refused(tmp_path: Path) -> None:
    docvqa = SOURCES["docvqa"]
    copy = write_copy("docvqa", tmp_path / "a", _mixed("docvqa", 9), shards=3)
    files = parquet_files(docvqa, copy)
    assert [file.name[:16] for file in files] == ["validation-00000", "validation-00001", "validation-00002"]
    files[1].unlink()
    with pytest.raises(BadInput, match="holds the shards 0, 2 of 3; row numbers need every shard"):
        rows(docvqa, parquet=copy)
    with pytest.raises(BadInput, match="no file test-.* for chartqa, but validation-00000"):
        rows(SOURCES["chartqa"], parquet=copy)
    with pytest.raises(BadInput, match="there is no parquet file or folder"):
        rows(docvqa, parquet=tmp_path / "none")
    with pytest.raises(BadInput, match="row 0 or later, not at -1"):
        rows(docvqa, parquet=copy, start=-1)
    with pytest.raises(BadInput, match="is not textvqa as the hub has it: no column question_id, image_id among"):
        list(rows(SOURCES["textvqa"], parquet=files[0]))
    files[0].write_bytes(b"PAR1 but no more")
    with pytest.raises(BadInput, match="cannot be read as parquet"):
        list(rows(docvqa, parquet=files[0]))


def test_two_configs_in_one_folder_are_told_apart(tmp_path: Path) -> None:
    write_copy("docvqa", tmp_path / "both", _mixed("docvqa", 2))
    other = write_copy("infographicvqa", tmp_path / "other", _mixed("infographicvqa", 2))
    (other / "InfographicVQA").rename(tmp_path / "both" / "InfographicVQA")
    for name in ("docvqa", "infographicvqa"):
        (file,) = parquet_files(SOURCES[name], tmp_path / "both")
        assert file.parent.name.lower() == name
    with pytest.raises(BadInput, match="textvqa could be in .*DocVQA and .*InfographicVQA"):
        parquet_files(SOURCES["textvqa"], tmp_path / "both")


def test_without_the_extra_the_command_to_run_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    copy = write_copy("docvqa", tmp_path, _mixed("docvqa", 2))
    monkeypatch.setitem(sys.modules, "datasets", None)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for place in (None, copy):
        with pytest.raises(BadInput, match=r"run: pip install 'stakes\[hub\]'"):
            next(rows(SOURCES["docvqa"], parquet=place))


def test_a_hub_out_of_reach_is_one_sentence(tmp_path: Path) -> None:
    code = (
        "from stakes.data.hub.rows import rows; from stakes.data.hub.specs import SOURCES; "
        "from stakes.errors import BadInput\n"
        "try: next(rows(SOURCES['docvqa']))\n"
        "except BadInput as error: print(error)"
    )
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    said = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert said.stdout.startswith("lmms-lab/DocVQA cannot be read from the hub (")
    assert said.stdout.strip().endswith("or give a local copy as parquet")
    assert said.stdout.count("\n") == 1


def test_an_unknown_benchmark_or_family_is_named() -> None:
    with pytest.raises(BadInput, match="no benchmark is called 'squad'; there are docvqa, chartqa"):
        find_source("squad")
    with pytest.raises(BadInput, match="at least one question a tier, not 0"):
        scan("docvqa", QWEN, per_tier=0)


def test_solid_colours_have_the_papers_1296_tokens() -> None:
    items = list(page_items("swatches", "test", 5))
    assert {item.paint().size for item in items} == {(1008, 1008)}
    assert {count_tokens("qwen2.5-vl", *item.paint().size) for item in items} == {1296}
    assert {item.sample.tier for item in items} == {"low"}
    assert len({item.sample.id for item in items}) == 5


def test_pages_with_several_questions_have_unique_ids() -> None:
    items = list(page_items("forms", "test", 6))
    assert len(set(_ids(items))) == 12 > len({item.stem for item in items})


def test_real_charts_scaled_to_1008_lack_640_tokens_only_six_times(real_data: Path, tmp_path: Path) -> None:
    asked = read_samples(real_data / "chartqa" / "questions.jsonl")
    images = {s.image: (real_data / "chartqa" / str(s.image)).read_bytes() for s in asked}
    table = [row("chartqa", i, s.question, images[s.image]) for i, s in enumerate(asked)]
    copy = write_copy("chartqa", tmp_path, table, shards=2)
    found = scan("chartqa", QWEN, per_tier=150, parquet=copy)
    taken = list(found)
    rule = KeywordRule()
    assert all(item.sample.tier == rule(item.sample.question).tier for item in taken)
    assert found.selection.scanned == 300 + found.small + found.surplus
    assert all(max(item.paint().size) == 1008 for item in taken[::40])
    short = {name for name, data in images.items() if not scaled_size(*QWEN.size(data), SOURCES["chartqa"], QWEN, 640)}
    assert len(short) == 6
