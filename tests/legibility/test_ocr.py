"""Legibility with the real engine on small synthetic pages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, ImageDraw, ImageFont

pytest.importorskip("rapidocr", reason="needs the extra [ocr]")

from stakes.budgets.policy import Policy, TierPlan
from stakes.calibration.calibrate import calibrate
from stakes.calibration.evaluate import evaluate
from stakes.cli import main
from stakes.errors import BadInput
from stakes.evaluation.items import Asked, digest
from stakes.evaluation.outcome_log import read_outcomes
from stakes.legibility.model import NOT_FOUND, Legibility
from stakes.legibility.word_map import legibility_map, print_height, print_tokens
from stakes.models import load
from stakes.models.base import Request
from stakes.models.identity import identity
from stakes.signals import KeywordRule

FONT = Path(__file__).parents[2] / "src/stakes/data/synthetic/fonts"
COSTS = {"high": 5.0, "low": 1.0}


def page(words: list[tuple[str, int, int, int]], size: tuple[int, int] = (448, 448)) -> Image.Image:
    """Words as (text, x, y, height) on white."""
    image = Image.new("RGB", size, "white")
    draw = ImageDraw.Draw(image)
    for text, x, y, height in words:
        draw.text((x, y), text, fill="black", font=ImageFont.truetype(str(FONT / "Oxygen-Sans.ttf"), height))
    return image


def sample(name: str, image: Image.Image, answer: str, tier: str) -> Asked:
    question = "What is the total amount?" if tier == "high" else "Who signed?"
    print_of = digest(image.tobytes())
    return Asked(name, question, (answer,), tier, print_of, print_of, image.size, lambda: image)


@pytest.fixture(scope="module")
def asked() -> list[Asked]:
    """Four pages with large and small print; one answer that no page shows."""
    found = []
    for number in range(4):
        total, name = f"{number + 3},{number}70.50", ["Ogden", "Farrow", "Marsh", "Quimby"][number]
        image = page([("Invoice", 40, 30, 48), (f"Total: ${total}", 40, 140, 12), (f"Signed: {name}", 40, 260, 28)])
        found += [sample(f"h{number}", image, f"${total}", "high"), sample(f"l{number}", image, name, "low")]
    return [*found, sample("apart", found[0].load(), "handwritten", "low")]  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("readings")


@pytest.fixture(scope="module")
def model(cache: Path, asked: list[Asked]) -> Legibility:
    made = Legibility(cache=cache)
    assert made.locate(asked) == {"apart": NOT_FOUND}
    return made


def ask_at(model: Legibility, asked: list[Asked], budget: int | None) -> list[Any]:
    return model.answer(
        [Request(one.load(), one.question, budget, sample=one.id) for one in asked if one.id != "apart"]
    )


def test_print_is_legible_at_native_size_and_not_at_a_few_tokens(model: Legibility, asked: list[Asked]) -> None:
    native = ask_at(model, asked, None)
    assert [answer.text for answer in native] == [one.answers[0] for one in asked[:-1]]
    assert not any(answer.truncated for answer in native)
    few = ask_at(model, asked, 4)
    assert all(answer.truncated for answer in few)
    assert all(answer.realised_tokens <= 4 < answer.native_tokens == 256 for answer in few)


def test_large_print_outlives_small_print(model: Legibility, asked: list[Asked]) -> None:
    middle = dict(zip([one.id for one in asked], ask_at(model, asked, 36), strict=False))
    large = sum(not middle[f"l{n}"].truncated for n in range(4))
    small = sum(not middle[f"h{n}"].truncated for n in range(4))
    assert large > small


def test_another_model_reads_nothing_again(cache: Path, model: Legibility, asked: list[Asked]) -> None:
    first = ask_at(model, asked, 36)
    again = Legibility(cache=cache)

    def never(*_: object) -> None:
        raise AssertionError("this was read before")

    again.pages.engine.detect = again.pages.engine.recognise = never  # type: ignore[method-assign, assignment]
    again.locate(asked)
    assert [(a.text, a.truncated) for a in ask_at(again, asked, 36)] == [(a.text, a.truncated) for a in first]


def test_a_damaged_reading_is_made_again(tmp_path: Path, asked: list[Asked]) -> None:
    made = Legibility(cache=tmp_path)
    made.locate(asked[:1])
    (file,) = tmp_path.rglob("*.json")
    whole = file.read_text(encoding="utf-8")
    file.write_text(whole[: len(whole) // 2], encoding="utf-8")
    made.locate(asked[:1])
    assert file.read_text(encoding="utf-8") == whole


def test_it_says_who_it_is_and_refuses_what_it_cannot_judge(model: Legibility, asked: list[Asked]) -> None:
    parts = identity(model)
    assert parts["basis"] == "legibility"
    assert "rapidocr 3." in parts["engine"]
    assert len(parts["weights"]) == 32
    with pytest.raises(BadInput, match="'h9' was not located"):
        model.answer([Request(asked[0].load(), "?", 64, sample="h9")])
    with pytest.raises(BadInput, match="not found on the page"):
        model.answer([Request(asked[-1].load(), "?", 64, sample="apart")])
    with pytest.raises(BadInput, match="by resizing; it says nothing of deletion"):
        model.answer([Request(asked[0].load(), "?", 64, "deletion", sample="h0")])


def test_load_knows_it_by_name() -> None:
    assert load("ocr:qwen3-vl").family == "qwen3-vl"
    with pytest.raises(BadInput, match="on the CPU"):
        load("ocr", device="cuda")


def test_calibration_and_evaluation_say_legibility_and_set_apart(
    model: Legibility, asked: list[Asked], tmp_path: Path
) -> None:
    log = tmp_path / "log.jsonl"
    grid = [36, 81, 144]
    found = calibrate(model, asked, COSTS, 81, KeywordRule(), log=log, grid=grid)
    assert found.policy.basis == "legibility"
    assert dict(found.apart.why) == {"apart": NOT_FOUND}
    assert found.apart.by_tier == {"low": 1}
    assert (tmp_path / "log.jsonl.apart.json").exists()
    outcomes = read_outcomes(log)
    assert len(outcomes) == 8 * len(grid)
    assert "apart" not in {outcome.sample for outcome in outcomes}
    assert found.curves["low"].counts == (4, 4, 4)
    assert found.curves["high"].error(36) > found.curves["high"].error(144)
    again = calibrate(model, asked, COSTS, 81, KeywordRule(), log=log, grid=grid)
    assert again.run.answered == 0
    # 36, 90 and 144 tokens are grids of a square page, so that eight samples can spend one total exactly.
    tiers = {"high": TierPlan(cost=5, budget=144), "low": TierPlan(cost=1, budget=36)}
    policy = Policy(mean_budget=90, tiers=tiers, basis="legibility")
    seen = evaluate(model, asked, policy, log=tmp_path / "arms.jsonl", arms=["uniform", "cost"])
    assert seen.basis == "legibility"
    assert len(seen.apart) == 1
    assert seen.comparison.counts == {"high": 4, "low": 4}


def test_the_map_says_that_small_print_dies_first(model: Legibility, asked: list[Asked]) -> None:
    words = {word.text: word for word in legibility_map(model, asked[0], [4, 36, 144])}
    small = next(word for text, word in words.items() if "70.50" in text)
    large = words["Invoice"]
    assert large.least is not None
    assert small.least is None or small.least > large.least
    assert large.box[0] > 30
    assert large.box[3] < small.box[1]


def test_the_height_of_small_print_asks_for_tokens(model: Legibility, asked: list[Asked]) -> None:
    lines = model.native_lines(asked[0])
    heights = sorted(line.height for line in lines)
    assert print_height(lines) == heights[0]
    assert print_height(lines, 1.0) == heights[-1]
    assert print_tokens(lines, 256) == pytest.approx(256 * (11 / heights[0]) ** 2)
    assert print_height([]) == 0.0
    assert print_tokens([], 256) == 1.0
    with pytest.raises(BadInput, match="between 0 and 1"):
        print_height(lines, 2)


def test_a_map_of_a_page_is_one_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    page([("Invoice", 40, 30, 48), ("Total: $9,870", 40, 140, 10)]).save(tmp_path / "page.png")
    made = tmp_path / "map.png"
    with pytest.raises(SystemExit) as left:
        main(["reproduce", "legibility-map", "--data", str(tmp_path / "page.png"), "-o", str(made), "--json"])
    assert left.value.code == 0
    told = json.loads(capsys.readouterr().out)
    assert told["words"] == 3
    assert told["legible"]["64"] < told["legible"]["576"] == 1
    with Image.open(made) as drawn:
        assert drawn.size[0] == 448
    for wrong, said in (
        (["-o", str(tmp_path / "map.json")], "ends in .png"),
        (["--data", "a", "--data", "b"], "not of 2"),
    ):
        with pytest.raises(SystemExit):
            main(["reproduce", "legibility-map", *wrong])
        assert said in " ".join(capsys.readouterr().err.split())
