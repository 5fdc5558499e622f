"""Every measured table on a model whose answers are known: rows, totals and findings that follow the data."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from PIL import Image
from tests.data.hub.tables import HIGH, LOW, picture, row, write_copy

from stakes.budgets.curve import PAPER_GRID
from stakes.data.sample import Sample
from stakes.errors import BadInput
from stakes.evaluation.fingerprint import Setting
from stakes.evaluation.outcome_log import read_outcomes
from stakes.experiments.estimate import answers
from stakes.experiments.sampling import first_of_each_tier
from stakes.experiments.study import Other, Study
from stakes.experiments.tables import TABLES, escalation, experiment, latency, models, signals, tiers
from stakes.models.base import Answer, Request
from stakes.signals import KeywordRule
from stakes.vision.geometry import count_tokens
from stakes.vision.geometry.ladder import ladder
from stakes.vision.image.decode import open_image
from stakes.vision.image.resize import fitted_size

OPEN = ("map", "both-gaps", "signals", "selector-curves", "tiers")  # the paper has no such tables


@dataclass
class Scholar:
    """Knows every answer, and gives it once the tokens reach the question's own need; a color needs one token."""

    known: dict[str, tuple[str, int]] = field(default_factory=dict)
    family: str = "qwen2.5-vl"
    answered: int = 0

    def learn(self, samples: Sequence[Sample], most: int) -> None:
        for sample in samples:
            drawn = int.from_bytes(hashlib.blake2b(sample.id.encode(), digest_size=4).digest(), "big") / 2**32
            self.known[sample.question + sample.digest] = sample.answers[0], 1 + int(drawn * most)
            self.known[sample.id] = self.known[sample.question + sample.digest]

    def identity(self) -> dict[str, str]:
        return {"name": "scholar"}

    def answer(self, requests: Sequence[Request]) -> list[Answer]:
        self.answered += len(requests)
        return [self._answer(request) for request in requests]

    def _answer(self, request: Request) -> Answer:
        image = request.image if isinstance(request.image, Image.Image) else open_image(request.image)
        native = count_tokens(self.family, *image.size)
        budget = request.budget or native
        spent = fitted_size(*image.size, budget, self.family).tokens if request.mechanism == "resolution" else budget
        key = request.sample or request.question + hashlib.blake2b(image.tobytes(), digest_size=16).hexdigest()
        text, need = self.known[key]
        read, sure = text if spent >= need else "unreadable", min(1.0, spent / need / 2)
        return Answer(read, native, request.budget, spent, False, {"prefill": 1.0}, confidence=sure)


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, int]]:
    model = Scholar()
    study = Study(model, "scholar", tmp_path_factory.mktemp("known"), per_tier=16)
    for family, most in (("forms", 800), ("charts", 300)):
        model.learn(escalation.pages_of(study, family), most)
    for family, most in (("forms", 600), ("charts", 450), ("infographics", 900), ("signs", 200), ("shapes", 60)):
        model.learn(study.questions(family, 16), most)
    model.learn(study.questions("swatches", 16), 1)
    return model.known


@pytest.fixture
def study(tmp_path: Path, known: dict[str, tuple[str, int]]) -> Study:
    return Study(Scholar(known), "scholar", tmp_path, per_tier=16)


@pytest.mark.parametrize("family", ["reader-llava", "llava-onevision"])
def test_the_three_arms_of_an_anyres_model_spend_one_total_on_its_rungs(study: Study, family: str) -> None:
    tiles = Scholar(family=family)
    other = replace(study, model=tiles, name="tiles")
    samples = other.questions("forms")
    tiles.learn(samples, 3000)
    arms = models.measure(other)
    assert list(arms.outcomes) == ["uniform", "cost", "anti"]
    spent = [sum(one.realised for one in outcomes) for outcomes in arms.outcomes.values()]
    assert max(spent) / min(spent) - 1 <= 2e-4
    for tier, share in (("high", 4732 / 5589), ("low", 1306 / 5589)):  # the paper's shares of the largest rung
        for outcome in (one for one in arms.outcomes["cost"] if one.tier == tier):
            size = next(sample.size for sample in samples if sample.id == outcome.sample)
            rungs = [rung.tokens for rung in ladder(*size, family)]
            assert outcome.realised == min(rungs, key=lambda tokens: abs(tokens - share * rungs[-1]))


