"""A learned signal learns, calibrates, gives reasons, and is stored as JSON that is safe to load."""

import json
import pickle
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stakes.errors import BadInput
from stakes.signals import LearnedSignal, Signal
from stakes.signals.training import calibrate, encode, split, train

HIGH = ["total", "date", "invoice number", "phone"]
LOW = ["title", "author", "colour", "heading"]
PLACES = ["of the letter", "on this page", "at the top", "in the table", "of the company"]


def corpus(tiers: dict[str, list[str]]) -> tuple[list[str], list[str]]:
    made = [
        (f"What is the {what} {where}?", tier) for tier, topics in tiers.items() for what in topics for where in PLACES
    ]
    return [question for question, _ in made], [tier for _, tier in made]


@pytest.fixture(scope="module")
def signal() -> LearnedSignal:
    return LearnedSignal().fit(*corpus({"high": HIGH, "low": LOW}))


def test_it_learns_the_distinctive_words_and_names_them(signal: LearnedSignal) -> None:
    reading = signal("Which phone is on it?")
    assert reading.tier == "high"
    assert reading.decided
    assert 0.5 < reading.probability < 1
    assert reading.why.startswith('"phone" +')
    assert reading.why.endswith("for high over low")
    assert signal("Whose title?").tier == "low"


def test_it_is_called_like_every_signal(signal: LearnedSignal) -> None:
    any_signal: Signal = signal
    assert any_signal("the date", task="docvqa") == signal("the date")
    assert any_signal.tiers == ("high", "low")


@pytest.mark.parametrize(("question", "message"), [(" ", "empty"), ("Wie hoch?", "no word"), ("%", "no word")])
def test_what_it_cannot_read_is_undecided_and_most_expensive(
    signal: LearnedSignal, question: str, message: str
) -> None:
    reading = signal(question)
    assert (reading.tier, reading.decided, reading.probability) == ("high", False, 0.5)
    assert message in reading.why


def test_a_doubtful_reading_falls_to_the_most_expensive_with_that_tiers_probability() -> None:
    careful = LearnedSignal(undecided_below=0.99999).fit(*corpus({"high": HIGH, "low": LOW}))
    reading = careful("What is the title?")
    assert (reading.tier, reading.decided) == ("high", False)
    assert reading.probability == careful.predict_proba(["What is the title?"])[0]["high"] < 0.5
    assert "low is likeliest" in reading.why


def test_three_tiers_of_any_name() -> None:
    questions, tiers = corpus({"gold": HIGH, "silver": LOW, "tin": ["dog", "cat", "tree", "sky"]})
    with pytest.raises(BadInput, match="most_expensive"):
        LearnedSignal().fit(questions, tiers)
    three = LearnedSignal(most_expensive="silver").fit(questions, tiers)
    assert [three(text).tier for text in ("Which date?", "Which author?", "Which cat?")] == ["gold", "silver", "tin"]
    assert three("").tier == "silver"
    assert sum(three.predict_proba(["Which cat?"])[0].values()) == pytest.approx(1.0)


def test_saved_and_loaded_it_predicts_the_same_to_the_last_bit(signal: LearnedSignal, tmp_path: Path) -> None:
    path = tmp_path / "signal.json"
    signal.save(path)
    again = LearnedSignal.load(path)
    texts = [*corpus({"high": HIGH, "low": LOW})[0], "Which phone?", "x", "what what"]
    assert again.predict_proba(texts) == signal.predict_proba(texts)
    assert [again(text) for text in texts] == [signal(text) for text in texts]
    assert list(tmp_path.iterdir()) == [path]


