"""What a request may say to the plugin, and what is refused; none of it needs vLLM."""

import logging
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

import stakes.vllm
from stakes.errors import StakesError
from stakes.vision.selectors import IMAGE_ONLY, SELECTORS, make
from stakes.vision.selectors.base import Selector
from stakes.vllm.budgets import Deletion, only, read_deletions, selector_of, unpacked, without_deletions


def test_a_number_holds_for_every_image_and_a_list_for_each() -> None:
    assert read_deletions({"stakes_budget": 32}, 2) == [Deletion(32), Deletion(32)]
    found = read_deletions({"stakes_budget": [32, None, 7], "stakes_selector": "saliency", "size": 3}, 3)
    assert found == [Deletion(32, "saliency"), None, Deletion(7, "saliency")]
    assert read_deletions({"size": 3}, 2) == [None, None]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"stakes_budget": 0}, "at least 1"),
        ({"stakes_budget": 3.5}, "whole number"),
        ({"stakes_budget": True}, "whole number"),
        ({"stakes_budget": "304"}, "whole number"),
        ({"stakes_budget": [1]}, "1 entries and the request 2 images"),
        ({"stakes_selector": "random"}, "without a stakes_budget"),
        ({"stakes_budgets": 3}, "no stakes_budgets; there are"),
        ({"stakes_budget": 3, "stakes_selector": "fastv"}, "there are redundancy, divprune, random, saliency"),
        ({"stakes_budget": 3, "stakes_selector": "cdpruner"}, "needs the question"),
        ({"stakes_budget": 3, "stakes_selector": "os:system"}, "cannot name code"),
        ({"stakes_budget": 3, "stakes_selector": "nope"}, "no selector is called 'nope'"),
        ({"stakes_budget": 3, "stakes_selector": 7}, "are text"),
    ],
)
def test_what_cannot_be_done_is_refused_in_words(options: dict[str, Any], says: str) -> None:
    with pytest.raises(StakesError, match=says):
        read_deletions(options, 2)


def test_budget_selector_and_sample_are_part_of_the_key() -> None:
    others = [Deletion(33), Deletion(32, "saliency"), Deletion(32, "random", "a"), Deletion(32, "random", "b")]
    keys = {one.key("image") for one in [Deletion(32), *others]} | {Deletion(32).key("other"), "image"}
    assert len(keys) == 7


def test_a_list_stays_aligned_when_some_images_are_cached() -> None:
    options = {"stakes_budget": [1, None, 3, 4], "stakes_selector": "random", "size": 5}
    assert only(options, [1, 3]) == {**options, "stakes_budget": [None, 4]}
    assert only({"stakes_budget": 9}, [1]) == {"stakes_budget": 9}
    assert without_deletions(options) == {"size": 5}


def test_selector_and_sample_reach_the_worker_unchanged() -> None:
    one = Deletion(5, "random:seed=3", "invoice ä")
    assert unpacked(5, one.packed()) == one
    assert unpacked(0, b"") is None


def test_exactly_the_selectors_that_look_at_features_alone_are_offered() -> None:
    shipped = {name: make(name) for name in SELECTORS}
    by_features = {
        name
        for name, one in shipped.items()
        if isinstance(one, Selector) and not one.needs_encoder_attention and (one.per_image or name == "random")
    }
    assert by_features == set(IMAGE_ONLY)
    assert selector_of("redundancy:seed=nearest") == make("redundancy:seed=nearest")


def test_dropping_before_the_encoder_is_refused_by_name() -> None:
    with pytest.raises(StakesError, match=r"blank\+redundancy drops tokens before the encoder.*name redundancy alone"):
        selector_of("blank+redundancy")


def test_the_project_declares_the_plugin_and_the_versions_that_it_was_tested_with() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["entry-points"]["vllm.general_plugins"] == {"stakes": "stakes.vllm:register"}
    least, most = stakes.vllm.TESTED[0], stakes.vllm.TESTED[-1]
    after = f"{most.partition('.')[0]}.{int(most.rpartition('.')[2]) + 1}"
    assert project["optional-dependencies"]["vllm"] == [f"vllm>={least},<{after}"]


def test_an_untested_vllm_is_left_alone_and_the_log_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(metadata, "version", lambda name: "0.99.1")
    monkeypatch.setattr(stakes.vllm, "version", lambda name: "0.99.1")
    monkeypatch.setitem(sys.modules, "vllm", None)  # an import would fail
    with caplog.at_level(logging.ERROR, "vllm.stakes"):
        stakes.vllm.register()
    assert "deletes no visual tokens in vLLM 0.99.1" in caplog.text


def test_docs_list_the_tested_versions_and_the_families() -> None:
    page = (Path(__file__).parents[2] / "docs" / "vllm.md").read_text("utf-8")
    for version in stakes.vllm.TESTED:
        assert f"| {version}.x |" in page
    for name in (*stakes.vllm.DELETES, *stakes.vllm.NUMBERED):
        assert f"`{name}`" in page
