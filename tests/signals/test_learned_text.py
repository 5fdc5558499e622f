"""A learned signal on typos, unfamiliar text and costs; a signal saved by version 0.1 reads the same."""

import json
import random
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.machine import slowness

from stakes.errors import BadInput
from stakes.signals import LearnedSignal, Prompt
from stakes.signals.agreement import gold_check
from stakes.signals.linear import LIMIT, MARK, LinearModel, character_ngrams, features, known_share, words

FIXTURE = Path(__file__).parents[1] / "fixtures" / "v0.1" / "learned-signal.json"
HIGH = ["total amount", "due date", "invoice number", "telephone number"]
LOW = ["title", "author", "colour", "heading"]
PLACES = ["of the letter", "on this page", "at the top", "in the table", "of the company"]
GERMAN = [
    "Wie hoch ist der Gesamtbetrag?", "Wann ist die Rechnung fällig?", "Wer hat den Brief unterschrieben?",
    "Welche Farbe hat das Logo?", "Wie lautet die Rechnungsnummer?", "Was ist der Titel der Tabelle?",
    "Welche Dosis wurde verschrieben?", "Beschreibe das Bild.", "Wie heißt die Firma im Briefkopf?",
    "In welcher Stadt fand die Konferenz statt?",
]  # fmt: skip
CHINESE = ["总金额是多少？", "发票号码是什么？", "谁签署了这份文件？", "图表的标题是什么？", "描述这张图片。"]


def corpus() -> tuple[list[str], list[str]]:
    made = [(f"What is the {what} {place}?", tier) for tier, topics in (("high", HIGH), ("low", LOW))
            for what in topics for place in PLACES]  # fmt: skip
    return [question for question, _ in made], [tier for _, tier in made]


@pytest.fixture(scope="module")
def signal() -> LearnedSignal:
    return LearnedSignal().fit(*corpus())


def misspell(text: str, rng: random.Random) -> str:
    """Two letters swapped, dropped, doubled or replaced."""
    for _ in range(2):
        at = rng.choice([i for i, letter in enumerate(text[:-1]) if letter.isalpha()])
        change = rng.choice(
            [text[at + 1] + text[at], text[at + 1], text[at : at + 2] + text[at + 1], "e" + text[at + 1]]
        )
        text = text[:at] + change + text[at + 2 :]
    return text


def test_a_signal_saved_before_reads_the_same_to_the_last_bit() -> None:
    saved = json.loads(FIXTURE.read_text(encoding="utf-8"))
    old = LearnedSignal.from_dict(saved["signal"])
    assert not old.characters
    for expected in saved["readings"]:
        chance = expected.pop("high")
        question = expected.pop("question")
        assert asdict(old(question)) == expected
        assert old.predict_proba([question])[0]["high"] == chance
    assert old.to_dict()["schema"] == 1


def test_a_misspelled_word_still_counts(signal: LearnedSignal) -> None:
    by_words = LearnedSignal(characters=False).fit(*corpus())
    typo = "What is the telephnoe numbr at the top?"
    assert signal(typo).tier == "high"
    assert signal.predict_proba([typo])[0]["high"] > by_words.predict_proba([typo])[0]["high"] + 0.15


def test_weights_of_characters_are_shown_under_their_word(signal: LearnedSignal) -> None:
    why = signal("What is the telephone at the top?").why
    assert why.startswith('"telephone" +')
    assert MARK not in why


@given(st.text(max_size=60))
def test_reasons_add_up_to_the_score_and_every_character_ngram_has_a_word(text: str) -> None:
    model = _model()
    reasons = model.reasons(text, "high", "low", most=10_000)
    high, low = model.scores(text)
    start = model.intercepts[0] - model.intercepts[1]
    assert sum(weight for _, weight in reasons) == pytest.approx(model.slope * (high - low - start), abs=1e-9)
    grams = character_ngrams(text)
    assert grams == features(text)[1]
    assert all(owner in words(text) or len(owner) > 1 for owner in grams.values())
    assert all(gram[0] == MARK and len(gram) in (4, 5) for gram in grams)


def _model() -> LinearModel:
    terms = ("date", "title", "~dat", "~ate", "~titl")
    rows = ((1.0, -1.0, 0.5, 0.25, -2.0), (0.0,) * 5)
    return LinearModel(("high", "low"), terms, (1.0, 1.5, 2.0, 2.5, 3.0), rows, (0.25, 0.0), 2.0, (0.0, 0.1), ("date",),
                       characters=True, familiar=0.5)  # fmt: skip


def test_a_saved_signal_with_characters_and_costs_reads_the_same(tmp_path: Path) -> None:
    trained = LearnedSignal(costs={"high": 5, "low": 1}).fit(*corpus())
    trained.save(tmp_path / "signal.json")
    again = LearnedSignal.load(tmp_path / "signal.json")
    texts = [*corpus()[0], "Wie hoch?", "Which titel is it?", "telephnoe at the top"]
    assert [again(text) for text in texts] == [trained(text) for text in texts]
    assert (again.costs, again.most_expensive, again.to_dict()) == (trained.costs, "high", trained.to_dict())


@pytest.mark.parametrize("text", [*GERMAN, *CHINESE, "lorem ipsum dolor sit amet", "def main(): return 0"])
def test_text_unlike_the_training_questions_is_undecided(signal: LearnedSignal, text: str) -> None:
    reading = signal(text)
    assert (reading.tier, reading.decided) == ("high", False)
    assert "seen in training" in reading.why


