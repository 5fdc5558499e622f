"""Labels with a cost each are enough: ``calibrate`` trains the signal, and rests on its readings out of fold."""

import io
import json
import random
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path

import pytest
from tests.evaluation.oracle import Oracle, page

import stakes
from stakes.budgets.policy import Policy
from stakes.calibration.calibrate import CalibrationOptions
from stakes.calibration.certify.certificate import Certification
from stakes.calibration.reading import default_signal, settle_tiers, train_on_labels
from stakes.calibration.result import Calibration
from stakes.cli import main
from stakes.commands.output.calibration import format_training
from stakes.data.sample import Sample
from stakes.errors import BadInput
from stakes.evaluation.samples import prepare_samples
from stakes.signals import KeywordRule, LearnedSignal, RequestSignal, from_dict

COSTS = {"total": 20.0, "date": 5.0, "company": 2.0, "address": 1.0}
TWO = {"high": 5.0, "low": 1.0}
OPTIONS = CalibrationOptions(grid=(32, 304, 576))
ASKED = {"total": "total amount", "date": "date", "company": "company name", "address": "postal address"}


def receipts(folder: Path, pages: int = 30, *, alike: bool = False, noise: float = 0.0) -> list[Sample]:
    """Four fields on every page, asked for in the same words or in other ones; ``noise``: wrong labels."""
    rng, samples = random.Random(1), []
    for number in range(pages):
        page(number).save(folder / f"page{number}.png", compress_level=1)
        for field, what in ASKED.items():
            text = f"What is the {what}?" if alike else f"What {what} is given for word{number}x{rng.randrange(999)}?"
            tier = rng.choice(sorted(ASKED)) if rng.random() < noise else field
            samples.append(
                Sample(f"p{number}-{field}", text, ("x",), image=f"page{number}.png", tier=tier, document=f"d{number}")
            )
    return samples


def write(folder: Path, samples: list[Sample]) -> Path:
    fields = ("id", "image", "question", "answers", "tier", "document")
    path = folder / "questions.jsonl"
    path.write_text("".join(json.dumps({name: getattr(s, name) for name in fields}) + "\n" for s in samples))
    return path


@pytest.fixture(scope="module")
def noisy(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Sample], Calibration]:
    folder = tmp_path_factory.mktemp("noisy")
    samples = prepare_samples(receipts(folder, noise=0.2), folder)
    return samples, stakes.calibrate(samples, Oracle(), costs=COSTS, options=OPTIONS)


def test_labels_of_any_name_are_learned_and_the_policy_reads_them(noisy: tuple[list[Sample], Calibration]) -> None:
    samples, found = noisy
    signal = from_dict(found.policy.signal)
    assert type(signal) is LearnedSignal
    assert (signal.most_expensive, signal.costs) == ("total", COSTS)
    assert found.policy.decide("What date is given?").tier == "date"
    assert found.policy.decide("Wie lautet die Anschrift?").tier == "total", "unfamiliar text is not cheap"
    assert all(signal.trained_on(sample.question) for sample in samples), "the policy's signal has seen every label"


def test_the_budgets_rest_on_readings_out_of_fold(noisy: tuple[list[Sample], Calibration]) -> None:
    samples, found = noisy
    training = found.training
    assert training is not None
    assert training.readings is not None
    measured = {outcome.sample: outcome.tier for outcome in found.run.outcomes.values()}
    assert [measured[sample.id] for sample in samples] == list(training.readings)
    # a fifth of the labels are chance: held out they cannot be read, whatever a signal trained on them makes of them
    wrong = [i for i, sample in enumerate(samples) if not sample.id.endswith(f"-{sample.tier}")]
    assert len(wrong) > 10
    assert sum(training.readings[i] == samples[i].tier for i in wrong) <= len(wrong) / 3
    assert training.agreement == pytest.approx(
        sum(a == b.tier for a, b in zip(training.readings, samples, strict=True)) / len(samples)
    )


def test_a_model_that_read_a_sample_saw_neither_its_document_nor_its_text(tmp_path: Path) -> None:
    """Of two labels only one document has, one is its own: out of fold nobody can read it."""
    samples = prepare_samples(receipts(tmp_path), tmp_path)
    odd = [replace(s, tier="date", question=f"Zyx qwv {s.id}?") if s.document == "d7" else s for s in samples]
    training = train_on_labels(odd, COSTS)
    assert training.readings is not None
    assert {r for s, r in zip(odd, training.readings, strict=True) if s.document == "d7"} == {"total"}, "undecided"


def test_the_same_four_questions_on_every_page_keep_their_labels_and_say_so(tmp_path: Path) -> None:
    samples = prepare_samples(receipts(tmp_path, alike=True), tmp_path)
    options = replace(OPTIONS, certification=Certification())
    found = stakes.calibrate(samples, Oracle(), costs=COSTS, options=options)
    training = found.training
    assert training is not None
    assert (training.readings, training.agreement, training.kappa) == (None, None, None)
    assert "120 questions have 4 texts" in training.why_not
    assert {o.sample.split("-")[1]: o.tier for o in found.run.outcomes.values()} == {tier: tier for tier in COSTS}
    assert [found.policy.decide(f"What is the {what}?").tier for what in ASKED.values()] == list(ASKED)
    assert found.policy.certificate is not None
    assert found.policy.certificate["tiers"] == "named"
    said = " ".join(format_training(training))
    assert "trained on the 120 labels (30 total, 30 date, 30 company, 30 address)" in said
    assert "not checked on questions that it has not seen" in said
    assert "%" not in said


