"""A calibration with trim measures trimmed images, says so in its policy, and is evaluated on trimmed images."""

from pathlib import Path

import pytest
from tests.evaluation.oracle import Oracle, write_samples

from stakes.calibration.calibrate import CalibrationOptions, calibrate
from stakes.calibration.evaluate import evaluate
from stakes.calibration.result import Calibration
from stakes.data.sample import Sample
from stakes.errors import StakesError
from stakes.evaluation.outcome_log import read_outcomes
from stakes.evaluation.samples import prepare_samples, trim_samples
from stakes.signals import KeywordRule
from stakes.vision.image.decode import open_image
from stakes.vision.image.trim import margins

COSTS = {"high": 5.0, "low": 1.0}


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


def calibrated(samples: list[Sample], log: Path, *, trim: bool) -> Calibration:
    options = CalibrationOptions(grid=(96, 208, 304), trim=trim)
    return calibrate(samples, Oracle(), costs=COSTS, mean_budget=208, signal=KeywordRule(), log=log, options=options)


def test_trimmed_samples_are_the_box_of_their_images_under_a_digest_of_their_own(samples: list[Sample]) -> None:
    for sample, trimmed in zip(samples, trim_samples(samples), strict=True):
        image = open_image(sample.load())
        x0, y0, x1, y1 = margins(image)
        assert trimmed.size == open_image(trimmed.load()).size == (x1 - x0, y1 - y0) != sample.size
        assert open_image(trimmed.load()).tobytes() == image.crop((x0, y0, x1, y1)).tobytes()
        assert trimmed.digest != sample.digest
        assert (trimmed.id, trimmed.document, trimmed.tier) == (sample.id, sample.document, sample.tier)


def test_the_policy_records_trim_and_a_log_of_whole_images_is_refused(samples: list[Sample], tmp_path: Path) -> None:
    whole = calibrated(samples, tmp_path / "log.jsonl", trim=False).policy
    assert whole.trim is None
    with pytest.raises(StakesError, match="image"):
        calibrated(samples, tmp_path / "log.jsonl", trim=True)
    trimmed = calibrated(samples, tmp_path / "trimmed.jsonl", trim=True).policy
    assert trimmed.trim is True
    assert trimmed.documents == whole.documents  # an image is known whether it was trimmed or not
    natives = [{one.native for one in read_outcomes(tmp_path / name)} for name in ("log.jsonl", "trimmed.jsonl")]
    assert max(natives[1]) < 0.5 * min(natives[0])


def test_a_policy_with_trim_is_evaluated_on_trimmed_images(samples: list[Sample], tmp_path: Path) -> None:
    policy = calibrated(samples, tmp_path / "trimmed.jsonl", trim=True).policy
    result = evaluate(Oracle(), samples, policy, log=tmp_path / "evaluation.jsonl")
    native = {one.native for one in read_outcomes(tmp_path / "evaluation.jsonl")}
    assert native == {one.native for one in read_outcomes(tmp_path / "trimmed.jsonl")}
    assert result.held_out is False