def test_models_beside_the_studys_own_are_measured_and_their_absence_is_reported(study: Study) -> None:
    small = Scholar(dict(study.model.known))  # type: ignore[attr-defined]
    made = experiment("models").table(replace(study, others={"scale": Other("small", lambda: small)}))
    assert [row[:3] for row in made.rows if row[0] == "small"] == [
        ("small", "scale", arm) for arm in ("uniform", "cost", "anti")
    ]
    assert "architecture was not measured: give --architecture-model NAME" in made.findings
    assert [row[:2] for row in made.rows if row[0] == "published"] == [("published", "scale")] * 3 + [
        ("published", "architecture")
    ] * 3


def test_curves_of_an_anyres_model_leave_out_the_mechanism_that_it_cannot_take(
    study: Study, known: dict[str, tuple[str, int]]
) -> None:
    made = experiment("curves").table(replace(study, model=Scholar(known, family="reader-llava"), name="tiles"))
    assert {row[1] for row in made.rows if row[0] == "tiles"} == {"deletion"}
    assert made.findings[0].startswith("by resolution: not measured: sample 'forms/")


def test_invariance_of_an_anyres_model_lists_what_its_sizes_cannot_pay(
    study: Study, known: dict[str, tuple[str, int]]
) -> None:
    made = experiment("invariance").table(replace(study, model=Scholar(known, family="reader-llava"), name="tiles"))
    assert {row[1:3] for row in made.rows if row[0] == "tiles" and row[1] != "selector"} == {
        ("mechanism", "zero-masking, redundancy")
    }
    assert any(line.startswith("not measured: mechanism resolution: arm") for line in made.findings)


def test_invariance_measures_the_selectors_that_are_named_and_shows_those_that_are_published(study: Study) -> None:
    named = replace(study, selectors=("pyramiddrop", "redundancy:seed=nearest", "random"))
    made = experiment("invariance").table(named)
    rows = [(row[0], row[2]) for row in made.rows if row[1] == "selector"]
    assert rows == [*(("scholar", spec) for spec in named.selectors), ("published", "random")]
    fewer = answers(experiment("invariance").asks(study)) - answers(experiment("invariance").asks(named))
    assert fewer == 3 * 2 * 2 * 16


def test_a_log_of_another_experiment_is_refused_with_the_option_that_reproduce_has(study: Study) -> None:
    samples = study.questions("forms")
    study.answers("forms", samples, [[304] * len(samples)])
    with pytest.raises(BadInput, match="answers to 32 other questions .*; give another --folder, or delete it"):
        study.answers("forms", [replace(sample, question="Who?") for sample in samples], [[304] * len(samples)])


@pytest.mark.parametrize("name", [name for name in TABLES if name not in ("labels", "receipts")])
def test_every_table_has_ours_beside_the_published(name: str, study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latency, "TIMED", 2)
    monkeypatch.setattr(signals, "LABELED", (40,))
    monkeypatch.setattr(escalation, "FAMILIES", ("forms", "charts"))
    monkeypatch.setattr(escalation, "MEANS", (224,))
    monkeypatch.setattr(escalation, "RATIOS", (5.0,))
    made = experiment(name).table(study)
    assert made.rows
    assert made.findings
    assert made.name == name
    assert isinstance(study.model, Scholar)
    if name != "models":  # there is no other model
        slack = {"map": 1.4, "both-gaps": 1.4, "signals": 1.4, "diagnostics": 1.2}.get(name, 1.02)  # asks alike
        asked = answers(experiment(name).asks(study))
        assert 0 < study.model.answered <= asked <= slack * study.model.answered
    ours = ("map", "models", "both-gaps", "signals", "selector-curves", "tiers", "escalation")
    if name not in ours:  # cells that the paper left open
        assert {row[0] for row in made.rows} == {"scholar", "published"}
    before = study.model.answered
    again = experiment(name).table(study)
    if name != "latency":  # times differ
        assert again == made
        assert study.model.answered == before, "answers in the log are not requested again"
    logs = [log for log in study.folder.glob("*.jsonl") if log.name != "judge.jsonl"]
    metrics = {outcome.metric for log in logs for outcome in read_outcomes(log)}
    assert metrics == ({"relaxed"} if logs else set()), "graded as in the paper, whatever the default is"


