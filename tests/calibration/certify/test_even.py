"""A certificate is refused where few documents hold many questions, and the refusal names them and a limit."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stakes.calibration.by_document import ByDocument, limit_questions
from stakes.calibration.certify.ceiling import MOST_UNEVEN, UnevenDocuments, check_even, unevenness
from stakes.calibration.certify.certificate import Certification, certify
from stakes.errors import BadInput

COSTS = {"high": 5.0, "low": 1.0}


def sized(sizes: list[int], low: list[int] | None = None) -> ByDocument:
    """Documents with so many questions of tier high, and so many of tier low."""
    columns = {"high": sizes, "low": low or [0] * len(sizes)}
    asked = {tier: np.repeat(np.array(column)[:, None], 3, axis=1) for tier, column in columns.items()}
    wrong = {tier: table // 3 for tier, table in asked.items()}
    return ByDocument(tuple(f"d{i:03}" for i in range(len(sizes))), (32, 304, 576), wrong, asked)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=60), st.integers(1, 9))
def test_unevenness_is_one_for_equal_sizes_and_does_not_depend_on_the_scale(sizes: list[int], times: int) -> None:
    assert unevenness([sizes[0]] * len(sizes)) == pytest.approx(1)
    assert unevenness(sizes) >= 1 - 1e-12
    assert unevenness([times * size for size in sizes]) == pytest.approx(unevenness(sizes))


def test_a_few_large_documents_are_named_with_a_limit_that_is_enough() -> None:
    measured = sized([1] * 69 + [8] * 6)
    with pytest.raises(UnevenDocuments) as raised:
        check_even(measured)
    text = str(raised.value)
    assert "6 of 75 documents hold 41% of the questions: d069 (8), d070 (8), d071 (8) and 3 more" in text
    limit = int(text.split("--max-per-document ")[1].split(",")[0])
    check_even(sized([min(size, limit) for size in [1] * 69 + [8] * 6]), limit)
    assert unevenness([1] * 69 + [limit + 1] * 6) > MOST_UNEVEN, "and one more would not be"


@given(st.lists(st.integers(1, 60), min_size=2, max_size=80))
def test_every_refusal_names_a_limit_that_is_accepted(sizes: list[int]) -> None:
    try:
        check_even(sized(sizes))
    except UnevenDocuments as refused:
        limit = int(str(refused).split("--max-per-document ")[1].split(",")[0])
        check_even(sized([min(size, limit) for size in sizes]), limit)


def test_a_tier_that_few_documents_hold_is_refused_though_all_are_of_one_size() -> None:
    check_even(sized([4] * 50, [4] * 50))
    with pytest.raises(UnevenDocuments):
        check_even(sized([1] * 47 + [20] * 3, [20] * 47 + [1] * 3))


def test_no_certificate_is_issued_for_uneven_documents() -> None:
    measured = sized([1] * 69 + [8] * 6, [1] * 75)
    with pytest.raises(UnevenDocuments, match="no certificate is issued"):
        certify(measured, COSTS, 304)
    with pytest.raises(BadInput, match="a document has 9 questions, and at most 4 may count"):
        certify(measured, COSTS, 304, Certification(max_per_document=4))
    capped = sized([1] * 69 + [2] * 6, [1] * 75)
    found = certify(capped, COSTS, 304, Certification(max_per_document=3))
    assert found.record()["rate"] == "all rates count at most 3 questions of a document"


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 9)), unique_by=lambda pair: pair[0]), st.integers(1, 5))
def test_at_most_so_many_questions_of_a_document_count_whatever_their_order(
    pairs: list[tuple[int, int]], limit: int
) -> None:
    questions = [(f"q{sample}", f"d{document}") for sample, document in pairs]
    kept = limit_questions(questions, limit)
    assert kept == limit_questions(questions[::-1], limit)
    for document in {document for _, document in questions}:
        own = {sample for sample, of in questions if of == document}
        assert len(own & kept) == min(limit, len(own))
