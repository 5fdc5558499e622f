"""The site is built without a warning, opens from the disk, asks no other host, and shows the whole public API."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from tests.docs.site import PAGES, ROOT, read

import stakes

pytest.importorskip("mkdocs", reason="the site needs the docs extra: make docs")
pytest.importorskip("latex2mathml", reason="the site needs the docs extra: make docs")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    # not --quiet, under which --strict lets warnings pass
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(
        words, cwd=ROOT, capture_output=True, text=True, timeout=120, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder


class Fetched(HTMLParser):
    """Every address that a page would fetch by itself, and where its links lead."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {key: value or "" for key, value in attrs}
        if tag == "a":
            self.links.append(given.get("href", ""))
        elif tag == "link":
            self.fetched.append(given.get("href", ""))
        self.fetched += [given[key] for key in ("src", "srcset", "poster", "data") if key in given]


def test_every_page_is_built_and_nothing_is_fetched_from_another_host(site: Path) -> None:
    made = {str(path.relative_to(site)) for path in site.rglob("*.html")}
    assert {page.removeprefix("docs/").replace(".md", ".html") for page in PAGES} <= made
    for path in site.rglob("*.html"):
        page = Fetched(path.read_text(encoding="utf-8"))
        assert len(page.fetched) > 3
        for address in page.fetched:
            assert not re.match(r"(?:[a-z]+:)?//", address), (path.name, address)
            here = path.parent / address.split("?")[0].split("#")[0]
            assert address.startswith("data:") or here.exists() or path.name == "404.html", address  # a server's page
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(?:url\(|@import)\s*['\"]?(?:https?:)?//", sheet.read_text(encoding="utf-8"))


def test_pages_are_found_in_the_navigation_and_not_only_by_their_address(site: Path) -> None:
    links = {os.path.normpath(link) for link in Fetched((site / "index.html").read_text(encoding="utf-8")).links}
    assert {page.removeprefix("docs/").replace(".md", ".html") for page in PAGES} <= links


def test_formulas_are_mathml_and_none_is_left_as_latex(site: Path) -> None:
    text = (site / "method.html").read_text(encoding="utf-8")
    assert text.count("<math") == read("docs/method.md").count("```math")
    assert text.count("<math") > 6
    for formula in re.findall(r"<math.*?</math>", text):
        assert "\\" not in formula  # a word of LaTeX that the converter does not know
        assert "merror" not in formula


def test_every_public_name_has_its_entry(site: Path) -> None:
    anchors = set()
    for page in [site / "api.html"]:
        anchors |= {anchor.split(".")[-1] for anchor in re.findall(r'id="(stakes\.[\w.]+)"', page.read_text("utf-8"))}
    assert set(stakes.__all__) <= anchors
    assert {"load", "Request", "Answer"} <= anchors