def _number(cell: object) -> float:
    assert isinstance(cell, float)
    return cell


def test_cost_cuts_the_high_cost_tiers_error_and_anti_raises_it(study: Study) -> None:
    made = experiment("within-task").table(study)
    ours = {row[1]: row for row in made.rows if row[0] == "scholar"}
    high = {arm: _number(row[2]) for arm, row in ours.items()}
    assert high["cost"] < high["uniform"] < high["anti"]
    assert len({row[10] for row in ours.values()}) == 1, "all arms realise one total"
    assert made.meta["total"] == 16 * (512 + 96)
    theirs = {row[1]: row for row in made.rows if row[0] == "published"}
    assert (theirs["cost"][2], theirs["cost"][6], theirs["uniform"][2]) == (0.133, "54:4", 0.3)


def test_the_frontier_records_its_curves(study: Study) -> None:
    made = experiment("frontier").table(study)
    curves = made.meta["curves"]
    assert isinstance(curves, dict)
    outcomes = read_outcomes(study.log("forms", study.questions("forms"), Setting("deletion", None, "relaxed")))
    wrong = [o for o in outcomes if o.tier == "high" and o.budget == 304 and not o.correct]
    assert curves["high"][304] == pytest.approx(len(wrong) / 16)
    pair = next(row for row in made.rows if row[:2] == ("scholar", "(512, 96)"))
    assert _number(pair[2]) == pytest.approx(curves["high"][512])
    assert _number(pair[3]) == pytest.approx(curves["low"][96])
    assert _number(pair[6]) == pytest.approx((5 * curves["high"][512] + curves["low"][96]) / 6)  # r = 5


def test_saturated_tasks_are_distinguished_from_sensitive_ones(study: Study) -> None:
    finding = experiment("diagnostics").table(study).findings[0]
    sensitive, _, rest = finding.partition("; no loss")
    assert "forms" in sensitive
    assert "swatches" in rest.partition("(")[0]


def test_composition_wins_with_both_gaps(study: Study) -> None:
    rows = experiment("map").table(study).rows
    cwe = {row[2]: _number(row[5]) for row in rows if row[:2] == ("yes", "yes")}
    assert cwe["composition"] < min(cwe["uniform"], cwe["content"])
    alone = experiment("both-gaps").table(study)
    assert [row[1:] for row in alone.rows] == [row[2:] for row in rows if row[:2] == ("yes", "yes")]


def test_signals_spend_one_total_and_budgets_follow_what_was_read(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signals, "LABELED", (40,))
    made = experiment("signals").table(study)
    rows = {row[1]: row for row in made.rows}
    assert list(rows) == ["uniform", "labels", "requests", "keywords", "learned from 40", "all misread"]
    samples = study.questions("forms")
    readings = {"labels": [sample.tier for sample in samples], "none": ["low"] * len(samples)}
    arms = signals.plan(study, samples, readings)
    assert {sum(budgets) for budgets in arms.values()} == {made.meta["total"]} == {16 * (512 + 96)}
    assert set(arms["labels"]) == {512, 96}
    assert set(arms["none"]) == {304}, "where all are read alike, all get the mean"
    assert rows["labels"][2:5] == (16, 0.0, 0.0)
    wrong = sum(KeywordRule()(sample.question).tier != sample.tier for sample in samples)
    assert round(16 * (_number(rows["keywords"][3]) + _number(rows["keywords"][4]))) == wrong > 0
    assert max(_number(rows[name][7]) for name in ("labels", "keywords")) < _number(rows["all misread"][7])


