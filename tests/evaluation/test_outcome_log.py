"""The log survives a kill at any byte, and mixes up nothing."""

import json
import tracemalloc
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from tests.evaluation.oracle import Oracle
from tests.evaluation.runs import go

from stakes import BadInput
from stakes.data.sample import Sample
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


def test_a_confidence_is_logged_and_a_log_without_one_has_no_such_field(tmp_path: Path) -> None:
    path, sure = tmp_path / "log.jsonl", replace(TWO, confidence=0.31)
    with OutcomeLog(path) as log:
        log.append([ONE, sure])
    assert read_outcomes(path) == [ONE, sure]
    first, second = (json.loads(line) for line in path.read_bytes().splitlines())
    assert ("confidence" in first, second["confidence"]) == (False, 0.31)
    for bad in (float("nan"), float("inf"), "sure", True):
        path.write_text(json.dumps({**second, "confidence": bad}) + "\n")
        with pytest.raises(BadInput, match="line 1 of .*: confidence "):
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
        b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", b'{"sample": "q1", "answers": ["$5"]}', b"no newline", b"a\nb\n",
        b'{"sample": "q1"}\n{"sample": "q2"', b"\n\nno newline", b"\n \na\n", b"[" * 100_000 + b"\n",
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
        ({"score": 0.0}, "line 3 of .*: correct is true, but the score is 0.0; repair or delete the line"),
        ({"correct": False}, "line 3 of .*: correct is false, but the score is 1.0"),
        ({"budget": -304}, "line 3 of .*: budget is at least one visual token, not -304"),
        ({"budget": 0}, "line 3 of .*: budget is at least one visual token, not 0"),
        ({"native": -1}, "native is at least one"),
        ({"realised": -5}, "realised is at least one"),
        ({"schema": True}, "needs exactly sample, document"),
        ({"extra": 1}, "needs exactly sample, document"),
    ],
)
def test_a_line_that_is_no_outcome_is_refused(tmp_path: Path, change: dict[str, object], message: str) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(f"{json.dumps(asdict(ONE))}\n\n{json.dumps({**asdict(ONE), **change})}\n")  # a blank line counts
    with pytest.raises(BadInput, match=message):
        read_outcomes(path)


def test_blank_lines_are_skipped_and_the_log_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    line = json.dumps(asdict(ONE)).encode()
    for content, found in (
        (b"\n", []), (b"\n\n{", []), (b"\n  \r\n" + line + b"\n\n\n", [ONE]), (line + b"\n\n" + line[:40], [ONE]),
    ):  # fmt: skip
        path.write_bytes(content)
        assert read_outcomes(path) == found
        with OutcomeLog(path) as log:
            log.append([TWO])
        assert read_outcomes(path) == [*found, TWO]


@pytest.mark.parametrize("device", ["/dev/full", "/dev/zero", "/dev/null"])
def test_a_device_is_no_log_and_is_refused_at_once(device: str) -> None:
    with pytest.raises(BadInput, match=f"{device} is a device or a pipe, not a file"), OutcomeLog(device):
        pass
    with pytest.raises(BadInput, match=f"no outcome log {device}"):
        read_outcomes(device)


def test_a_run_into_a_device_ends_before_the_first_answer(samples: list[Sample]) -> None:
    model = Oracle()
    with pytest.raises(BadInput, match="/dev/full is a device or a pipe"):
        go(model, samples, Path("/dev/full"))
    assert model.batches == []


def test_outcomes_of_a_log_share_their_repeated_texts(tmp_path: Path) -> None:
    path, number = tmp_path / "log.jsonl", 20_000
    lines = (asdict(replace(ONE, sample=f"q{i // 5}", document=f"scans/page-{i // 10}.png")) for i in range(number))
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    tracemalloc.start()
    outcomes = read_outcomes(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert outcomes[0].run is outcomes[-1].run
    assert outcomes[0].document is outcomes[9].document
    assert peak < 600 * number  # 1,100 bytes a line if the file is read at once and no text is shared


def test_a_missing_log_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no outcome log"):
        read_outcomes(tmp_path / "none.jsonl")
