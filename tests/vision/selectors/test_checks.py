"""Inputs of selectors are checked: options of the wrong type and values that are not finite are refused by name."""

import time
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from stakes.errors import BadInput, LedgerBreach
from stakes.vision.selectors import SELECTORS, make
from stakes.vision.selectors.base import Scene, Selector, check_finite, input_extremes
from stakes.vision.selectors.fastv import FastV
from stakes.vision.selectors.redundancy import Redundancy
from stakes.vision.selectors.sparsevlm import SparseVLM
from stakes.vision.selectors.visionzip import VisionZip

BEFORE = [name for name in SELECTORS if isinstance(make(name), Selector)]


def scene(native: int = 24) -> Scene:
    torch.manual_seed(3)
    return Scene(torch.randn(native, 8), torch.randn(5, 8), "one", torch.rand(native), torch.randn(native, 4))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("visionzip:merge=no", "visionzip takes merge=True or merge=False, not 'no'"),
        ("visionzip:merge=0", "visionzip takes merge=True or merge=False, not 0"),
        ("visionzip:contextual=abc", "visionzip's contextual share is between 0 and 1, not 'abc'"),
        ("visionzip:contextual='0.2'", "visionzip's contextual share is between 0 and 1, not '0.2'"),
        ("visionzip:contextual=true", "visionzip's contextual share is between 0 and 1, not True"),
        ("visionzip:contextual=1e400", "visionzip's contextual share is between 0 and 1, not inf"),
        ("redundancy:seed=typo", "redundancy starts at seed='mean' or seed='nearest', not 'typo'"),
        ("redundancy:seed=[1]", r"redundancy starts at seed='mean' or seed='nearest', not \[1\]"),
        ("random:seed=abc", "random takes a whole number as its seed, such as seed=0, not 'abc'"),
        ("random:seed=1.5", "random takes a whole number as its seed, such as seed=0, not 1.5"),
        ("random:seed=false", "random takes a whole number as its seed, such as seed=0, not False"),
        ("fastv:layer=two", "fastv drops before a decoder layer from 1 on, such as layer=2, not 'two'"),
        ("fastv:layer=1.5", "fastv drops before a decoder layer from 1 on, such as layer=2, not 1.5"),
        ("fastv:layer=0", "fastv drops before a decoder layer from 1 on, such as layer=2, not 0"),
        ("fastv:layer=3,layer=4", "selector 'fastv' is given layer twice, in 'layer=3,layer=4'; give it once"),
        ("dart:layer=0", "dart drops before a decoder layer from 1 on, such as layer=2, not 0"),
        ("dart:image=0", "dart takes pivots such as image=4,text=4, not image=0,text=4"),
        ("vispruner:important=2", "vispruner's important share is between 0 and 1, not 2"),
        ("holov:strips=0", "holov cuts the page into a number of strips such as strips=16, not 0"),
        ("mmtok:page=no", "mmtok's weight of the page is a number from 0 on, such as page=0.5, not 'no'"),
        ("prumerge:merge=0", "prumerge takes merge=True or merge=False, not 0"),
        ("sparsevlm:merge=no", "sparsevlm takes merge=True or merge=False, not 'no'"),
    ],
)
def test_an_option_of_the_wrong_type_is_refused_in_one_sentence(spec: str, message: str) -> None:
    with pytest.raises(BadInput, match=f"^{message}$"):
        make(spec)


@pytest.mark.parametrize("word", ["false", "False", "FALSE"])
def test_false_is_false_however_it_is_written(word: str) -> None:
    assert make(f"visionzip:merge={word}") == VisionZip(merge=False)
    assert make(f"sparsevlm:merge={word}") == SparseVLM(merge=False)
    selector: Any = make(f"visionzip:merge={word}")
    assert not selector.merges
    assert selector.select(scene(), 12).merge is None


def test_valid_options_are_accepted() -> None:
    assert make("fastv:rows=mean,layer=3") == FastV(layer=3, rows="mean")
    assert make("redundancy:seed=nearest") == Redundancy(seed="nearest")
    assert make("visionzip:merge=true,contextual=1") == VisionZip(contextual=1)
    assert make("visionzip:contextual=0.25") == VisionZip(contextual=0.25)