def test_four_groups_differ_in_cost_only_and_share_one_total(study: Study) -> None:
    samples = study.questions("forms")
    halves = tiers.groups(samples)
    assert not {sample.document for sample in halves[0]} & {sample.document for sample in halves[1]}
    for half in (*halves, *tiers.groups(samples[:-1])):  # one of the last groups would be short, so a turn is left out
        sizes = Counter((sample.tier, sample.label) for sample in half)
        assert all(sizes[group, label] == sizes["first", label] for group in tiers.COSTS for label in ("high", "low"))
    rows = {row[1]: row for row in experiment("tiers").table(study).rows}
    assert {row[-1] for row in rows.values()} == {304 * sum(map(len, halves))}
    answered = study.answers("forms", samples, [[budget] * len(samples) for budget in PAPER_GRID])
    chosen = [tiers.choose(tiers.error_curve(half, answered), 4) for half in halves[::-1]]
    assert len(set(chosen)) == 2
    assert rows["four tiers"][2] == "; ".join(", ".join(map(str, one)) for one in chosen), "by the other half's curve"
    assert _number(rows["four tiers"][7]) < _number(rows["uniform"][7]) < _number(rows["four tiers, reversed"][7])
    with pytest.raises(BadInput, match="four questions of a tier on each; raise --per-tier"):
        tiers.groups(study.questions("forms")[:3])


def test_budgets_of_more_tiers_are_no_worse_on_the_curve_that_they_are_chosen_on() -> None:
    curve = {budget: max(0.0, 1 - (budget / 500) ** 2) for budget in PAPER_GRID}
    cost = {
        count: sum(c * curve[b] for c, b in zip(tiers.COSTS.values(), tiers.choose(curve, count), strict=True))
        for count in (1, 2, 3, 4)
    }
    assert cost[4] <= cost[3] <= cost[2] < cost[1]
    assert tiers.choose(curve, 1) == (304, 304, 304, 304)


def test_a_source_is_a_family_or_a_file(study: Study, tmp_path: Path) -> None:
    assert study.source("docvqa") == "forms"
    with pytest.raises(BadInput, match="no data is called 'nowhere.jsonl'"):
        study.questions("nowhere.jsonl")
    samples = study.questions("forms", 3)
    assert [sample.tier for sample in first_of_each_tier(samples, 1)].count("high") == 1


def test_curves_are_measured_by_both_mechanisms(study: Study) -> None:
    made = experiment("curves").table(study)
    assert [row[1] for row in made.rows if row[0] == "scholar"] == ["resolution"] * 2 + ["deletion"] * 2
    logs = [path.name for path in study.folder.glob("*.jsonl")]
    assert sorted("resolution" in name for name in logs) == [False, True], logs


def test_labels_need_real_texts(study: Study) -> None:
    with pytest.raises(BadInput, match="--data docvqa=FILE"):
        experiment("labels").table(study)


def test_a_parquet_copy_of_the_hub_is_read_by_the_papers_protocol(study: Study, tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    page = picture(600, 800)
    rows = [row("docvqa", i, (HIGH, LOW)[i % 2], None if i > 256 else page) for i in range(264)]
    copy = write_copy("docvqa", tmp_path / "hub", rows)
    real = replace(study, data={"docvqa": "docvqa"}, copies={"docvqa": copy}, per_tier=3)
    samples = real.questions(real.source("docvqa"))
    assert [sample.tier for sample in samples].count("high") == [sample.tier for sample in samples].count("low") == 3
    assert {sample.size for sample in samples} == {(756, 1008)}, "the longer side is 1008"
    assert samples[0].id == "docvqa_val_1257", "behind the rows of the pilot"
    assert isinstance(real.model, Scholar)
    real.model.learn(samples, 600)
    made = experiment("within-task").table(real)
    assert made.meta["questions"] == {"high": 3, "low": 3}
    real.questions(real.source("docvqa"))  # from the fetched file; the copy is no longer needed
