"""The log survives a kill at any byte, and mixes up nothing."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from stakes import BadInput
from stakes.evaluation.outcome_log import Outcome, OutcomeLog, read_outcomes

ONE = Outcome(
    "q1", "page1", "high", "resolution", None, 304, 972, 300, "$1,240", False, 1.0, True, "relaxed", 41.5, "r1"
)
TWO = replace(ONE, sample="q2", selector="random", prediction="naïve\u2028line", correct=False, score=0.0)


def test_what_is_appended_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "log.jsonl"
    with OutcomeLog(path) as log:
        log.append([ONE])
        log.append([TWO])
    with OutcomeLog(path) as log:
        log.append([ONE])
    assert read_outcomes(path) == [ONE, TWO, ONE]


def test_an_average_over_layers_is_logged_and_a_log_without_one_has_no_such_field(tmp_path: Path) -> None:
    path, averaged = tmp_path / "log.jsonl", replace(TWO, realised=45, layers=303.8)
    assert (ONE.spent, averaged.spent) == (300, 303.8)
    with OutcomeLog(path) as log:
        log.append([ONE, averaged])
    assert read_outcomes(path) == [ONE, averaged]
    first, second = (json.loads(line) for line in path.read_bytes().splitlines())
    assert ("layers" in first, second["layers"]) == (False, 303.8)
    path.write_text(json.dumps({**second, "layers": "many"}) + "\n")
    with pytest.raises(BadInput, match="layers cannot be 'many'"):
        read_outcomes(path)


def test_a_log_cut_at_any_byte_keeps_every_whole_line_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    with OutcomeLog(path) as log:
        log.append([ONE, TWO])
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    for cut in range(len(whole) + 1):
        path.write_bytes(whole[:cut])
        kept = [ONE, TWO][: (cut >= first) + (cut == len(whole))]
        assert read_outcomes(path) == kept
        with OutcomeLog(path) as log:
            log.append([TWO])
        assert read_outcomes(path) == [*kept, TWO]


@pytest.mark.parametrize(
    "content",
    [
        b'{"my": "precious one-line file"}', b"line one\nmy last line, never saved elsewhere", b"id,question\n1,Who?",
        b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", b'{"sample": "q1", "answers": ["$5"]}', b"no newline", b"\n", b"a\nb\n",
        b'{"sample": "q1"}\n{"sample": "q2"', b"\n\n{", b"[" * 100_000 + b"\n",
    ],
)  # fmt: skip
def test_a_file_that_is_no_log_is_refused_and_stays_as_it_was(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes"
    path.write_bytes(content)
    for _ in range(2):  # and the file is let go of
        with pytest.raises(BadInput, match=r"is not (JSON|an outcome)"), OutcomeLog(path):
            pass
    with pytest.raises(BadInput, match=r"is not (JSON|an outcome)"):
        read_outcomes(path)
    assert path.read_bytes() == content


def test_a_torn_tail_is_cut_whatever_it_is_once_a_whole_line_is_ours(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    line = json.dumps(asdict(ONE)).encode() + b"\n"
    for tail in (line[:-1], line[:30], b"\x00" * 512, b"\xff"):
        path.write_bytes(line + tail)
        with OutcomeLog(path) as log:
            log.append([TWO])
        assert read_outcomes(path) == [ONE, TWO]
    damaged = line + b"{half\n" + line[:30]
    path.write_bytes(damaged)
    with pytest.raises(BadInput, match="line 2 of"), OutcomeLog(path):
        pass
    assert path.read_bytes() == damaged


def test_a_damaged_line_in_the_middle_is_named(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    good = json.dumps(asdict(ONE))
    path.write_text("\n".join([good] * 16 + ["{half"] + [good]) + "\n")
    with pytest.raises(BadInput, match="line 17 of .*log.jsonl is not JSON"):
        read_outcomes(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"budget": "304"}, "budget cannot be '304'"),
        ({"correct": 1}, "correct cannot be 1"),
        ({"budget": True}, "budget cannot be True"),
        ({"score": 1.5}, "score must lie in"),
        ({"extra": 1}, "needs exactly sample, document"),
    ],
)
def test_a_line_that_is_no_outcome_is_refused(tmp_path: Path, change: dict[str, object], message: str) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(json.dumps({**asdict(ONE), **change}) + "\n")
    with pytest.raises(BadInput, match=message):
        read_outcomes(path)


def test_a_missing_log_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no outcome log"):
        read_outcomes(tmp_path / "none.jsonl")
