"""By resizing, calibrations measure pages without their margins, say so, and are evaluated and shown on the same."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from tests.evaluation.oracle import Oracle, write_samples

from stakes.budgets.policy import Policy
from stakes.calibration.adaptive.sampler import AdaptiveSampling
from stakes.calibration.calibrate import CalibrationOptions, calibrate
from stakes.calibration.evaluate import evaluate
from stakes.calibration.result import Calibration
from stakes.data.sample import Sample
from stakes.errors import BadInput, StakesError
from stakes.evaluation.fingerprint import Setting
from stakes.evaluation.outcome_log import read_outcomes
from stakes.evaluation.samples import prepare_samples, trimmed
from stakes.models.base import CONFIDENCE
from stakes.models.identity import ModelName
from stakes.report.data import read_run
from stakes.report.seen_pages import see
from stakes.signals import KeywordRule
from stakes.vision.geometry import count_tokens
from stakes.vision.image.decode import open_image
from stakes.vision.image.resize import fit
from stakes.vision.image.trim import margins

COSTS = {"high": 5.0, "low": 1.0}
GRID = (96, 208, 304)


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> list[Sample]:
    """Pages of 1120 x 1568 pixels with text in their middle."""
    from tests.gateway.test_trim import framed

    folder = tmp_path_factory.mktemp("trim")
    written = write_samples(folder, pages=8)
    for number, file in enumerate(sorted({folder / str(sample.image) for sample in written})):
        image = framed()
        image.putpixel((400, 500), (number, 0, 0))
        image.save(file)
    return prepare_samples(written, folder, KeywordRule())


def calibrated(samples: list[Sample], log: Path, model: Any = None, **options: Any) -> Calibration:
    chosen = CalibrationOptions(**{"grid": GRID, **options})
    asked = model or Oracle()
    return calibrate(samples, asked, costs=COSTS, mean_budget=208, signal=KeywordRule(), log=log, options=chosen)


def test_trimmed_samples_are_the_box_of_their_images_under_a_digest_of_their_own(samples: list[Sample]) -> None:
    placed = [replace(sample, box=(300.0, 420.0, 400.0, 440.0)) for sample in samples]
    for sample, part in zip(placed, trimmed(placed, Oracle(), "resolution", GRID), strict=True):
        image = open_image(sample.load())
        x0, y0, x1, y1 = margins(image)
        assert part.size == open_image(part.load()).size == (x1 - x0, y1 - y0) != sample.size
        assert open_image(part.load()).tobytes() == image.crop((x0, y0, x1, y1)).tobytes()
        assert part.digest != sample.digest
        assert part.box == (300 - x0, 420 - y0, 400 - x0, 440 - y0)
        assert (part.id, part.document, part.tier) == (sample.id, sample.document, sample.tier)


def test_margins_stay_where_too_few_tokens_are_left_and_where_coordinates_are_asked_for(samples: list[Sample]) -> None:
    x0, y0, x1, y1 = margins(open_image(samples[0].load()))
    left = count_tokens("qwen2.5-vl", x1 - x0, y1 - y0)
    data = samples[0].load()
    for largest, cut in ((left, True), (left + 1, False)):
        (part,) = trimmed(samples[:1], Oracle(), "resolution", [96, largest])
        assert (part.size != samples[0].size) is cut
        assert (fit(data, 96, trim=largest).box == (x0, y0, x1, y1)) is cut
    where = replace(samples[0], question="Give the bounding box of the total.")
    assert trimmed([where], Oracle(), "resolution", [96]) == [where]


def test_margins_stay_where_what_is_left_is_too_thin_for_the_smallest_budget(tmp_path: Path) -> None:
    """GLM has 16 tokens for a whole page, and none for a strip of it."""
    written = write_samples(tmp_path, pages=4, per_page=1)
    for number, file in enumerate(sorted({tmp_path / str(sample.image) for sample in written})):
        strip = Image.new("RGB", (826, 1168), "white")
        for top in range(10, 1150, 20):
            strip.paste((number, 0, 0), (320, top, 505, top + 8))
        strip.save(file)
    pages = prepare_samples(written, tmp_path, KeywordRule())
    x0, y0, x1, y1 = margins(open_image(pages[0].load()))
    assert count_tokens("glm-4.5v", x1 - x0, y1 - y0) >= 208
    for grid, cut in (((16, 64, 208), 0), ((64, 208), 4)):
        found = calibrated(pages, tmp_path / f"{cut}.jsonl", Oracle("glm-4.5v"), grid=grid)
        assert found.margins is not None
        assert found.margins.trimmed == cut
        evaluate(Oracle("glm-4.5v"), pages, found.policy, log=tmp_path / f"{cut}.evaluation.jsonl")


def test_by_default_margins_are_cut_off_where_budgets_are_realized_by_resizing(
    samples: list[Sample], tmp_path: Path
) -> None:
    found = calibrated(samples, tmp_path / "log.jsonl")
    assert found.policy.trim is True
    assert found.margins is not None
    assert (found.margins.trimmed, found.margins.images) == (8, 8)
    assert found.native_tokens == sum(count_tokens("qwen2.5-vl", *sample.size) for sample in samples)
    decision = found.policy.decide("What is the total?")
    assert decision.trim == 304
    assert found.policy.decide("What are the coordinates of the total?").trim == 0
    deleting = calibrated(samples, tmp_path / "deletion.jsonl", setting=Setting("deletion"))
    assert deleting.policy.trim is None
    assert deleting.policy.decide("What is the total?").trim == 0


def test_margins_are_cut_off_as_in_the_calibration_where_no_question_was_asked_at_its_largest_budget(
    samples: list[Sample], tmp_path: Path
) -> None:
    """Where tiers are equally frequent, no choice within the mean has 576 tokens: adaptive sampling asks at none."""
    x0, y0, x1, y1 = margins(open_image(samples[0].load()))
    assert 304 < count_tokens("qwen2.5-vl", x1 - x0, y1 - y0) < 576
    found = calibrated(samples, tmp_path / "log.jsonl", grid=(*GRID, 576), sampling=AdaptiveSampling())
    assert max(found.curves["high"].budgets) == 304
    assert found.margins is not None
    assert found.margins.trimmed == 0
    assert found.policy.decide("What is the total?").trim == 576
    evaluate(Oracle(), samples, found.policy, log=tmp_path / "evaluation.jsonl")
    assert {one.native for one in read_outcomes(tmp_path / "evaluation.jsonl")} == {
        count_tokens("qwen2.5-vl", *samples[0].size)
    }


def test_a_policy_without_curves_keeps_margins_where_a_second_attempt_would_be_short() -> None:
    tiers = {
        "high": {"cost": 5, "budget": 208, "escalate": {"to": 576, "below": 0.5}},
        "low": {"cost": 1, "budget": 96},
    }
    record = {"schema": 2, "mean_budget": 208, "tiers": tiers, "trim": True, "confidence": CONFIDENCE}
    assert Policy.from_record(record).decide("What is the total?").trim == 576


def test_an_engine_that_resizes_itself_gets_whole_images_and_refuses_trim(
    samples: list[Sample], tmp_path: Path
) -> None:
    model = Oracle()
    model.named = ModelName(name="oracle", endpoint="http://127.0.0.1:1/v1", actuator="vllm")  # type: ignore[attr-defined]
    assert calibrated(samples, tmp_path / "log.jsonl", model).policy.trim is None
    with pytest.raises(BadInput, match="with --actuator vllm they are sent as they are; leave out --trim"):
        calibrated(samples, tmp_path / "trimmed.jsonl", model, trim=True)


def test_the_policy_records_trim_and_a_log_of_whole_images_is_refused(samples: list[Sample], tmp_path: Path) -> None:
    whole = calibrated(samples, tmp_path / "log.jsonl", trim=False).policy
    assert whole.trim is None
    with pytest.raises(StakesError, match=r"whole images where margins are cut off now \(--no-trim\)"):
        calibrated(samples, tmp_path / "log.jsonl")
    cut = calibrated(samples, tmp_path / "trimmed.jsonl").policy
    assert cut.documents == whole.documents  # an image is known whether it was trimmed or not
    natives = [{one.native for one in read_outcomes(tmp_path / name)} for name in ("log.jsonl", "trimmed.jsonl")]
    assert max(natives[1]) < 0.5 * min(natives[0])


def test_a_policy_with_trim_is_evaluated_on_trimmed_images(samples: list[Sample], tmp_path: Path) -> None:
    policy = calibrated(samples, tmp_path / "trimmed.jsonl").policy
    result = evaluate(Oracle(), samples, policy, log=tmp_path / "evaluation.jsonl")
    native = {one.native for one in read_outcomes(tmp_path / "evaluation.jsonl")}
    assert native == {one.native for one in read_outcomes(tmp_path / "trimmed.jsonl")}
    assert result.held_out is False


def test_a_report_shows_the_pages_as_they_were_measured(samples: list[Sample], tmp_path: Path) -> None:
    calibrated(samples, tmp_path / "policy.outcomes.jsonl").policy.save(tmp_path / "policy.json")
    run = read_run(tmp_path / "policy.json")
    sample = replace(samples[0], box=(300.0, 420.0, 400.0, 440.0))
    seen = see(run, sample, run.by_sample[sample.id])
    x0, y0, x1, y1 = margins(open_image(sample.load()))
    assert seen.image.size == (x1 - x0, y1 - y0)
    assert seen.place is not None
    assert seen.place.box == (300 - x0, 420 - y0, 400 - x0, 440 - y0)
    tokens = {row.budget: row.realised for row in seen.rows}
    assert [one.tokens for one in seen.fitted] == list(tokens.values())
