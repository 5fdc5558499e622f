"""What the README shows is what happens."""

import re
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest
from tests.docs.site import blocks, parse, read, run

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")


def _block(start: str) -> str:
    found = re.search(rf"```{start}\n(.*?)```", README, re.DOTALL)
    assert found
    return found.group(1)


def test_the_python_example_prints_what_its_comments_say() -> None:
    code, out = _block("python"), StringIO()
    with redirect_stdout(out):
        exec(compile(code, "README.md", "exec"), {})
    promised = [line.split("# ")[1] for line in code.splitlines() if "# " in line]
    for line, promise in zip(out.getvalue().splitlines(), promised, strict=True):
        shown = (
            re.split(r"[:…]| \(", promise)[0].strip() if promise[0].isdigit() else promise.split("…")[0].rstrip(", ")
        )
        assert line.startswith(shown) or f"{float(line):.3g}" == shown, (line, promise)


# what needs a model, a server or minutes is held to its promise by its own tests, and parsed here
ELSEWHERE = "calibrate|evaluate|serve|report|filmstrip|doctor|demo|reproduce within"
COMMANDS = re.findall(r"^stakes .*", README, re.MULTILINE)


@pytest.mark.parametrize("line", [line for line in COMMANDS if not re.match(rf"stakes ({ELSEWHERE})", line)])
def test_a_shell_example_runs(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    guide = [block.text for block in blocks(read("docs/calibrate.md")) if block.language == "json"]
    Path("curves.json").write_text(next(text for text in guide if "budgets" in text))
    assert run(line)


@pytest.mark.parametrize("line", [*COMMANDS, *re.findall(r"^make [a-z-]+", README, re.MULTILINE)])
def test_every_option_in_a_shell_example_is_one(line: str) -> None:
    parse(line)


def test_the_published_example_is_what_plan_computes() -> None:
    from stakes.budgets.allocate import allocate
    from stakes.experiments.published import curves

    found = curves("docvqa")
    text = " ".join(README.split())
    quoted = re.search(
        r"budgets \((\d+), (\d+)\) cut the error .* from (\d+) % to (\d+) %; .* ([\d.]+) to ([\d.]+)\. No", text
    )
    assert quoted
    best = allocate(found, {"high": 5, "low": 1}, {"high": 1, "low": 1}, 608)
    uniform = {tier: curve.error(304) for tier, curve in found.items()}
    assert best.budgets == {"high": int(quoted[1]), "low": int(quoted[2])}
    assert (round(100 * uniform["high"]), round(100 * best.errors["high"])) == (int(quoted[3]), int(quoted[4]))
    cwe = (5 * uniform["high"] + uniform["low"]) / 6
    assert (f"{cwe:.3f}", f"{best.cwe:.3f}") == (quoted[5], quoted[6])


def test_the_page_example_fits_as_its_comments_say(tmp_path: Path) -> None:
    from PIL import Image

    from stakes import count_tokens, fit

    assert "# 4956 tokens for an A4 page" in README
    assert "# (300, 4956, (0.254, 0.239))" in README
    path = tmp_path / "page.png"
    Image.new("RGB", (1654, 2339), "white").save(path)
    fitted = fit(path, budget=304)
    assert count_tokens("qwen2.5-vl", 1654, 2339) == fitted.native == 4956
    assert (fitted.tokens, *(round(s, 3) for s in fitted.scale)) == (300, 0.254, 0.239)
