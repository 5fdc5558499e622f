"""Files are written whole with the mode that the umask leaves, and only half a line of ours counts as torn."""

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stakes import Policy
from stakes.evaluation.fingerprint import save_json
from stakes.files import is_torn, write_whole


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(params=[(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)], ids=["022", "077", "002"])
def left(request: pytest.FixtureRequest) -> Iterator[int]:
    mask, mode_left = request.param
    before = os.umask(mask)
    yield mode_left
    os.umask(before)


def test_a_new_file_has_the_mode_that_the_umask_leaves(tmp_path: Path, left: int) -> None:
    write_whole(tmp_path / "deep" / "text", "naïve")
    save_json(tmp_path / "record.json", {"a": 1})
    tiers = {"high": {"cost": 5, "budget": 64}, "low": {"cost": 1, "budget": 64}}
    Policy.model_validate({"mean_budget": 64, "tiers": tiers}).save(tmp_path / "policy.json")
    assert (tmp_path / "deep" / "text").read_text(encoding="utf-8") == "naïve"
    modes = [mode(tmp_path / name) for name in ("deep/text", "record.json", "policy.json")]
    assert modes == [left] * 3
    assert list(tmp_path.glob("**/*.part")) == []


def test_a_file_that_is_there_keeps_its_mode(tmp_path: Path, left: int) -> None:
    path = tmp_path / "policy.json"
    path.write_text("old")
    for mode_given in (0o640, 0o600, 0o666):
        path.chmod(mode_given)
        write_whole(path, "new")
        assert (path.read_text(), mode(path)) == ("new", mode_given)


NAMES = ("sample", "selector", "budget", "score", "correct")
values = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text())


@given(st.lists(values, min_size=len(NAMES), max_size=len(NAMES)), st.dictionaries(st.text(), values), st.data())
def test_a_line_of_ours_cut_at_any_byte_is_torn(
    first: list[object], more: dict[str, object], data: st.DataObject
) -> None:
    record = {**dict(zip(NAMES, first, strict=True)), **{f"+{name}": value for name, value in more.items()}}
    line = json.dumps(record, ensure_ascii=False).encode()
    assert is_torn(line[: data.draw(st.integers(0, len(line)))], NAMES)


@pytest.mark.parametrize(
    "tail",
    [
        b'{"one": "line"}', b"id,question\n1,2", b"notes", b"\x89PNG\r\n\x1a\n\x00\x00", b'[{"sample": "a"}]', b"{ ",
        b'{"sample": "a", "question": "Who?"}', b'{"sample": "a"}', b'{"sample": who', b'{"samples": 3', b"\xff\xfe",
        b'{"sample": "a", "selector": null, "budget": 5, "score": 1, "correct": true} and more',
    ],
)  # fmt: skip
def test_what_others_write_is_not_torn(tail: bytes) -> None:
    assert not is_torn(tail, NAMES)
