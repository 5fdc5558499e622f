"""Selectors of other packages: what is wrong with one is reported in one sentence."""

import sys
from pathlib import Path

import pytest
import torch

from stakes import plugins
from stakes.errors import BadInput
from stakes.evaluation.fingerprint import Setting
from stakes.vision.selectors import from_file, make, plugin_identity
from stakes.vision.selectors.base import Scene

MODULE = """
from dataclasses import dataclass
from typing import ClassVar
from stakes.vision.selectors.base import Selector, top
from stakes.vision.selectors.redundancy import Redundancy

@dataclass(frozen=True)
class Last(Selector):
    name: ClassVar[str] = "last"
    step: int = 1

    def rank(self, scene, count):
        return top(self.step * scene.features.sum(-1), count)

class Heir(Redundancy):
    pass

class Nameless(Selector):
    pass

class Other:
    name = "other"
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "acme_last.py").write_text(MODULE)
    (tmp_path / "acme_broken.py").write_text("1 / 0\n")
    offer(tmp_path, "acme-last", "last = acme_last:Last")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("acme_last", "acme_broken"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


def offer(folder: Path, package: str, *lines: str) -> None:
    """A package that offers selectors under names."""
    info = folder / f"{package.replace('-', '_')}-2.1.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 2.1\n")
    (info / "entry_points.txt").write_text("\n".join(["[stakes.selectors]", *lines, ""]))
    plugins._installed.cache_clear()


@pytest.mark.parametrize("spec", ["last:step=-1", "acme_last:Last:step=-1"])
def test_a_plugin_takes_options_as_a_shipped_selector_does(spec: str) -> None:
    selector = make(spec)
    page = Scene(torch.arange(8.0)[:, None])
    assert selector.select(page, 3).indices.tolist() == [0, 1, 2]  # type: ignore[arg-type]
    assert Setting("deletion", spec).selector == spec
    with pytest.raises(BadInput, match="has no option 'stepp=2'; it takes step"):
        Setting("deletion", spec.replace("step=-1", "stepp=2"))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("best", "no selector is called 'best'; there are redundancy, .*, last, and package.module:Class"),
        ("best:layer=2", "no selector is called 'best:layer=2'; there are redundancy"),
        (
            "no.such:Class",
            r"the selector no.such:Class cannot be imported \(No module named 'no'\); install its package",
        ),
        ("acme_broken:Class", "acme_broken:Class cannot be imported .ZeroDivisionError: division by zero"),
        ("acme_last:First", "acme_last has no 'First', which the selector acme_last:First names; correct the name"),
        ("acme_last:Other", "acme_last:Other is not a selector; derive its class from Selector or LayerSelector"),
        ("acme_last:top", "acme_last:top is not a selector"),
        ("acme_last:Heir", "acme_last:Heir has the name 'redundancy'; give its class a name that no shipped"),
        ("acme_last:Nameless", "acme_last:Nameless has the name None"),
    ],
)
def test_what_is_wrong_with_a_plugin_is_one_sentence(spec: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        Setting("deletion", spec)


def test_one_name_means_one_selector(folder: Path) -> None:
    offer(folder, "acme-again", "last = acme_last:Other", "fastv = acme_last:Last")
    with pytest.raises(
        BadInput, match="acme-again .acme_last:Other. and acme-last .acme_last:Last. both offer a selector"
    ):
        make("last")
    with pytest.raises(
        BadInput, match="acme-again .* offers a selector called 'fastv', which is the name of a shipped"
    ):
        make("fastv:layer=3")
    make("redundancy")


def test_the_identity_of_a_plugin_is_its_version_and_its_source(folder: Path) -> None:
    before = plugin_identity("last")
    assert before["package"] == "acme-last 2.1"
    assert plugin_identity("acme_last:Last:step=2")["source"] == before["source"]
    (folder / "acme_last.py").write_text(MODULE + "# changed\n")
    assert plugin_identity("last")["source"] != before["source"]
    assert plugin_identity("redundancy") == plugin_identity("fastv:layer=3") == {}


def test_a_file_names_an_entry_point_but_never_code() -> None:
    assert from_file("last:step=2", ()) == "last:step=2"
    assert from_file(None, ()) is None
    assert from_file("acme_last:Last", ["acme_last:Last"]) == "acme_last:Last"
    with pytest.raises(BadInput, match="name it yourself: --selector acme_last:Last"):
        from_file("acme_last:Last", ())
    assert "acme_last" not in sys.modules
