"""Every message that the troubleshooting page quotes is one that the software gives."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest
from tests.docs.site import ROOT, blocks, read

QUOTED = [
    line
    for block in blocks(read("docs/troubleshooting.md"))
    if block.language == "text" and block.after != "fails"  # those are compared with what a command said
    for line in block.text.strip().split("\n")
]

FILES = re.compile(
    r"`((?:src|tests|benchmarks|training|budgets|vision|gateway|evaluation|calibration|legibility)/[\w/.]+)`"
)
LEAST = 12  # letters that a text of the sources must have of its own, so that it is not just anything


@cache
def messages() -> tuple[re.Pattern[str], ...]:
    """Every text in the sources as a pattern; what an f-string fills in may be anything."""
    found = []
    for path in sorted((ROOT / "src/stakes").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            pattern = _pattern(node)
            if pattern:
                found.append(re.compile(pattern, re.DOTALL))
    return tuple(found)


def _pattern(node: ast.AST) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) > LEAST:
        return re.escape(node.value)
    if isinstance(node, ast.JoinedStr):
        parts = [part.value for part in node.values if isinstance(part, ast.Constant)]
        if sum(map(len, map(str, parts))) > LEAST:
            return "".join(
                re.escape(str(part.value)) if isinstance(part, ast.Constant) else "(.*?)" for part in node.values
            )
    return None


def known(line: str) -> bool:
    """Whether some text of the sources is the whole line; a sentence may be told within another ("line 3 of …: ")."""
    candidates = [line, line.split(": ", 1)[-1], line.split("': ", 1)[-1]]
    return any(pattern.fullmatch(one) for one in candidates for pattern in messages())


@pytest.mark.parametrize("line", QUOTED)
def test_a_quoted_message_is_in_the_sources(line: str) -> None:
    assert known(line)


def test_an_invented_message_is_recognized() -> None:
    assert len(QUOTED) > 20
    assert not known("there is no file nowhere.jsonl; look again")
    assert not known("sample 'a': a budget of 5 exceeds the image's 4 native tokens; give less")


def test_every_file_that_the_site_names_exists() -> None:
    """But for the one that the reader is told to write."""
    for page in Path(ROOT / "docs").rglob("*.md"):
        for path in FILES.findall(page.read_text(encoding="utf-8")):
            assert path.endswith("/edges.py") or (ROOT / path).exists() or (ROOT / "src/stakes" / path).exists(), path
