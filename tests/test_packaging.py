"""What is published: versions agree, every supported Python is named, and a release tests the oldest and the newest."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parent.parent
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def _yaml(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


def _pythons() -> list[str]:
    names = [line.rpartition(" :: ")[2] for line in PROJECT["classifiers"] if ":: Python :: 3." in line]
    return sorted(names, key=lambda name: int(name.partition(".")[2]))


def test_the_citation_has_the_version_the_license_and_the_papers_title() -> None:
    citation = _yaml("CITATION.cff")
    assert (citation["version"], citation["license"]) == (PROJECT["version"], PROJECT["license"])
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert citation["preferred-citation"]["title"] in readme
    for author in citation["preferred-citation"]["authors"]:
        assert f"{author['given-names']} {author['family-names']}" in readme


def test_classifiers_name_every_python_from_the_oldest_that_is_required() -> None:
    minors = [int(name.partition(".")[2]) for name in _pythons()]
    assert minors == list(range(minors[0], minors[-1] + 1))
    assert PROJECT["requires-python"] == f">=3.{minors[0]}"


def test_a_release_tests_the_oldest_and_the_newest_python_before_it_publishes() -> None:
    jobs = _yaml(".github/workflows/release.yml")["jobs"]
    assert jobs["test"]["strategy"]["matrix"]["python"] == [_pythons()[0], _pythons()[-1]]
    assert (jobs["publish"]["needs"], jobs["test"]["needs"]) == ("test", "build")
    assert {"run": ".ci/run"} in jobs["test"]["steps"]
