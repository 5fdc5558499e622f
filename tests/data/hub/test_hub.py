"""Benchmarks by the paper's protocol: rows numbered from the split's start, images scaled, tiers filled, no overlap."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

pytest.importorskip("datasets")

from tests.data.hub.tables import HIGH, LOW, mixed, picture, row, write_copy

from stakes.data.export import page_samples
from stakes.data.hub import MIN_NATIVE, RowRange, Scan, scaled_size, scan, write
from stakes.data.hub.sources import SOURCES, find_source
from stakes.data.sample import Sample, read_samples
from stakes.errors import BadInput
from stakes.signals import KeywordRule, TaskIdentity
from stakes.vision.geometry import count_tokens
from stakes.vision.image.decode import probe

QWEN = "qwen2.5-vl"


def size_of(sample: Sample) -> tuple[int, int]:
    """The size of a sample's loaded image."""
    image = sample.load()
    assert isinstance(image, Image.Image)
    return image.size


def _ids(samples: list[Sample]) -> list[str]:
    return [sample.id for sample in samples]


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
    copy = write_copy(name, tmp_path, mixed(name, 4))
    low, high = list(scan(name, QWEN, per_tier=1, parquet=copy))
    assert (high.id, high.document, high.answers) == (id_, document, answers)
    assert (high.task, high.tier, low.tier) == (name, "high", "low")
    assert (high.question, high.size, high.digest) == (HIGH, (0, 0), "")


def test_chartqa_has_neither_ids_nor_documents_so_row_number_and_bytes_are_used(tmp_path: Path) -> None:
    samples = list(scan("chartqa", QWEN, per_tier=2, parquet=write_copy("chartqa", tmp_path, mixed("chartqa", 4))))
    assert _ids(samples) == [f"chartqa_test_{i:05d}" for i in range(4)]
    documents = [sample.document for sample in samples]
    assert documents[0] == documents[1] != documents[2] == documents[3]
    assert [sample.answers for sample in samples] == [("0",), ("1",), ("2",), ("3",)]


@pytest.mark.parametrize("shards", [1, 3])
def test_rows_are_numbered_from_the_start_of_the_split_whatever_the_shards(tmp_path: Path, shards: int) -> None:
    copy = write_copy("docvqa", tmp_path, mixed("docvqa", 20), shards)
    scanned = scan("docvqa", QWEN, per_tier=3, start=7, parquet=copy)
    assert _ids(list(scanned)) == [f"docvqa_val_{1000 + i}" for i in range(7, 13)]
    assert scanned.rows == RowRange("docvqa", "validation", 7, 6)
    assert scanned.rows.stop == 13


def test_narrow_images_and_full_tiers_are_skipped_and_counted(tmp_path: Path) -> None:
    narrow = picture(300, 1000)
    questions = [(HIGH, None), (HIGH, narrow), (HIGH, None), (HIGH, None), (LOW, narrow), (LOW, None), (LOW, None)]
    table = [row("docvqa", i, question, image) for i, (question, image) in enumerate(questions)]
    scanned = scan("docvqa", QWEN, per_tier=1, parquet=write_copy("docvqa", tmp_path, table))
    assert _ids(list(scanned)) == ["docvqa_val_1000", "docvqa_val_1005"]
    assert (scanned.small, scanned.surplus, scanned.rows.scanned) == (2, 2, 6)
    assert scanned.taken == Counter(high=1, low=1)


def test_images_are_scaled_up_and_down_to_1008(tmp_path: Path) -> None:
    table = [row("docvqa", 0, HIGH, picture(2000, 1600)), row("docvqa", 1, LOW, picture(60, 100, kind="JPEG"))]
    down, up = scan("docvqa", QWEN, per_tier=1, parquet=write_copy("docvqa", tmp_path, table))
    assert (size_of(down), size_of(up)) == ((1008, 806), (605, 1008))
    assert (Path(str(down.image)).suffix, Path(str(up.image)).suffix) == (".png", ".jpg")


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
    copy = write_copy("vqav2", tmp_path, mixed("vqav2", 6))
    scanned = scan("vqav2", QWEN, per_tier=4, signal=TaskIdentity({"vqav2": "low"}), parquet=copy)
    assert [sample.tier for sample in scanned] == ["low"] * 4
    assert scanned.rows.scanned == 4


def test_a_set_that_starts_in_or_runs_into_another_is_refused(tmp_path: Path) -> None:
    copy = write_copy("docvqa", tmp_path, mixed("docvqa", 30))
    pilot = RowRange("docvqa", "validation", 0, 8)
    later = RowRange("docvqa", "validation", 20, 5)
    with pytest.raises(BadInput, match="reached row 3, which is excluded .*start it at row 8 or after"):
        list(scan("docvqa", QWEN, per_tier=2, start=3, exclude=[pilot], parquet=copy))
    with pytest.raises(BadInput, match="reached row 20.* 6 of 9 high, 6 of 9 low; start it at row 25 or after"):
        list(scan("docvqa", QWEN, per_tier=9, start=8, exclude=[pilot, later], parquet=copy))
    fits = scan("docvqa", QWEN, per_tier=6, start=8, exclude=[pilot, later], parquet=copy)
    assert len(list(fits)) == 12
    assert not any(fits.rows.shared(other) for other in (pilot, later))


