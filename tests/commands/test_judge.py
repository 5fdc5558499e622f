"""A judge's labels from the command line: in place of one's own, against the rule, and never for new questions."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.commands.judge_server import KEY
from tests.commands.test_calibrate import RULES, place, stakes  # noqa: F401 (place is a fixture)

from stakes.budgets.policy import Policy
from stakes.cli import main
from stakes.commands.options.inputs import parse_judge, parse_served_signal, parse_signal
from stakes.errors import BadInput
from stakes.evaluation.outcome_log import read_outcomes

COSTS = {"high": 5.0, "low": 1.0}


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def samples(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.fixture
def swapped(place: Path, tmp_path: Path) -> Path:  # noqa: F811
    """A judge who says the opposite of every label, by id for one half and by question for the other."""
    said = []
    for one in [*samples(place / "cal.jsonl"), *samples(place / "test.jsonl")]:
        by = {"id": one["id"]} if one["tier"] == "high" else {"question": one["question"]}
        said.append({**by, "tier": "low" if one["tier"] == "high" else "high"})
    return write(tmp_path / "labels.jsonl", said)


def test_both_commands_take_a_judges_labels(place: Path, swapped: Path, tmp_path: Path) -> None:  # noqa: F811
    signal = ("--signal", f"judge:{swapped}")
    words = ("--model", place / "vlm", *RULES, *signal, "-o", tmp_path / "p.json", "--json")
    record = json.loads(stakes("calibrate", place / "cal.jsonl", *words).stdout)
    labels = {one["id"]: one["tier"] for one in samples(place / "cal.jsonl")}
    assert all(o.tier != labels[o.sample] for o in read_outcomes(tmp_path / "p.outcomes.jsonl"))
    assert (record["signal_agreement"], Policy.load(tmp_path / "p.json").signal["kind"]) == (0.0, "requests")
    rules = ("--policy", tmp_path / "p.json", "--model", place / "vlm", "--arms", "uniform")
    stakes("evaluate", place / "test.jsonl", *rules, *signal)
    labels = {one["id"]: one["tier"] for one in samples(place / "test.jsonl")}
    assert all(o.tier != labels[o.sample] for o in read_outcomes(tmp_path / "p.evaluation.jsonl"))


def test_a_sample_without_a_label_is_named(place: Path, tmp_path: Path) -> None:  # noqa: F811
    file = write(tmp_path / "few.jsonl", [{"id": "cal00", "tier": "high"}])
    words = ("--model", place / "vlm", *RULES, "--signal", f"judge:{file}", "-o", tmp_path / "p.json")
    with pytest.raises(BadInput, match="7 of 8 samples have no label in few.jsonl, the first 'cal01'"):
        stakes("calibrate", place / "cal.jsonl", *words)
    with pytest.raises(BadInput, match="a judge's labels belong to a samples file"):
        stakes("calibrate", "--pages", "shapes", *words)
    with pytest.raises(BadInput, match="has tier 'high'; the tiers are amount, date"):
        parse_judge(f"judge:{file}", {"amount": 20, "date": 3})
    with pytest.raises(BadInput, match="cannot read the labels file"):
        parse_judge("judge:nowhere.jsonl", COSTS)


def test_labels_do_not_serve_new_questions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(BadInput, match="requests are new; train a signal"):
        parse_served_signal("judge:labels.jsonl", COSTS)
    assert parse_signal("judge:labels.jsonl", COSTS) is None
    with pytest.raises(SystemExit) as left:
        main(["explain", "What is the total?", "--signal", "judge:labels.jsonl"])
    assert left.value.code == 2
    assert "train a signal on the labels" in capsys.readouterr().err


@pytest.fixture
def texts(tmp_path: Path) -> tuple[Path, Path]:
    """Questions without images, and a judge who calls zip codes high-cost, which the rule does not."""
    cues = {"total": "high", "date": "high", "zip": "high", "title": "low", "author": "low", "heading": "low"}
    lines = [
        (
            {"id": f"q{i}{cue}", "question": f"What is the {cue} of sheet {i}?", "answers": ["x"], "document": f"d{i}"},
            tier,
        )
        for i in range(12)
        for cue, tier in cues.items()
    ]
    file = write(tmp_path / "texts.jsonl", [line for line, _ in lines])
    return file, write(tmp_path / "labels.jsonl", [{"id": line["id"], "tier": tier} for line, tier in lines[:60]])


def reproduced(capsys: pytest.CaptureFixture[str], *words: object) -> Any:
    with pytest.raises(SystemExit) as left:
        main(["reproduce", "labels", *map(str, words), "--json"])
    out = capsys.readouterr()
    assert not left.value.code, out.err
    return json.loads(out.out)["tables"]["labels"]


def test_the_table_of_labels_holds_the_judge(
    texts: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, labels = texts
    words = ("--data", f"docvqa={file}", "--folder", tmp_path / "runs", "--model", "ocr")
    without = reproduced(capsys, *words)
    assert "the LLM judge was not asked: give its labels file or its address with --judge" in without["findings"]
    made = reproduced(capsys, *words, "--judge", labels)
    ours = {row[1]: row for row in made["rows"] if row[0] == "stakes"}
    judge = ours["LLM judge (labels labels.jsonl)"]
    n, agreement = judge[2:4]
    hh, ll, hl, lh = judge[6:]
    assert (n, hh, hl) == (40, 20, 0)
    assert 0 < lh == 20 - ll  # zip codes that the rule calls cheap
    assert agreement == pytest.approx((hh + ll) / n)
    learnt = ours["learned signal on the judge's labels"]
    assert (learnt[2], learnt[3] > agreement) == (40, True)
    assert not any("was not asked" in line for line in made["findings"])
    assert any(line.startswith("judge: 0 of 40 undecided; disagreements: ") for line in made["findings"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("labels", "--judge", "http://127.0.0.1:9/v1"), "name the model that judges there with --judge-model"),
        (("labels", "--judge-model", "m"), "--judge-model m needs the address where the judge is served"),
        (("labels", "--judge-key-env", "K"), "--judge-key-env K needs the address where the judge is served"),
        (("labels", "--judge", "labels.jsonl", "--judge-model", "m"), "labels.jsonl is a labels file; leave it out"),
        (
            ("labels", "--judge", "http://127.0.0.1:9/v1", "--judge-model", "m", "--judge-key-env", "NO_SUCH_KEY"),
            "the environment variable 'NO_SUCH_KEY' that should hold the API key is not set",
        ),
        (("within-task", "--judge", "labels.jsonl"), "--judge is for the table labels"),
        (("within-task", "--signal", "judge:labels.jsonl"), "measured by tier or keywords"),
    ],
)
def test_a_judge_that_cannot_be_is_one_sentence(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main(["reproduce", *words])
    assert left.value.code == 2
    assert said in capsys.readouterr().err


@pytest.fixture
def judge() -> Iterator[str]:
    """The address of a judge in a process of its own."""
    command = [sys.executable, "-m", "tests.commands.judge_server"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]) as running:
        try:
            assert running.stdout is not None
            yield running.stdout.readline().strip()
        finally:
            running.kill()


def test_a_served_judge_is_asked_once_about_each_question(
    judge: str, texts: tuple[Path, Path], tmp_path: Path, capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    words = [
        "reproduce",
        "labels",
        "--data",
        f"docvqa={texts[0]}",
        "--folder",
        str(tmp_path / "runs"),
        "--model",
        "ocr",
    ]
    words += ["--judge", f"{judge}/v1", "--judge-model", "m", "--json"]
    with pytest.raises(SystemExit) as left:
        main(words)
    assert left.value.code == 2
    assert "refused the request (HTTP 401)" in capfd.readouterr().err
    monkeypatch.setenv("JUDGE_KEY", KEY)
    for once in (True, False):
        with pytest.raises(SystemExit) as left:
            main([*words, "--judge-key-env", "JUDGE_KEY"])
        out = capfd.readouterr()
        assert not left.value.code, out.err
        assert f"m judges questions at {judge}/v1; its verdicts are kept in" in out.err
        made = json.loads(out.out)["tables"]["labels"]
        assert made["command"].endswith("--data docvqa --judge http://HOST/v1 --judge-model m")
        ours = {row[1]: row for row in made["rows"] if row[0] == "stakes"}
        n, agreement, _, _, hh, ll, hl, lh = ours["LLM judge (m)"][2:]
        undecided = 48 - n
        assert 0 < undecided < 24
        assert (hh, hl, ll + lh) == (24, 0, n - 24)
        assert agreement == pytest.approx((hh + ll) / n)
        assert ours["learned signal on the judge's labels"][2] == n
        assert any(line.startswith(f"judge: {undecided} of 48 undecided") for line in made["findings"])
        asked = Counter(httpx.get(f"{judge}/asked", trust_env=False).json())
        assert {"author" in question: count for question, count in asked.items()} == {
            False: 1,
            True: 3 if once else 6,  # asked three times before it is undecided, which is not kept
        }


def test_a_served_judges_verdicts_are_labels_for_a_calibration(
    judge: str,
    place: Path,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("JUDGE_KEY", KEY)
    words = ["--data", f"docvqa={place / 'cal.jsonl'}", "--model", "ocr", "--folder", str(tmp_path)]
    words += ["--judge", f"{judge}/v1", "--judge-model", "m", "--judge-key-env", "JUDGE_KEY"]
    with pytest.raises(SystemExit) as left:
        main(["reproduce", "labels", *words])
    assert not left.value.code
    signal = ("--signal", f"judge:{tmp_path / 'judge.jsonl'}")
    stakes("calibrate", place / "cal.jsonl", "--model", place / "vlm", *RULES, *signal, "-o", tmp_path / "p.json")
    assert {o.tier for o in read_outcomes(tmp_path / "p.outcomes.jsonl")} == {"high", "low"}
    with pytest.raises(BadInput, match="is an address, .* give judge:DIR/judge.jsonl"):
        parse_judge(f"judge:{judge}/v1", COSTS)