@pytest.mark.parametrize("name", BEFORE)
@pytest.mark.parametrize("what", ["features", "question", "received", "keys"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_values_that_are_not_finite_are_not_ranked(name: str, what: str, value: float, dtype: torch.dtype) -> None:
    """With one NaN among the features, cdpruner would return the first tokens of the page."""
    selector: Any = make(name)
    page = scene()
    damaged = getattr(page, what).to(dtype)
    damaged.view(-1)[7] = value
    with pytest.raises(BadInput, match=f"selector '{name}' cannot rank tokens whose {what} are not all finite"):
        selector.select(replace(page, **{what: damaged}), 6)


@pytest.mark.parametrize("name", BEFORE)
def test_large_values_are_finite(name: str) -> None:
    selector: Any = make(name)
    page = scene()
    assert len(selector.select(replace(page, features=page.features * 1e30), 6).indices) == 6
    assert len(selector.select(replace(page, features=page.features.half() * 10_000), 6).indices) == 6


def test_the_check_costs_little_compared_with_the_ranking() -> None:
    page = Scene(torch.randn(1296, 896))
    checking, ranking = [], []
    for _ in range(5):
        started = time.perf_counter()
        check_finite(input_extremes([page]), "redundancy")
        checking.append(time.perf_counter() - started)
        started = time.perf_counter()
        Redundancy().rank(page, 1296)
        ranking.append(time.perf_counter() - started)
    assert min(checking) < 0.1 * min(ranking)  # 0.4 % with 3,584 features a token


def test_a_stored_ranking_is_not_checked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[int] = []

    def spy(scenes: Any) -> Any:
        checked.append(len(scenes))
        return input_extremes(scenes)

    monkeypatch.setattr("stakes.vision.selectors.base.input_extremes", spy)
    page, selector = scene(), Redundancy()
    for budget in (3, 5, 9):
        selector.select(page, budget)
    assert checked == [1]


@pytest.mark.parametrize("name", BEFORE)
@pytest.mark.parametrize("what", ["features", "question", "received", "keys"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_values_ranked_before_the_check_are_refused_too(name: str, what: str, value: float) -> None:
    """As on a GPU; a ranking of values that are not finite must not serve the next question."""
    selector: Any = make(name)
    page = scene()
    assert torch.equal(
        selector.select_unchecked(page, 6, input_extremes([page])).indices, selector.select(scene(), 6).indices
    )
    page.rankings.clear()
    getattr(page, what).view(-1)[7] = value
    for _ in range(2):
        with pytest.raises(BadInput, match=f"selector '{name}' cannot rank tokens whose {what} are not all finite"):
            selector.select_unchecked(page, 6, input_extremes([page]))
        assert page.rankings == {}


@dataclass(frozen=True)
class Twice(Selector):
    name: ClassVar[str] = "twice"

    def rank(self, scene: Scene, count: int) -> Tensor:
        return torch.zeros(count, dtype=torch.long)


def test_values_that_are_not_finite_are_reported_before_a_bad_choice() -> None:
    page = scene()
    with pytest.raises(LedgerBreach, match="not unique"):
        Twice().select_unchecked(page, 6, input_extremes([page]))
    page.rankings.clear()
    page.features[3, 3] = float("nan")
    with pytest.raises(BadInput, match="features are not all finite"):
        Twice().select_unchecked(page, 6, input_extremes([page]))


def test_rankings_made_ahead_are_checked_and_equal() -> None:
    pages, selector = [scene(24), scene(30), scene(17)], Redundancy()
    selector.rank_ahead(pages, [6, 30, 1])
    for page, count in zip(pages, [6, 30, 1], strict=True):
        assert torch.equal(page.rankings[selector], selector.rank(page, count))
    damaged = scene()
    damaged.features[5, 2] = float("nan")
    good = scene(30)
    with pytest.raises(BadInput, match="selector 'redundancy' cannot rank tokens whose features are not all finite"):
        selector.rank_ahead([good, damaged], [6, 6])
    assert good.rankings == damaged.rankings == {}


def test_a_ranking_that_is_too_short_is_computed_again() -> None:
    page, selector = scene(), Redundancy()
    selector.rank_ahead([page], [4])
    assert torch.equal(selector.select(page, 9).indices, selector.select(scene(), 9).indices)
    assert len(page.rankings[selector]) == 24