def test_the_papers_sets_are_disjoint_only_where_1184_counts_from_row_0() -> None:
    pilot, mixed = RowRange("docvqa", "validation", 0, 257), RowRange("docvqa", "validation", 1184, 120)
    confirmatory = RowRange("docvqa", "validation", 257, 1184 - 257)
    assert (confirmatory.shared(pilot), confirmatory.shared(mixed), confirmatory.stop) == (0, 0, 1184)
    assert RowRange("docvqa", "validation", 257, 1184).shared(mixed) == 120
    assert pilot.shared(RowRange("docvqa", "validation", 256, 1)) == 1
    assert not any(
        pilot.shared(other) for other in (RowRange("chartqa", "test", 0, 257), RowRange("docvqa", "test", 0, 9))
    )


def test_a_split_that_ends_too_early_is_an_error_with_the_counts(tmp_path: Path) -> None:
    copy = write_copy("docvqa", tmp_path / "copy", [row("docvqa", i, HIGH) for i in range(4)])
    with pytest.raises(BadInput, match="ended at row 4 with 2 of 2 high, 0 of 2 low"):
        write(scan("docvqa", QWEN, per_tier=2, parquet=copy), tmp_path / "out")
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["images"]


def test_a_written_set_reads_back_and_records_its_rows(tmp_path: Path) -> None:
    copy = write_copy("docvqa", tmp_path / "copy", mixed("docvqa", 12))
    out = tmp_path / "out"
    write(scan("docvqa", QWEN, per_tier=3, start=2, parquet=copy), out)
    samples = read_samples(out / "samples.jsonl")
    assert [sample.id for sample in samples] == [f"docvqa_val_{1000 + i}" for i in range(2, 8)]
    assert len({sample.image for sample in samples}) == len(list((out / "images").iterdir())) == 3
    assert all(probe(out / str(sample.image))[1:] == (756, 1008) for sample in samples)
    assert RowRange.load(out) == RowRange.load(out / "selection.json") == RowRange("docvqa", "validation", 2, 6)
    assert json.loads((out / "selection.json").read_text())["stop"] == 8
    with pytest.raises(BadInput, match="is there already"):
        write(scan("docvqa", QWEN, per_tier=3, start=2, parquet=copy), out)


def test_a_selection_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="there is no .*selection.json"):
        RowRange.load(tmp_path)
    for text in ("{", "[]", '{"dataset": "docvqa"}', '{"dataset": "d", "split": "s", "start": "0", "scanned": 5}'):
        (tmp_path / "selection.json").write_text(text)
        with pytest.raises(BadInput, match="does not say which rows"):
            RowRange.load(tmp_path)


def test_bad_rows_are_named_by_their_number(tmp_path: Path) -> None:
    def first(**changed: Any) -> list[Sample]:
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


def test_an_unknown_benchmark_or_family_is_named() -> None:
    with pytest.raises(BadInput, match="no benchmark is called 'squad'; there are docvqa, chartqa"):
        find_source("squad")
    with pytest.raises(BadInput, match="at least one question per tier, not 0"):
        scan("docvqa", QWEN, per_tier=0)


def test_solid_colors_have_the_papers_1296_tokens() -> None:
    samples = list(page_samples("swatches", "test", 5))
    assert {size_of(sample) for sample in samples} == {(1008, 1008)}
    assert {count_tokens("qwen2.5-vl", *size_of(sample)) for sample in samples} == {1296}
    assert {sample.tier for sample in samples} == {"low"}
    assert len({sample.id for sample in samples}) == 5


def test_pages_with_several_questions_have_unique_ids() -> None:
    samples = list(page_samples("forms", "test", 6))
    assert len(set(_ids(samples))) == 12 > len({sample.image for sample in samples})


def test_real_charts_scaled_to_1008_lack_640_tokens_only_six_times(real_data: Path, tmp_path: Path) -> None:
    samples = read_samples(real_data / "chartqa" / "questions.jsonl")
    images = {s.image: (real_data / "chartqa" / str(s.image)).read_bytes() for s in samples}
    table = [row("chartqa", i, s.question, images[s.image]) for i, s in enumerate(samples)]
    copy = write_copy("chartqa", tmp_path, table, shards=2)
    scanned = scan("chartqa", QWEN, per_tier=150, parquet=copy)
    taken = list(scanned)
    rule = KeywordRule()
    assert all(sample.tier == rule(sample.question).tier for sample in taken)
    assert scanned.rows.scanned == 300 + scanned.small + scanned.surplus
    assert all(max(size_of(sample)) == 1008 for sample in taken[::40])
    short = {name for name, data in images.items() if not scaled_size(*probe(data)[1:], SOURCES["chartqa"], QWEN, 640)}
    assert len(short) == 6
