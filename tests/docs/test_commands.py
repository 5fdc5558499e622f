"""Every command and every Python block of the site is run, or, where it needs what a test has not, parsed."""

import re
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest
from tests.docs.site import FEWER, PAGES, blocks, parse, read, run, stakes

from stakes.errors import BadInput

pytest.importorskip("torch", reason="the pages' commands need the embedded reader")
ALONE = "with the selector in the table"
WITH_COMMANDS = [page for page in PAGES if any(b.language in ("sh", "python") for b in blocks(read(page)))]


@pytest.mark.parametrize("page", [page for page in WITH_COMMANDS if not page.endswith("selectors.md")])
def test_a_page_runs_from_top_to_bottom(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    found = blocks(read(page))
    for block, after in zip(found, [*found[1:], None], strict=True):
        if block.language == "python" and not block.mark.startswith("only parsed"):
            with redirect_stdout(StringIO()):
                exec(compile(block.text, page, "exec"), names)
        if block.language != "sh":
            continue
        for line in block.lines:
            if block.mark.startswith("only parsed: ") or line.startswith("stakes serve "):  # which never ends
                parse(line)
            elif block.mark == "fails":
                status, _, err = stakes(line.split()[1:])
                assert after is not None
                message = after.text.strip()
                assert (status, err[: len(message.rstrip("…")) + 8].strip()) == (
                    2,
                    f"stakes: {message.rstrip('…')}".strip(),
                )
                assert message.endswith("…") or err == f"stakes: {message}\n"
            else:
                assert block.mark == "", block.mark
                run(line)


@pytest.mark.parametrize("page", PAGES)
def test_commands_within_sentences_parse(page: str) -> None:
    prose = re.sub(r"^```.*?^```$", "", read(page), flags=re.DOTALL | re.MULTILINE)
    for line in re.findall(r"`(stakes [^`\n]+)`", prose):
        words = re.sub(r"[\[\]]", "", line).replace("…", "x")  # brackets: may be left out
        if " --" in words or len(words.split()) > 2:
            parse(words if "calibrate" not in words or ".jsonl" in words else f"{words} samples.jsonl")


def test_the_selector_example_is_registered_and_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys
    from types import MappingProxyType

    from stakes.budgets.policy import Policy
    from stakes.vision import selectors

    monkeypatch.chdir(tmp_path)
    found = blocks(read("docs/selectors.md"))
    code, use, without_blank, compare = [block.text for block in found if block.language == "python"]
    line = next(block.text for block in found if block.language == "text")
    name, (module, attribute) = next(iter(eval(f"{{{line}}}").items()))
    Path("edges_of_the_page.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    import importlib

    made = importlib.import_module("edges_of_the_page")
    monkeypatch.setitem(sys.modules, module, made)
    assert getattr(made, attribute).name == name
    for budget in (1, 25, 50):
        scene = made.Scene(features=made.torch.randn(50, 8, generator=made.torch.Generator().manual_seed(1)))
        assert len(getattr(made, attribute)().select(scene, budget).indices) == budget
    with redirect_stdout(StringIO()) as out:
        names = {attribute: getattr(made, attribute)}
        exec(compile(use, "selectors.md", "exec"), names)
        exec(compile(without_blank, "selectors.md", "exec"), names)
    assert out.getvalue().count("304 of") == 4
    assert out.getvalue().count("tokens were encoded") == 1
    with pytest.raises(BadInput, match="no selector is called 'edges'"):
        selectors.make(name)
    table = MappingProxyType({**selectors.SELECTORS, name: (module, attribute)})
    monkeypatch.setattr(selectors, "SELECTORS", table)
    for block in found:
        for shell in block.lines if block.language == "sh" else ():
            if block.mark in (ALONE, ""):
                run(shell)
            else:
                parse(shell)
    assert Policy.load("edges.json").selector == "edges"
    assert Policy.load("late.json").selector == "edges:first=0.5"
    assert Policy.load("layers.json").selector == "fastv:count=layers"
    with redirect_stdout(StringIO()) as out:
        exec(compile(compare, "selectors.md", "exec"), {})
    budgets = [f"{budget}: right with edges alone " for budget in FEWER["--grid"].split(",")]
    assert [line[: len(start)] for line, start in zip(out.getvalue().splitlines(), budgets, strict=True)] == budgets