def test_one_known_word_among_many_is_not_enough(signal: LearnedSignal) -> None:
    reading = signal("Le title se trouve à gauche du tableau")
    assert not reading.decided
    assert reading.why == "undecided: only 12% of the question's words were seen in training, less than 50%"
    assert signal("Which title on page 17 of 2024?").decided, "numbers are neither known nor unknown"


@given(st.lists(st.sampled_from(["total", "titel", "7", "date", "合計", "x1"]), max_size=8))
def test_the_share_of_known_words_is_a_share(chosen: list[str]) -> None:
    share = known_share(" ".join(chosen), {"total", "date", "合計"})
    counted = [word for word in words(" ".join(chosen)) if not word.isdigit()]
    assert 0 <= share <= 1
    assert share == (sum(word in {"total", "date", "合計"} for word in counted) / len(counted) if counted else 0)


def test_costs_send_doubtful_questions_up_and_leave_probabilities_alone() -> None:
    questions, tiers = corpus()
    tiers = ["high" if "heading" in text and i % 5 < 2 else tiers[i] for i, text in enumerate(questions)]
    plain = LearnedSignal().fit(questions, tiers)
    high, even = (LearnedSignal(costs={"high": cost, "low": 1}).fit(questions, tiers) for cost in (25, 1))
    assert plain.predict_proba(questions) == high.predict_proba(questions) == even.predict_proba(questions)
    for question in questions:
        chance = plain.predict_proba([question])[0]["high"]
        assert (even(question).tier == "high") == (chance >= 0.5)
        assert (high(question).tier == "high") == (5 * chance >= 1 - chance)
    doubtful = [text for text in questions if 1 / 6 < plain.predict_proba([text])[0]["high"] < 0.5]
    assert doubtful
    assert all("low is likelier" in high(text).why and high(text).decided for text in doubtful)


def test_costs_name_the_most_expensive_tier_and_cover_every_label() -> None:
    questions, tiers = corpus()
    named = ["gold" if tier == "high" else "tin" for tier in tiers]
    assert LearnedSignal(costs={"tin": 1, "gold": 9}).fit(questions, named)("").tier == "gold"
    with pytest.raises(BadInput, match="tier 'tin' has no cost"):
        LearnedSignal(costs={"gold": 9}).fit(questions, named)
    saved = LearnedSignal(costs={"tin": 1, "gold": 9}).fit(questions, named).to_dict()
    changes: list[tuple[dict[str, Any], str]] = [
        ({"costs": {"gold": 9}}, "'tin' has no cost"), ({"costs": {"gold": 9, "tin": -1}}, "above zero"),
        ({"costs": [9, 1]}, "object of tier to cost"), ({"familiar": 2}, "share of words"),
        ({"characters": "yes"}, "true or false"), ({"idf": [0.0] * len(saved["vocabulary"])}, "between 0.1 and 1000"),
    ]  # fmt: skip
    for change, message in changes:
        with pytest.raises(BadInput, match=message):
            LearnedSignal.from_dict({**saved, **change})


def test_a_prompt_is_read_by_its_text(signal: LearnedSignal) -> None:
    assert signal(Prompt("What is the due date?", system="Be brief.")) == signal("What is the due date?")
    assert signal.trained_on(Prompt("What is the title on this page?"))


def test_a_very_long_text_takes_milliseconds(signal: LearnedSignal) -> None:
    text = "What is the total amount of the letter? " * 5000
    start = time.perf_counter()
    assert signal(text).tier == "high"
    assert time.perf_counter() - start < 0.1 * slowness()  # about 10 ms here
    assert signal.predict_proba([text]) == signal.predict_proba([text[:LIMIT]])


def test_on_real_questions_characters_read_better_and_far_better_with_typos(
    real_rows: Callable[[str], list[dict[str, Any]]], tmp_path: Path
) -> None:
    """2,000 labels (is the gold answer quantitative?), tested on other texts. Words: 0.90 and 0.81 with typos."""
    rows = {" ".join(words(row["question"])): row for row in real_rows("questions/docvqa_val.jsonl")}
    rng = random.Random(0)
    kept = rng.sample(sorted(rows), len(rows))
    questions = [rows[key]["question"] for key in kept]
    labels = gold_check(rows[key]["answers"] for key in kept)
    learned = LearnedSignal().fit(questions[:2000], labels[:2000])
    by_words = LearnedSignal(characters=False).fit(questions[:2000], labels[:2000])
    tested = list(zip(questions[2000:], labels[2000:], strict=True))
    typos = [(misspell(text, rng), label) for text, label in tested]

    def right(signal: LearnedSignal, pairs: list[tuple[str, str]]) -> float:
        return sum(signal(text).tier == label for text, label in pairs) / len(pairs)

    assert right(learned, tested) > max(0.895, right(by_words, tested))
    assert right(learned, typos) > right(by_words, typos) + 0.03
    learned.save(tmp_path / "signal.json")
    assert (tmp_path / "signal.json").stat().st_size < 1_000_000
    assert sum(not learned(text).decided for text, _ in tested) < 0.01 * len(tested)
    assert not any(learned(text).decided for text in [*GERMAN, *CHINESE])
