"""The keyword rule matches whole words and phrases, and names the match."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stakes.errors import BadInput
from stakes.signals import KeywordRule, Reading
from stakes.signals.keywords import KEYWORDS

rule = KeywordRule()


def test_there_are_24_different_keywords() -> None:
    assert len(KEYWORDS) == len(set(KEYWORDS)) == 24


@pytest.mark.parametrize(
    ("question", "keyword"),
    [
        ("What is the TOTAL?", "total"),
        ("How  \n many pages?", "how many"),
        ("Who got 25% of it?", "%"),
        ("Is it No.5?", "no."),
        ("Sl.no. of the pump?", "no."),
        ("Which percentage?", "percentage"),
        ("(id)", "id"),
        ("the total amount", "total"),
        ("date/time", "date"),
        ("a value-based view", "value"),
    ],
)
def test_a_keyword_makes_it_high_and_is_named(question: str, keyword: str) -> None:
    assert rule(question) == Reading("high", 1.0, f'keyword "{keyword}"')


@pytest.mark.parametrize(
    "question",
    [
        "Who is provided?",
        "What is the idea?",
        "Which casino.com?",
        "Is there no one?",
        "Somehow many left",
        "What is updated?",
        "id_x and rate2",
        "how is much done?",
    ],
)
def test_a_piece_of_a_word_does_not_count(question: str) -> None:
    reading = rule(question)
    assert (reading.tier, reading.probability, reading.decided) == ("low", 1.0, True)
    assert reading.why == "none of the 24 keywords"


@pytest.mark.parametrize("question", ["", "  \n"])
def test_no_question_is_undecided_and_falls_to_the_most_expensive(question: str) -> None:
    assert KeywordRule(high="high_cost", low="cheap")(question) == Reading(
        "high_cost", 0.5, "undecided: the question is empty", decided=False
    )


def naive(question: str) -> bool:
    """The rule as the contract words it, one keyword at a time."""
    for word in KEYWORDS:
        body = r"\s+".join(map(re.escape, word.split()))
        body = {"%": body, "no.": r"(?<!\w)" + body}.get(word, rf"(?<!\w){body}(?!\w)")
        if re.search(body, question, re.IGNORECASE):
            return True
    return False


pieces = st.sampled_from(
    [*KEYWORDS, "how", "many", "no", "s", "1", " ", "  ", "\t", ".", "-", "_", "é", "what", "NO.", "ID"]
)


@given(st.lists(pieces, max_size=8).map("".join))
def test_one_pattern_equals_the_24_rules(question: str) -> None:
    if question.strip():
        assert (rule(question).tier == "high") is naive(question)


@given(st.lists(pieces, max_size=8).map("".join), st.sampled_from(KEYWORDS))
def test_a_keyword_standing_alone_is_always_found_in_any_case(text: str, keyword: str) -> None:
    assert rule(f"{text} {keyword.upper()} {text}").tier == "high"


def test_own_keywords_and_tier_names() -> None:
    own = KeywordRule(["Budget", "c++", "budget"], high="high_cost", low="cheap")
    assert own.keywords == ("budget", "c++")
    assert own("The BUDGET?").tier == "high_cost"
    assert own("Is c++11 used?").why == 'keyword "c++"'
    assert own("the total").tier == "cheap"


def test_unusable_rules_are_refused() -> None:
    for bad in ([], [" "], "total"):
        with pytest.raises(BadInput):
            KeywordRule(bad)
    with pytest.raises(BadInput, match="two different"):
        KeywordRule(high="x", low="x")
    with pytest.raises(BadInput, match="must be text"):
        rule(None)  # type: ignore[arg-type]


def test_the_real_docvqa_questions_give_the_known_shares(real_rows: Callable[[str], list[dict[str, Any]]]) -> None:
    rows = real_rows("questions/docvqa_val.jsonl")
    high = sum(rule(row["question"]).tier == "high" for row in rows) / len(rows)
    assert round(high, 3) == 0.406
    for row in real_rows("docvqa/questions.jsonl"):
        assert rule(row["question"]).tier == row["tier"]


@pytest.mark.parametrize(
    ("keywords", "question", "keyword"),
    [
        (["金額", "合計", "日付"], "請求書の合計金額はいくらですか？", "合計"),
        (["金额", "总计", "日期"], "发票日期是什么？", "日期"),
        (["ยอดรวม"], "ยอดรวมของใบแจ้งหนี้คือเท่าไร", "ยอดรวม"),
        (["금액"], "총 금액은 얼마입니까?", "금액"),
        (["total"], "請求書のtotalは?", "total"),
        (["n\u00famero"], "\u00bfCu\u00e1l es el nu\u0301mero?", "n\u00famero"),
        (["nu\u0301mero"], "\u00bfCu\u00e1l es el n\u00famero?", "n\u00famero"),
    ],
)
def test_keywords_are_found_where_words_have_no_spaces_and_in_any_unicode_form(
    keywords: list[str], question: str, keyword: str
) -> None:
    assert KeywordRule(keywords)(question) == Reading("high", 1.0, f'keyword "{keyword}"')


def test_a_word_of_a_spaced_script_is_still_whole() -> None:
    assert KeywordRule(["Summe"])("Zusammenfassung der Summen?").tier == "low"
    assert KeywordRule(["сумма"])("Какова суммарная стоимость?").tier == "low"
