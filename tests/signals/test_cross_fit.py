"""A signal is measured on documents and texts that it has not seen, and where none can be held out, it is not."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from stakes.errors import BadInput
from stakes.signals import LearnedSignal, from_dict, to_dict
from stakes.signals.crossval import HeldOutSignal, cross_fit
from stakes.signals.training import encode, split, text_key

FOUR = {
    "What is the total amount?": "total", "What is the date?": "date",
    "What is the name of the company?": "company", "What is the address?": "address",
}  # fmt: skip


def rows(documents: int, words: int = 40, seed: int = 0) -> list[tuple[str, str, str]]:
    """Questions on documents, each with its label; the thing asked for decides, the rest is chance."""
    rng = random.Random(seed)
    made = []
    for document in range(documents):
        for _ in range(4):
            tier, what = rng.choice([("high", "total"), ("high", "date"), ("low", "title"), ("low", "author")])
            made.append((f"What {what} is given for w{rng.randrange(words)}?", tier, f"d{document}"))
    return made


def columns(made: list[tuple[str, str, str]]) -> tuple[list[str], list[str], list[str]]:
    questions, tiers, documents = zip(*made, strict=True)
    return list(questions), list(tiers), list(documents)


def test_four_questions_on_thirty_documents_give_no_figure() -> None:
    made = [(text, tier, f"d{i}") for i in range(30) for text, tier in FOUR.items()]
    with pytest.raises(BadInput, match="too few distinct questions .* the 120 questions have 4 texts"):
        cross_fit(*columns(made), most_expensive="total")


def test_case_spacing_and_punctuation_do_not_make_another_text() -> None:
    made = [
        (text.upper() if i % 2 else f" {text.replace('?', ' ?!')}", tier, f"d{i}")
        for i in range(30)
        for text, tier in FOUR.items()
    ]
    with pytest.raises(BadInput, match="have 4 texts"):
        cross_fit(*columns(made), most_expensive="total")


def test_no_fold_fits_on_a_document_or_a_text_that_it_tests() -> None:
    questions, tiers, documents = columns(rows(40))
    _, labels = encode(questions, tiers, documents)
    texts = list(map(text_key, questions))
    assert len(set(texts)) < len(texts), "some texts recur"
    tested: list[int] = []
    for fitting, testing in split(labels, documents, 5, 0, texts):
        assert not {documents[i] for i in fitting} & {documents[i] for i in testing}
        assert not {texts[i] for i in fitting} & {texts[i] for i in testing}
        assert 2 * len(fitting) >= len(labels) - len(testing)
        tested += testing.tolist()
    assert sorted(tested) == list(range(len(labels)))


def test_labels_that_are_chance_are_not_read_out_of_fold_but_are_on_their_own_training_set() -> None:
    rng = random.Random(3)
    made = [(f"Read the {i:03d}{rng.randrange(900)} kr{rng.randrange(900)} entry", rng.choice(["high", "low"]), f"d{i}")
            for i in range(120)]  # fmt: skip
    questions, tiers, documents = columns(made)
    fitted = cross_fit(questions, tiers, documents, most_expensive="high")
    assert abs(fitted.confusion.kappa) < 0.25
    again = from_dict(to_dict(fitted.signal))  # as a policy stores it: trained on everything
    assert type(again) is LearnedSignal
    held = [fitted.signal(question).tier for question in questions]
    assert held == [reading.tier for reading in fitted.readings], "every text is on one document"


def test_words_that_decide_are_read_out_of_fold_and_other_texts_by_the_whole_signal() -> None:
    questions, tiers, documents = columns(rows(60))
    fitted = cross_fit(questions, tiers, documents, costs={"high": 5, "low": 1})
    assert fitted.confusion.agreement > 0.97
    assert set(fitted.right_by_tier) == {"high", "low"}
    whole = LearnedSignal(costs={"high": 5, "low": 1}).fit(questions, tiers, documents)
    assert isinstance(fitted.signal, HeldOutSignal)
    assert to_dict(fitted.signal) == to_dict(whole)
    assert fitted.signal("What total is given here?") == whole("What total is given here?")
    assert fitted.signal.model_for(questions[0]) is not fitted.signal.model
    assert fitted.signal.model_for(questions[0].upper()) is fitted.signal.model_for(questions[0])


def test_on_the_real_questions_recurring_texts_are_held_out_too(
    real_rows: Callable[[str], list[dict[str, Any]]],
) -> None:
    made = real_rows("docvqa/questions.jsonl")
    questions, tiers, documents = ([row[key] for row in made] for key in ("question", "tier", "document"))
    fitted = cross_fit(questions, tiers, documents, most_expensive="high")
    assert 0.9 < fitted.confusion.agreement < 0.97
    assert fitted.undecided < 0.02
