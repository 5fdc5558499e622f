"""The site's pages and the commands on them: how they are found, run, or only parsed.

A fence ``sh`` or ``python`` is run. A comment on the line before it says otherwise:

    <!-- only parsed: needs a GPU -->       its stakes commands must parse, its other words must exist, nothing runs
    <!-- fails -->                          status 2, and on stderr the text of the next fence (… at its end: and more)
    <!-- with the selector in the table --> left to a test of its own
"""

import os
import re
import shlex
import subprocess
import tomllib
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import Any

from typer import Typer
from typer.main import get_command

from stakes.cli import app, main
from stakes.errors import StakesError

ROOT = Path(__file__).parents[2]
PAGES = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))
_FENCE = re.compile(r"^(?:<!-- ([^\n]+?) -->\n)?```([a-z]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
# In a test: questions of a tier on two pages, the least that arms can be compared on, and three of five budgets.
FEWER = {"--per-tier": "5", "--grid": "32,304,576"}


@dataclass(frozen=True)
class Block:
    """One fence: what stands before it in a comment, its language and its text."""

    mark: str
    language: str
    text: str
    after: str = ""  # the mark of the fence before it

    @property
    def lines(self) -> list[str]:
        """Its commands, continued lines joined."""
        return [line for line in self.text.replace("\\\n", " ").split("\n") if line.strip()]


def read(page: str) -> str:
    """The text of a page, by its path from the root."""
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(text: str) -> list[Block]:
    """All fences of a page, in order."""
    found = _FENCE.findall(text)
    return [Block(one[0], one[1], one[2], before[0]) for before, one in zip([("",), *found], found, strict=False)]


def stakes(words: list[str]) -> tuple[int, str, str]:
    """Run one stakes command in this process: status, stdout, stderr."""
    out, err, status = StringIO(), StringIO(), 0
    with redirect_stdout(out), redirect_stderr(err):
        try:
            main(words)
        except SystemExit as left:
            status = int(left.code or 0)
    return status, out.getvalue(), err.getvalue()


def fewer(words: list[str]) -> list[str]:
    """The same command on fewer questions, budgets and imagined calibrations."""
    words = [*words, "--repeats", "10"] if "--samples" in words and words[0] == "plan" else words
    pairs = zip(["", *words], words, strict=False)
    return [min(FEWER[before], word, key=len) if before in FEWER else word for before, word in pairs]


def run(line: str) -> str:
    """Run a line as a person would type it, and give back what it printed."""
    words = shlex.split(line, comments=True)
    if words[0] == "stakes":
        status, out, err = stakes(fewer(words[1:]))
        assert status == 0, f"{line}: {err}"
        return out
    done = subprocess.run(["bash", "-ec", line], capture_output=True, text=True, timeout=60, env=os.environ)
    assert done.returncode == 0, f"{line}: {done.stderr}"
    return done.stdout


def parse(line: str) -> None:
    """Hold a line to what exists: a command and its options, an extra, a make target, a script."""
    words = shlex.split(line, comments=True)
    if words[0] == "stakes":
        command: Any = get_command(app)
        rest = words[1:]
        while hasattr(command, "commands"):
            assert rest, line
            assert rest[0] in command.commands, line
            command, rest = command.commands[rest[0]], rest[1:]
        with suppress(StakesError):  # an option that reads a file at once, and the file is not there
            command.make_context(words[1], list(rest))  # raises on unknown options, wrong values, missing arguments
    elif words[0] in ("uvx", "pipx"):
        parse(shlex.join(["pip", "install", words[words.index("stakes") - 1]]))
        parse(shlex.join(words[words.index("stakes") :]))
    elif words[:2] == ["pip", "install"]:
        for extras in re.findall(r"(?:stakes|\.)\[([a-z,]+)\]", line):
            assert set(extras.split(",")) <= _extras(), line
    elif words[0] == "make":
        assert {word for word in words[1:] if "=" not in word} <= _targets(), line
    elif words[0] == ".":
        assert words[1:] == [".venv/bin/activate"], line  # what make makes
    elif words[:2] == ["python", "-m"]:
        alone = Typer()
        alone.command()(import_module(words[2]).main)
        get_command(alone).make_context(words[2], words[3:])
    elif words[0] == "python":
        assert (ROOT / words[1]).is_file(), line
    else:
        assert words[0] in ("vllm", "curl"), f"{line}: nothing here can say whether this is right"


@cache
def _extras() -> set[str]:
    return set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])


@cache
def _targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