def test_a_loaded_signal_reads_without_sklearn_scipy_or_numpy(signal: LearnedSignal, tmp_path: Path) -> None:
    signal.save(tmp_path / "signal.json")
    code = (
        "import sys; from stakes.signals import LearnedSignal; "
        f"assert LearnedSignal.load({str(tmp_path / 'signal.json')!r})('Which phone?').tier == 'high'; "
        "assert not {'sklearn', 'scipy', 'numpy', 'httpx', 'torch'} & set(sys.modules), 'heavy import'"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = "import sys, stakes.signals; assert not {'sklearn', 'scipy', 'numpy', 'httpx', 'torch'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


class Trap:
    def __reduce__(self) -> tuple[Any, ...]:
        return exec, ("raise SystemExit('a stranger ran code')",)


def test_an_unusable_file_is_refused_in_one_sentence(signal: LearnedSignal, tmp_path: Path) -> None:
    path = tmp_path / "signal.json"
    good = signal.to_dict()
    for content, message in [
        (pickle.dumps(Trap()), "JSON"),
        (b"[" * 100_000, "JSON|nested"),
        (b"[]", "kind"),
        (json.dumps({**good, "kind": "task"}).encode(), "kind"),
        (json.dumps({**good, "schema": 3}).encode(), "schema 3"),
        (json.dumps({**good, "schema": True}).encode(), "schema True"),
        (json.dumps({**good, "idf": [float("nan")]}).encode(), "NaN"),
        (json.dumps({**good, "undecided_below": 7}).encode(), "probability"),
        (json.dumps({**good, "most_expensive": None}).encode(), "most_expensive"),
        (json.dumps({**good, "vocabulary": []}).encode(), "idf"),
    ]:
        path.write_bytes(content)
        with pytest.raises(BadInput, match=message):
            LearnedSignal.load(path)
    with pytest.raises(BadInput, match="cannot read"):
        LearnedSignal.load(tmp_path / "absent.json")
    with pytest.raises(BadInput, match="cannot write"):
        signal.save(path / "signal.json")


def test_an_untrained_signal_and_bad_training_data_say_so() -> None:
    with pytest.raises(BadInput, match="not been trained"):
        LearnedSignal()("Who?")
    for questions, tiers, groups, message in [
        (["a"], [], None, "one tier"),
        (["a", "b"], ["high", "low"], ["g"], "1 groups"),
        (["a", "b"], ["high", "high"], None, "two tiers"),
        (["a", " "], ["high", "low"], None, "question 1"),
        (["a", "b", "c"], ["high", "low", "low"], None, "at least two questions"),
        (["a", "b"] * 3, ["high", "low"] * 3, ["g"] * 6, "two groups"),
        (["a", "b"] * 3, ["high", "low"] * 3, ["g", "h"] * 3, "leave groups out"),
    ]:
        with pytest.raises(BadInput, match=message):
            LearnedSignal().fit(questions, tiers, groups)
    with pytest.raises(BadInput, match="undecided_below"):
        LearnedSignal(undecided_below=1.5)
    with pytest.raises(BadInput, match="folds"):
        LearnedSignal(folds=1)


def test_training_twice_gives_the_same_model() -> None:
    data = corpus({"high": HIGH, "low": LOW})
    assert train(*data).model == train(*data).model


def test_grouped_folds_never_share_a_document() -> None:
    _, labels = encode(["a", "b"] * 20, ["high", "low"] * 20)
    groups = [f"page {i // 4}" for i in range(40)]
    for fitting, testing in split(labels, groups, 5, seed=3):
        assert not {groups[i] for i in fitting} & {groups[i] for i in testing}


def test_calibration_recovers_a_known_slope_and_offset() -> None:
    rng = np.random.default_rng(0)
    scores = np.column_stack([np.zeros(40_000), rng.normal(0, 3, 40_000)])
    labels = (rng.random(40_000) < 1 / (1 + np.exp(-(0.5 * scores[:, 1] - 1)))).astype(np.intp)
    slope, offsets = calibrate(scores, labels)
    assert slope == pytest.approx(0.5, abs=0.02)
    assert offsets[0] == 0.0
    assert offsets[1] == pytest.approx(-1.0, abs=0.05)


def test_calibration_of_separable_scores_stays_finite() -> None:
    scores = np.array([[0.0, -1.0]] * 20 + [[0.0, 1.0]] * 20)
    slope, offsets = calibrate(scores, np.repeat(np.array([0, 1], dtype=np.intp), 20))
    # the smoothed targets (n + 1) / (n + 2) are the probabilities that fit best
    assert slope == pytest.approx(np.log(21), abs=1e-3)
    assert offsets[1] == pytest.approx(0.0, abs=1e-3)


def test_a_reading_takes_far_less_than_a_millisecond(signal: LearnedSignal) -> None:
    text = "What is the total amount that is due on the invoice which was sent to the company in the letter?"
    best = min(_seconds(lambda: signal(text)) for _ in range(200))
    assert best < 500e-6  # about 50 here; what a request can bear, on a machine ten times as slow


def _seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
