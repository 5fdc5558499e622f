"""Legibility with the real engine on small synthetic pages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, ImageDraw, ImageFont

pytest.importorskip("rapidocr", reason="needs the extra [ocr]")

from stakes.budgets.policy import Policy, TierPlan
from stakes.calibration.calibrate import CalibrationOptions, calibrate
from stakes.calibration.evaluate import EvaluationOptions, evaluate
from stakes.cli import main
from stakes.data.sample import Sample
from stakes.errors import BadInput
from stakes.evaluation.outcome_log import read_outcomes
from stakes.evaluation.samples import digest
from stakes.legibility.model import NOT_FOUND, Legibility
from stakes.legibility.word_map import legibility_map, small_print_height, small_print_tokens
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


def sample(name: str, image: Image.Image, answer: str, tier: str) -> Sample:
    question = "What is the total amount?" if tier == "high" else "Who signed?"
    page_digest = digest(image.tobytes())
    return Sample(
        name,
        question,
        (answer,),
        tier=tier,
        document=page_digest,
        digest=page_digest,
        size=image.size,
        load=lambda: image,
    )


@pytest.fixture(scope="module")
def samples() -> list[Sample]:
    """Four pages with large and small print; the last answer is on no page."""
    found = []
    for number in range(4):
        total, name = f"{number + 3},{number}70.50", ["Ogden", "Farrow", "Marsh", "Quimby"][number]
        image = page([("Invoice", 40, 30, 48), (f"Total: ${total}", 40, 140, 12), (f"Signed: {name}", 40, 260, 28)])
        found += [sample(f"h{number}", image, f"${total}", "high"), sample(f"l{number}", image, name, "low")]
    return [*found, sample("missing", found[0].load(), "handwritten", "low")]  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("readings")


@pytest.fixture(scope="module")
def model(cache: Path, samples: list[Sample]) -> Legibility:
    made = Legibility(cache=cache)
    assert made.locate(samples) == {"missing": NOT_FOUND}
    return made


def answers_at(model: Legibility, samples: list[Sample], budget: int | None) -> list[Any]:
    return model.answer(
        [Request(one.load(), one.question, budget, sample=one.id) for one in samples if one.id != "missing"]
    )


def test_answers_are_legible_at_native_size_and_not_at_four_tokens(model: Legibility, samples: list[Sample]) -> None:
    native = answers_at(model, samples, None)
    assert [answer.text for answer in native] == [one.answers[0] for one in samples[:-1]]
    assert not any(answer.truncated for answer in native)
    few = answers_at(model, samples, 4)
    assert all(answer.truncated for answer in few)
    assert all(answer.realised_tokens <= 4 < answer.native_tokens == 256 for answer in few)


def test_large_print_stays_legible_at_smaller_budgets(model: Legibility, samples: list[Sample]) -> None:
    middle = dict(zip([one.id for one in samples], answers_at(model, samples, 36), strict=False))
    large = sum(not middle[f"l{n}"].truncated for n in range(4))
    small = sum(not middle[f"h{n}"].truncated for n in range(4))
    assert large > small


def test_a_second_model_uses_the_cache(cache: Path, model: Legibility, samples: list[Sample]) -> None:
    first = answers_at(model, samples, 36)
    again = Legibility(cache=cache)

    def never(*_: object) -> None:
        raise AssertionError("read again")

    again.pages.engine.detect = again.pages.engine.recognize = never  # type: ignore[method-assign, assignment]
    again.locate(samples)
    assert [(a.text, a.truncated) for a in answers_at(again, samples, 36)] == [(a.text, a.truncated) for a in first]


def test_a_damaged_cache_file_is_replaced(tmp_path: Path, samples: list[Sample]) -> None:
    made = Legibility(cache=tmp_path)
    made.locate(samples[:1])
    (file,) = tmp_path.rglob("*.json")
    whole = file.read_text(encoding="utf-8")
    file.write_text(whole[: len(whole) // 2], encoding="utf-8")
    made.locate(samples[:1])
    assert file.read_text(encoding="utf-8") == whole


def test_it_has_an_identity_and_rejects_what_it_cannot_judge(model: Legibility, samples: list[Sample]) -> None:
    parts = identity(model)
    assert parts["basis"] == "legibility"
    assert "rapidocr 3." in parts["engine"]
    assert len(parts["weights"]) == 32
    with pytest.raises(BadInput, match="'h9' was not located"):
        model.answer([Request(samples[0].load(), "?", 64, sample="h9")])
    with pytest.raises(BadInput, match="not found on the page"):
        model.answer([Request(samples[-1].load(), "?", 64, sample="missing")])
    with pytest.raises(BadInput, match="by resizing and does not apply to deletion"):
        model.answer([Request(samples[0].load(), "?", 64, "deletion", sample="h0")])


def test_load_takes_its_name() -> None:
    assert load("ocr:qwen3-vl").family == "qwen3-vl"
    with pytest.raises(BadInput, match="on the CPU"):
        load("ocr", device="cuda")


def test_calibration_and_evaluation_are_labelled_legibility_and_exclude_samples(
    model: Legibility, samples: list[Sample], tmp_path: Path
) -> None:
    log = tmp_path / "log.jsonl"
    grid = [36, 81, 144]
    found = calibrate(
        samples,
        model,
        costs=COSTS,
        mean_budget=81,
        signal=KeywordRule(),
        log=log,
        options=CalibrationOptions(grid=grid),
    )
    assert found.policy.basis == "legibility"
    assert dict(found.excluded.why) == {"missing": NOT_FOUND}
    assert found.excluded.by_tier == {"low": 1}
    assert (tmp_path / "log.jsonl.apart.json").exists()
    outcomes = read_outcomes(log)
    assert len(outcomes) == 8 * len(grid)
    assert "missing" not in {outcome.sample for outcome in outcomes}
    assert found.curves["low"].counts == (4, 4, 4)
    assert found.curves["high"].error(36) > found.curves["high"].error(144)
    again = calibrate(
        samples,
        model,
        costs=COSTS,
        mean_budget=81,
        signal=KeywordRule(),
        log=log,
        options=CalibrationOptions(grid=grid),
    )
    assert again.run.answered == 0
    # 36, 90 and 144 tokens are grids of a square page, so that eight samples can spend one total exactly.
    tiers = {"high": TierPlan(cost=5, budget=144), "low": TierPlan(cost=1, budget=36)}
    policy = Policy(mean_budget=90, tiers=tiers, basis="legibility")
    seen = evaluate(
        model, samples, policy, log=tmp_path / "arms.jsonl", options=EvaluationOptions(arms=["uniform", "cost"])
    )
    assert seen.basis == "legibility"
    assert len(seen.excluded) == 1
    assert seen.comparison.counts == {"high": 4, "low": 4}


def test_small_print_needs_a_larger_budget_on_the_map(model: Legibility, samples: list[Sample]) -> None:
    words = {word.text: word for word in legibility_map(model, samples[0], [4, 36, 144])}
    small = next(word for text, word in words.items() if "70.50" in text)
    large = words["Invoice"]
    assert large.legible_from is not None
    assert small.legible_from is None or small.legible_from > large.legible_from
    assert large.box[0] > 30
    assert large.box[3] < small.box[1]


def test_small_print_needs_tokens_by_its_height(model: Legibility, samples: list[Sample]) -> None:
    lines = model.native_lines(samples[0])
    heights = sorted(line.height for line in lines)
    assert small_print_height(lines) == heights[0]
    assert small_print_tokens(lines, 256) == pytest.approx(256 * (11 / heights[0]) ** 2)
    assert small_print_height([]) == 0.0
    assert small_print_tokens([], 256) == 1.0


def test_the_map_command_writes_an_image(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    page([("Invoice", 40, 30, 48), ("Total: $9,870", 40, 140, 10)]).save(tmp_path / "page.png")
    made = tmp_path / "map.png"
    with pytest.raises(SystemExit) as exit_:
        main(["reproduce", "legibility-map", "--data", str(tmp_path / "page.png"), "-o", str(made), "--json"])
    assert exit_.value.code == 0
    record = json.loads(capsys.readouterr().out)
    assert record["words"] == 3
    assert record["legible"]["64"] < record["legible"]["576"] == 1
    with Image.open(made) as drawn:
        assert drawn.size[0] == 448
    for wrong, message in (
        (["-o", str(tmp_path / "map.json")], "ends in .png"),
        (["--data", "a", "--data", "b"], "one page, not 2"),
    ):
        with pytest.raises(SystemExit):
            main(["reproduce", "legibility-map", *wrong])
        assert message in " ".join(capsys.readouterr().err.split())
