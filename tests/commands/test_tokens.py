"""``stakes tokens``: the size of a file or in words, its tokens, and the size that spends a budget."""

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from PIL import Image
from typer.testing import CliRunner

from stakes import cli
from stakes.commands.tokens import tokens
from stakes.errors import BadInput, UnknownFamily, UnreadableImage
from stakes.vision.geometry import count_tokens, families
from stakes.vision.image.resize import fit


def _run(*words: str) -> str:
    app = typer.Typer()
    app.command()(tokens)
    done = CliRunner().invoke(app, words)
    if done.exception is not None:
        raise done.exception
    return done.stdout


def _json(*words: str) -> Any:
    return json.loads(_run(*words, "--json"))


def test_a_size_in_words_needs_no_file() -> None:
    record = _json("1654x2339")
    assert (record["width"], record["height"], record["native"], record["fitted"]) == (1654, 2339, 4956, None)
    assert _json("1654 × 2339", "--family", "claude")["native"] == 1551


def test_a_side_that_the_service_refuses_is_shrunk() -> None:
    assert "1551 visual tokens at 8000x5657, the largest that it takes, in claude" in _run(
        "9921x7016", "--family", "claude"
    )
    assert _json("9921x7016", "--family", "claude", "--budget", "1000")["fitted"]["tokens"] == 999


def test_a_file_stands_upright_and_wins_over_a_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rotated = Image.Exif()
    rotated[0x0112] = 6
    Image.new("RGB", (300, 200), "white").save("300x200", format="JPEG", exif=rotated)
    record = _json("300x200")
    assert (record["width"], record["height"]) == (200, 300)


def test_a_budget_gives_what_fit_gives(tmp_path: Path) -> None:
    path = tmp_path / "page.png"
    Image.new("RGB", (827, 1170), "white").save(path)
    fitted = fit(path, 256)
    record = _json(str(path), "--budget", "256")
    assert record["fitted"]["tokens"] == fitted.tokens <= 256
    assert (record["fitted"]["width"], record["fitted"]["height"]) == fitted.image.size
    assert tuple(record["fitted"]["scale"]) == fitted.scale
    assert count_tokens("qwen2.5-vl", *fitted.image.size) == fitted.tokens


def test_the_summary_shows_what_is_spent() -> None:
    page = _run("1654x2339", "--budget", "576")
    assert "native   4956 visual tokens in qwen2.5-vl" in page
    assert "budget   576 visual tokens" in page
    assert "spends   560 visual tokens, 97.2% of the budget" in page
    assert "use max_dynamic_patch" in _run("1654x2339", "--family", "internvl")


def test_a_family_that_resizing_cannot_control_says_what_does() -> None:
    with pytest.raises(BadInput, match="gemma4: not controllable by resizing; use max_soft_tokens"):
        _run("1654x2339", "--family", "gemma4", "--budget", "140")


def test_bad_input_has_a_name(tmp_path: Path) -> None:
    with pytest.raises(UnknownFamily, match="did you mean 'qwen2.5-vl'"):
        _run("1654x2339", "--family", "Qwen2.5-VL")
    with pytest.raises(BadInput, match="width must be"):
        _run("0x100")
    with pytest.raises(UnreadableImage):
        _run(str(tmp_path / "nothing.png"))


def test_families_lists_every_family_with_the_tokens_of_a_page(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["families", "--json", "--width", "850", "--height", "1100"])
    rows = {row["family"]: row for row in json.loads(capsys.readouterr().out)["families"]}
    assert set(rows) == set(families())
    assert rows["qwen2.5-vl"]["tokens"] == count_tokens("qwen2.5-vl", 850, 1100)
