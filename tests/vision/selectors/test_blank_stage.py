"""``blank+`` before a selector: how it is written, and where it is refused."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
import torch
from torch import Tensor

from stakes.errors import BadInput
from stakes.evaluation.fingerprint import Setting
from stakes.vision.selectors import SELECTORS, TOLERANCE, blank_stage, make, plugin_identity, split
from stakes.vision.selectors.base import Scene, Selector
from stakes.vision.selectors.redundancy import Redundancy


@dataclass(frozen=True)
class Backwards(Selector):
    """The last tokens, made by an ``__init__`` of its own."""

    name: ClassVar[str] = "backwards"

    def __init__(self, first: int = 0) -> None:
        object.__setattr__(self, "first", first)

    def rank(self, scene: Scene, count: int) -> Tensor:
        return torch.arange(len(scene.features)).flip(0)[:count]


@pytest.mark.parametrize("name", [name for name in SELECTORS if isinstance(make(name), Selector)])
def test_every_selector_before_the_language_model_takes_it(name: str) -> None:
    selector, plain = make(f"blank+{name}"), make(name)
    assert isinstance(selector, Selector)
    assert isinstance(plain, Selector)
    assert (selector.blank, plain.blank) == (TOLERANCE, None)
    assert selector != plain
    assert replace(selector, blank=None) == plain


def test_options_of_both_are_read() -> None:
    selector = make("blank:tolerance=4+redundancy:seed=nearest")
    assert selector == replace(Redundancy(seed="nearest"), blank=4)
    assert blank_stage("blank+acme.edges:Edges:power=1e+3") == (TOLERANCE, "acme.edges:Edges:power=1e+3")
    assert blank_stage("redundancy:seed=a+b") == (None, "redundancy:seed=a+b")


def test_a_class_of_another_package_takes_it() -> None:
    spec = f"blank+{__name__}:Backwards"
    selector = make(spec)
    assert isinstance(selector, Selector)
    assert selector.blank == TOLERANCE
    assert split(spec) == (f"{__name__}:Backwards", "")
    assert plugin_identity(spec) == plugin_identity(f"{__name__}:Backwards") != {}


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("blank", "as in blank.redundancy"),
        ("blank:tolerance=4", "as in blank.redundancy"),
        ("blank+", "as in blank.redundancy"),
        ("blank+nothing", "no selector is called 'nothing'"),
        ("blank:tolerance=-1+redundancy", "from 0 to 255"),
        ("blank:tolerance=300+redundancy", "from 0 to 255"),
        ("blank:level=3+redundancy", "from 0 to 255"),
        ("blank+pyramiddrop", "'pyramiddrop' drops inside the language model"),
        ("blank+blank+redundancy", "as in"),
        ("redundancy:blank=4", "has no option 'blank=4'"),
    ],
)
def test_what_makes_no_sense_is_refused_where_it_is_written(spec: str, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        make(spec)
    with pytest.raises(BadInput, match=words):
        Setting("deletion", spec)


def test_a_setting_names_it_in_full() -> None:
    assert Setting("deletion", "blank:tolerance=4+random").selector == "blank:tolerance=4+random"
