import numpy as np
import pytest
from numpy.typing import NDArray

from stakes.errors import BadInput
from stakes.evaluation.slopes import slope_test
from stakes.experiments.table import format_slopes

GRID = [32, 64, 128, 256, 512]


def answers(
    rng: np.random.Generator, slope: float, offset: float, documents: int, each: int, shared: float
) -> tuple[NDArray[np.bool_], list[int]]:
    """Logistic in log2 budget; ``shared``: how strongly a document moves all of its questions together."""
    page = np.repeat(np.arange(documents), each)
    lift = offset + shared * np.random.default_rng(7).normal(size=documents)[page]
    dose = np.log2(GRID) - np.log2(GRID).mean()
    odds = lift[:, None] + slope * dose[None, :]
    return rng.random(odds.shape) < 1 / (1 + np.exp(-odds)), list(page)


def called_different(
    times: int, slope: float, offsets: tuple[float, float], documents: int, each: int, shared: float
) -> dict[str, int]:
    """How often each test calls two tiers of one slope different at 5 %."""
    called = {"p": 0, "permutation_p": 0, "parallel_p": 0}
    for seed in range(times):
        rng = np.random.default_rng(seed)
        (first, pages), (second, same) = (answers(rng, slope, offset, documents, each, shared) for offset in offsets)
        found = slope_test({"a": first, "b": second}, {"a": pages, "b": same}, GRID, resamples=99)
        for name in called:
            called[name] += getattr(found, name) <= 0.05
    return called


def test_a_difference_in_slope_is_found_with_its_size() -> None:
    rng = np.random.default_rng(0)
    (steep, pages), (flat, same) = answers(rng, 1.6, 0, 60, 4, 0.0), answers(rng, 0.6, 0, 60, 4, 0.0)
    found = slope_test({"high": steep, "low": flat}, {"high": pages, "low": same}, GRID)
    assert found.low < 1.0 < found.high
    assert found.difference == pytest.approx(found.slopes["high"] - found.slopes["low"])
    assert found.p < 1e-6
    assert found.permutation_p < 0.01
    assert found.parallel_p < 0.01
    assert (found.documents, found.shared) == (60, 60)


def test_an_offset_alone_is_no_difference_in_slope() -> None:
    rng = np.random.default_rng(1)
    (easy, pages), (hard, same) = answers(rng, 0.8, 0.4, 60, 4, 0.0), answers(rng, 0.8, -0.4, 60, 4, 0.0)
    found = slope_test({"high": easy, "low": hard}, {"high": pages, "low": same}, GRID)
    assert found.low < 0 < found.high
    assert found.permutation_p > 0.05


def test_an_easier_tier_is_not_called_a_steeper_one() -> None:
    """Equal slopes, one tier two log-odds easier: flatter on the scale of probabilities, but not in log-odds."""
    called = called_different(40, 1.2, (2.0, 0.0), 60, 3, 0.5)
    assert max(called["p"], called["permutation_p"]) <= 6, called


def test_an_easier_tier_is_not_parallel_although_its_slope_is_the_same() -> None:
    rng = np.random.default_rng(2)
    (easy, pages), (hard, same) = answers(rng, 2.0, 2.0, 80, 4, 0.0), answers(rng, 2.0, -1.0, 80, 4, 0.0)
    found = slope_test({"high": easy, "low": hard}, {"high": pages, "low": same}, GRID)
    assert found.low < 0 < found.high
    assert found.parallel_p < 0.01


def test_all_tests_are_honest_when_pages_share_their_fate() -> None:
    """Equal slopes: about one in twenty is called different at 5 %, however strongly questions on a page agree."""
    called = called_different(60, 0.8, (0.0, 0.0), 40, 2, 1.5)
    assert max(called.values()) <= 8, called


def test_copies_of_a_page_are_no_further_evidence() -> None:
    rng = np.random.default_rng(3)
    (first, pages), (second, same) = answers(rng, 1.2, 0, 30, 2, 0.5), answers(rng, 0.8, 0, 30, 2, 0.5)
    once = slope_test({"a": first, "b": second}, {"a": pages, "b": same}, GRID, resamples=9)
    fourfold = slope_test(
        {"a": np.repeat(first, 4, axis=0), "b": np.repeat(second, 4, axis=0)},
        {"a": np.repeat(pages, 4).tolist(), "b": np.repeat(same, 4).tolist()},
        GRID,
        resamples=9,
    )
    assert fourfold.p == pytest.approx(once.p, rel=1e-6)
    assert fourfold.difference == pytest.approx(once.difference, rel=1e-6)


def test_labels_move_within_documents_only() -> None:
    """Every document holds one tier: nothing can be shuffled, so the permutation cannot call anything different."""
    rng = np.random.default_rng(4)
    (steep, pages), (flat, _) = answers(rng, 2.0, 0, 20, 3, 0.0), answers(rng, 0.1, 0, 20, 3, 0.0)
    found = slope_test({"a": steep, "b": flat}, {"a": pages, "b": [page + 100 for page in pages]}, GRID, resamples=50)
    assert found.shared == 0
    assert (found.permutation_p, found.parallel_p) == (1.0, 1.0)
    assert found.p < 0.01


@pytest.mark.parametrize(
    ("correct", "documents", "grid", "message"),
    [
        ({"a": [[1, 0]]}, {"a": [1]}, [1, 2], "two tiers"),
        ({"a": [[1, 0]], "b": [[1, 0, 1]]}, {"a": [1], "b": [2]}, [1, 2], "'b' needs samples"),
        ({"a": [[1, 0]], "b": [[0, 1]]}, {"a": [1], "b": []}, [1, 2], "0 documents"),
        ({"a": [[1, 1]], "b": [[0, 1]]}, {"a": [1], "b": [2]}, [1, 2], "every answer of tier 'a' is right"),
        ({"a": [[1, 0]], "b": [[0, 1]]}, {"a": [1], "b": [1]}, [1, 2], "on one document"),
        ({"a": [[1, 0]], "b": [[0, 1]]}, {"a": [1], "b": [2]}, [2, 2], "two different budgets"),
        (
            {"a": [[0, 1]] * 3, "b": [[0, 1]] * 3},
            {"a": [1, 2, 3], "b": [1, 2, 3]},
            [1, 2],
            "separates right from wrong",
        ),
    ],
)
def test_what_cannot_be_tested_is_an_error(correct, documents, grid, message) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(BadInput, match=message):
        slope_test(correct, documents, grid)


def test_where_no_document_has_both_tiers_nothing_is_permuted_and_the_text_names_it() -> None:
    rng = np.random.default_rng(0)
    (steep, pages), (flat, same) = answers(rng, 1.6, 0, 60, 1, 0.0), answers(rng, 0.6, 0, 60, 1, 0.0)
    separate = slope_test({"high": steep, "low": flat}, {"high": pages, "low": [60 + page for page in same]}, GRID)
    assert separate.shared == 0
    assert format_slopes(separate).endswith(
        "no document has questions of both tiers, so that nothing can be permuted within them"
    )
    together = slope_test({"high": steep, "low": flat}, {"high": pages, "low": same}, GRID)
    assert "permuted within documents p = " in format_slopes(together)