def test_the_command_trains_and_says_how_well_it_reads_each_tier(tmp_path: Path) -> None:
    """The same as ``stakes.calibrate``; OCR stands in for a model, as it answers without weights."""
    from stakes.commands.options.inputs import default_signal as of_command

    path = write(tmp_path, receipts(tmp_path))
    assert of_command(path, COSTS, stated=True) == "train"
    assert of_command(path, TWO, stated=False) == "requests"
    assert of_command(None, TWO, stated=True) == "keywords"
    with pytest.raises(BadInput, match="the label 'date' has no cost; give one for every label, such as --cost date=1"):
        of_command(path, {"total": 20.0}, stated=True)
    found = stakes.calibrate(path, Oracle(), costs=COSTS, options=OPTIONS)
    assert found.training is not None
    said = " ".join(format_training(found.training))
    assert "with documents and texts held out, it reads" in said
    assert all(f"{tier} " in said for tier in COSTS)
    assert json.loads(json.dumps(found.record()["training"]))["right_by_tier"] == found.training.right_by_tier


def test_too_few_labels_are_taken_as_they_are_by_default_and_refused_by_name(tmp_path: Path) -> None:
    few = prepare_samples(
        [replace(s, tier="high" if s.tier == "total" else "low") for s in receipts(tmp_path, 6)], tmp_path
    )
    settled = settle_tiers(few, TWO, "train", named=False)
    assert settled.labels
    assert isinstance(settled.signal, RequestSignal)
    assert "only 6 questions are labelled 'high' (6 high, 18 low), and a signal needs at least 10" in settled.note
    with pytest.raises(BadInput, match="only 6 questions are labelled 'high'"):
        settle_tiers(few, TWO, "train")
    three = [replace(s, tier=t) for s, t in zip(few, ["a", "b", "c"] * 8, strict=True)]
    with pytest.raises(BadInput, match="only 8 questions are labelled 'a'"):
        settle_tiers(three, {"a": 9, "b": 2, "c": 1}, "train", named=False)


def test_python_and_the_command_have_one_rule(tmp_path: Path) -> None:
    samples = receipts(tmp_path)
    assert default_signal(samples, COSTS) == "train"
    some = [replace(samples[0], tier=""), *samples[1:]]
    with pytest.raises(BadInput, match="1 of 120 samples have no tier, and requests by itself reads only"):
        default_signal(some, COSTS)
    assert default_signal([replace(s, tier="") for s in samples], TWO) == "requests"
    named = stakes.calibrate(prepare_samples(samples, tmp_path, KeywordRule()), Oracle(), costs=TWO,
                             signal=KeywordRule(), options=OPTIONS)  # fmt: skip
    assert (named.training, named.policy.signal["kind"]) == (None, "keywords")


def test_a_certificate_covers_requests_as_they_are_read_and_a_resumed_run_is_the_same(tmp_path: Path) -> None:
    samples = prepare_samples(
        [replace(s, tier="high" if s.tier in ("total", "date") else "low") for s in receipts(tmp_path)], tmp_path
    )
    options, log = replace(OPTIONS, certification=Certification()), tmp_path / "log.jsonl"
    found = stakes.calibrate(samples, Oracle(), costs=TWO, log=log, options=options)
    assert found.policy.certificate is not None
    assert found.policy.certificate["tiers"] == "labelled", "not only for requests that name their tier"
    again = stakes.calibrate(samples, Oracle(), costs=TWO, log=log, options=options)
    assert (again.run.answered, again.policy.model_dump_json()) == (0, found.policy.model_dump_json())


def test_per_request_costs_are_estimated_out_of_fold(tmp_path: Path) -> None:
    samples = prepare_samples(receipts(tmp_path, noise=0.2), tmp_path)
    found = stakes.calibrate(samples, Oracle(), costs=COSTS, options=replace(OPTIONS, per_request=True))
    assert found.training is not None
    assert found.policy.per_request is not None
    assert found.policy.per_request.estimate is not None
    assert found.policy.per_request.estimate["right"] == pytest.approx(found.training.agreement)
    trained = from_dict(found.policy.signal)
    in_sample = sum(trained(s.question).tier == s.tier for s in samples) / len(samples)
    assert in_sample > found.policy.per_request.estimate["right"]


def test_explain_takes_the_trained_policy_and_every_signal(tmp_path: Path) -> None:
    samples = receipts(tmp_path)
    found = stakes.calibrate(prepare_samples(samples, tmp_path), Oracle(), costs=COSTS, options=OPTIONS)
    found.policy.save(tmp_path / "policy.json")
    assert Policy.load(tmp_path / "policy.json") == found.policy
    (tmp_path / "words.txt").write_text("date\n")
    from_dict(found.policy.signal).save(tmp_path / "signal.json")  # type: ignore[attr-defined]
    policy = ("--policy", tmp_path / "policy.json")
    assert explain("What date is given?", *policy)["tier"] == "date"
    for signal in ("requests", f"learned:{tmp_path / 'signal.json'}", str(tmp_path / "signal.json")):
        assert explain("What total amount is given?", *policy, "--signal", signal)["tier"] == "total"
        assert explain("What total amount is given?", "--signal", signal)["decided"] is True
    assert explain("What date?", "--signal", f"keywords:{tmp_path / 'words.txt'}")["tier"] == "high"
    assert explain("?", "--task", "a", "--signal", "task:a=low,b=high")["tier"] == "low"


def explain(*words: object) -> dict[str, object]:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as left:
        main(["explain", *map(str, words), "--json"])
    assert not left.value.code, err.getvalue()
    read = json.loads(out.getvalue())
    assert isinstance(read, dict)
    return read
