"""A calibration ships options where they win, and states what they do in the file and in the summary."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.evaluation.oracle import Oracle, difficulty, write_samples

from stakes.budgets.policy import Policy
from stakes.calibration.calibrate import CalibrationOptions, calibrate
from stakes.calibration.certify.certificate import Certification
from stakes.calibration.escalation.step import OptionRequest
from stakes.calibration.evaluate import evaluate
from stakes.calibration.result import Calibration
from stakes.commands.output.calibration import print_calibration
from stakes.data.sample import Sample
from stakes.errors import BadInput
from stakes.evaluation.samples import prepare_samples
from stakes.models.base import CONFIDENCE, Answer, Request
from stakes.signals import KeywordRule

COSTS = {"high": 20.0, "low": 1.0}


class Sure(Oracle):
    """The oracle that knows how far it is from reading."""

    def answer(self, requests: Sequence[Request]) -> list[Answer]:
        return [
            replace(answer, confidence=min(1.0, max(0.0, 0.5 + (answer.realised_tokens - hard) / 800)))
            for answer, hard in zip(
                super().answer(requests), [difficulty(one.image, one.question) for one in requests], strict=True
            )
        ]


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> list[Sample]:
    folder = tmp_path_factory.mktemp("samples")
    return prepare_samples(write_samples(folder, pages=120), folder, KeywordRule())


def made(samples: list[Sample], model: Oracle, **given: Any) -> Calibration:
    wanted = OptionRequest(
        **{name: given.pop(name) for name in ("escalate", "review_cost", "predict") if name in given}
    )
    options = CalibrationOptions(grid=(64, 160, 304, 448, 608), estimator="raw", beside_budgets=wanted, **given)
    return calibrate(samples, model, costs=COSTS, mean_budget=304, signal=KeywordRule(), options=options)


@pytest.fixture(scope="module")
def reviewed(samples: list[Sample]) -> Calibration:
    return made(samples, Sure(), review_cost=2.0)


def test_the_policy_has_the_thresholds_and_their_evidence(reviewed: Calibration, tmp_path: Path) -> None:
    reviewed.policy.save(tmp_path / "policy.json")
    policy = Policy.load(tmp_path / "policy.json")
    assert policy.confidence == CONFIDENCE
    high = policy.tiers["high"]
    assert high.review_below is not None
    assert high.evidence is not None
    assert high.evidence.documents == 60
    assert high.evidence.upper is not None
    assert 0 < high.evidence.flagged < 1
    assert reviewed.record()["beside_budgets"]["taken"]  # type: ignore[index]


def test_the_summary_states_the_error_of_unflagged_answers_and_the_share_flagged(
    reviewed: Calibration, capsys: pytest.CaptureFixture[str]
) -> None:
    print_calibration(reviewed, "samples.jsonl", Path("policy.json"), Path("log.jsonl"))
    said = capsys.readouterr().out
    assert "Options ship, chosen on 60 documents and judged on the other 60" in said
    assert "of the unflagged answers" in said
    assert "go to a person." in said


def test_without_escalation_budgets_are_fixed(samples: list[Sample]) -> None:
    found = made(samples, Sure(), escalate=False, predict=False)
    assert found.policy.fixed
    assert found.policy.confidence is None
    assert found.beside_budgets.record() == {"why_not": ""}


def test_a_model_without_confidence_is_refused_where_escalation_is_required(samples: list[Sample]) -> None:
    assert "no answer has a confidence" in made(samples, Oracle(), predict=False).beside_budgets.why_not
    with pytest.raises(BadInput, match="depend on an answer's confidence: no answer has a confidence; the model gives"):
        made(samples[:80], Oracle(), escalate=True)


def test_a_certificate_covers_the_options_that_ship(samples: list[Sample]) -> None:
    found = made(samples, Sure(), review_cost=2.0, certification=Certification())
    assert found.certificate is not None
    assert found.certificate.shipped == "tiered"
    assert found.policy.certificate is not None
    assert found.policy.certificate["options"] == {t: str(o) for t, o in found.policy.options.items()}
    assert found.policy.tiers["high"].evidence is not None
    assert found.policy.tiers["high"].evidence.documents == 90


def test_arms_of_fixed_budgets_do_not_evaluate_options(samples: list[Sample], reviewed: Calibration) -> None:
    with pytest.raises(BadInput, match="arms are budgets of one total, and this policy asks again"):
        evaluate(Sure(), samples, reviewed.policy, log="unused.jsonl")
