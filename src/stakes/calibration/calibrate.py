"""Calibrate: from labeled samples to a policy, in four steps that can also be called alone.

    calibration = stakes.calibrate("questions.jsonl", "./my-vlm", costs={"high": 5, "low": 1}, mean_budget=304)
    calibration.policy.save("policy.json")
    calibration.held_out.gain                 # what the choice is worth on documents that it was not made on

1. measure   answer the samples at every budget, or adaptively          ``measure.measure``
2. fit       estimate each tier's error curve                           ``estimators.fit``
3. choose    the budgets that minimize cost-weighted error              ``estimators.choose``
4. certify   choose on half of the documents, guarantee on the other    ``certify.certificate.certify``

Adaptive sampling, certification and per-request costs are values in ``CalibrationOptions``. The policy depends on the
set of outcomes and nothing else: a run that was killed and resumed gives the same bytes. Paper, section
"Calibrate-Then-Allocate".
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from stakes.budgets.curve import Curve, budgets_to_measure
from stakes.budgets.plan import check_feasible, make_plan
from stakes.budgets.policy import Policy, TierPlan, calibration_digests
from stakes.calibration.adaptive.sampler import AdaptiveSampling
from stakes.calibration.by_document import by_document, check_halves
from stakes.calibration.certify.certificate import Certification, certify
from stakes.calibration.certify.drift import disagreements
from stakes.calibration.estimators import DEFAULT, ChosenBudgets, Terms, check_estimator, choose
from stakes.calibration.holdout import HeldOut, held_out
from stakes.calibration.measure import Measurement, measure
from stakes.calibration.per_request import calibrate_per_request
from stakes.calibration.result import Calibration
from stakes.data.sample import Sample, read_samples
from stakes.errors import BadInput, StakesError
from stakes.evaluation.fingerprint import Setting
from stakes.evaluation.runner import RunOptions
from stakes.evaluation.samples import answerable, basis_of, prepare_samples
from stakes.models import VLM, load
from stakes.models.identity import family_of
from stakes.signals import KeywordRule, Signal, TaskIdentity, to_dict
from stakes.tiers import as_tiers


@dataclass(frozen=True)
class CalibrationOptions:
    """How a calibration is made; the defaults measure the paper's grid, scaled to the mean budget."""

    setting: Setting = field(default_factory=Setting)
    grid: Sequence[int] | None = None
    floor: int | None = None
    """The smallest budget permitted to any tier."""
    estimator: str = DEFAULT
    sampling: AdaptiveSampling | None = None
    """Leave out answers that can no longer change the choice."""
    certification: Certification | None = None
    """Choose on half of the documents, certify on the other, and ship only what holds."""
    per_request: bool = False
    """Spend by each request's expected cost. The samples' tiers must be labels; the signal predicts them."""
    run: RunOptions = field(default_factory=RunOptions)

    def __post_init__(self) -> None:
        check_estimator(self.estimator)
        chosen = {"a certificate": self.certification is not None, "per-request costs": self.per_request}
        for what, given in chosen.items():
            if given and self.sampling is not None:
                raise BadInput(
                    f"{what} need{'s' if what[0] == 'a' else ''} every question at every budget, and adaptive sampling "
                    "leaves most out; choose one"
                )
        if all(chosen.values()):
            raise BadInput("a certificate is about budgets by tier, and per-request costs have none; choose one")


def calibrate(
    samples: Sequence[Sample] | str | Path,
    model: VLM | str = "embedded",
    *,
    costs: Mapping[str, float],
    mean_budget: int = 304,
    signal: Signal | None = None,
    log: str | Path | None = None,
    options: CalibrationOptions | None = None,
) -> Calibration:
    """Measure the samples, fit and choose, check the choice, and make the policy.

    ``samples``: a JSONL file, or samples; those that are not prepared yet are (``prepare_samples``), with image paths
    relative to the working folder. ``signal``: reads the tiers of these samples and of requests. Without one, tiers are
    as labeled, and the policy reads requests by task or keywords. ``log``: keeps every answer, so that a killed run
    resumes; without one, answers are not kept.
    """
    options = options or CalibrationOptions()
    reader = None if options.per_request else signal
    if isinstance(samples, str | Path):
        samples = prepare_samples(read_samples(samples), Path(samples).parent, reader)
    elif not all(sample.digest for sample in samples):
        samples = prepare_samples(samples, "", reader)
    serving = serving_signal(samples, costs) if signal is None else signal
    check_tiers(samples, costs, serving)
    answerer: VLM = load(model) if isinstance(model, str) else model
    with _log_path(log) as path:
        calibration = _calibrate(samples, answerer, costs, mean_budget, serving, path, options)
    if signal is None and not options.per_request:
        calibration = calibration.by_labels(
            {sample.id: serving(sample.question, sample.task).tier for sample in samples}
        )
    return calibration


@contextmanager
def _log_path(log: str | Path | None) -> Iterator[Path]:
    """The log, or a temporary one."""
    if log is not None:
        yield Path(log)
        return
    with TemporaryDirectory() as folder:
        yield Path(folder) / "outcomes.jsonl"


def _calibrate(
    samples: Sequence[Sample],
    model: VLM,
    costs: Mapping[str, float],
    mean_budget: int,
    signal: Signal,
    log: Path,
    options: CalibrationOptions,
) -> Calibration:
    """The four steps, the checks between them, and the policy; ``samples`` are prepared."""
    floor, estimator = options.floor, options.estimator
    budgets = budgets_to_measure(options.grid, mean_budget, floor)
    samples, excluded = answerable(model, samples, log)
    check_tiers(samples, costs, signal)
    counts = Counter(sample.tier for sample in samples)
    terms = Terms(costs, {tier: counts[tier] for tier in costs}, mean_budget * len(samples), floor)
    check_feasible(costs, terms.counts, terms.total, budgets, floor)
    if options.certification is not None:
        check_halves([(sample.document, sample.tier) for sample in samples], list(costs))
    sampling = None if options.sampling is None else replace(options.sampling, estimator=estimator)
    measured = measure(model, samples, budgets, log, options.setting, options.run, terms=terms, sampling=sampling)
    outcomes, adaptive = measured.outcomes, measured.adaptive
    tables = by_document(outcomes, costs)
    if adaptive is None:
        chosen = choose(tables, terms, estimator)
    else:
        chosen = ChosenBudgets(adaptive.budgets, adaptive.fitted)
    certificate = None
    if options.certification is not None:
        certificate = certify(tables, costs, mean_budget, options.certification, estimator=estimator, floor=floor)
    shipped = chosen.budgets if certificate is None else certificate.budgets
    basis = basis_of(model)
    # Drift monitoring compares a VLM's answers at both budgets: adaptive sampling lacks some, and legibility has none.
    monitored = adaptive is None and basis != "legibility"
    curves = tables.curves()
    policy = Policy(
        family=family_of(model),
        mechanism="deletion" if options.setting.mechanism == "deletion" else "resolution",
        selector=options.setting.selector,
        basis="legibility" if basis == "legibility" else "answers",
        mean_budget=mean_budget,
        floor=1 if floor is None else floor,
        tiers=_tier_plans(costs, shipped, curves, chosen.curves, disagreements(outcomes, shipped) if monitored else {}),
        signal=to_dict(signal),
        estimator=estimator,
        certificate=None if certificate is None else certificate.record(),
        fingerprint=str(measured.run.fingerprint),
        documents=calibration_digests(samples),
    )
    if options.per_request:
        plan = calibrate_per_request(outcomes, samples, signal, costs, mean_budget, estimator, floor)
        policy = Policy.from_record(policy.model_dump(by_alias=True) | {"soft": plan.model_dump(by_alias=True)})
    pair = chosen.budgets if len(costs) == 2 else None
    native = {outcome.sample: outcome.native for outcome in outcomes}
    check, why_not = _held_out(measured, terms, mean_budget, estimator)
    return Calibration(
        policy=policy,
        curves=curves,
        fitted=chosen.curves,
        plan=make_plan(chosen.curves, costs, terms.counts, terms.total, floor, pair=pair),
        run=measured.run,
        excluded=excluded,
        native_tokens=round(sum(native.values()) * len(samples) / len(native)),  # adaptive sampling leaves some out
        held_out=check,
        why_not_held_out=why_not,
        certificate=certificate,
        adaptive=adaptive,
    )


def _tier_plans(
    costs: Mapping[str, float],
    budgets: Mapping[str, int],
    curves: Mapping[str, Curve],
    fitted: Mapping[str, Curve],
    disagreement: Mapping[str, float],
) -> dict[str, TierPlan]:
    return {
        tier: TierPlan(
            cost=costs[tier],
            budget=budgets[tier],
            curve=curve,
            fitted=None if fitted[tier] == curve else fitted[tier],
            disagreement=disagreement.get(tier),
        )
        for tier, curve in curves.items()
    }


def _held_out(measured: Measurement, terms: Terms, mean_budget: int, estimator: str) -> tuple[HeldOut | None, str]:
    """The check on documents that the choice was not made on, or why there is none."""
    if measured.adaptive is not None:
        return None, "adaptive sampling does not ask every question at every budget"
    try:
        return held_out(measured.outcomes, terms.costs, mean_budget, terms.floor, estimator), ""
    except StakesError as error:
        return None, str(error)


def check_tiers(samples: Sequence[Sample], costs: Mapping[str, float], signal: Signal) -> None:
    """Every tier of a sample or of the signal needs a cost, and every cost a sample; checked before any answer."""
    as_tiers(costs)
    present = dict.fromkeys(sample.tier for sample in samples)
    for tier in [*present, *signal.tiers]:
        if tier not in costs:
            whose = "a sample's" if tier in present else "one that the signal can name"
            raise BadInput(f"tier {tier!r} ({whose}) has no cost; give one for it, such as --cost {tier}=1")
    for tier in costs:
        if tier not in present:
            raise BadInput(
                f"no sample is of tier {tier!r}, so its curve cannot be measured; the samples are "
                f"{', '.join(present) or 'none'}"
            )


def serving_signal(samples: Sequence[Sample], costs: Mapping[str, float]) -> Signal:
    """The signal of a policy calibrated on labels, which requests do not have: by task if that decides, or keywords."""
    by_task: dict[str, set[str]] = {}
    for sample in samples:
        by_task.setdefault(sample.task or "", set()).add(sample.tier)
    if "" not in by_task and len(by_task) > 1 and all(len(tiers) == 1 for tiers in by_task.values()):
        tasks = {task: next(iter(tiers)) for task, tiers in by_task.items()}
        return TaskIdentity(tasks, most_expensive=max(costs, key=costs.__getitem__))
    if set(KeywordRule().tiers) == set(costs):
        return KeywordRule()
    raise BadInput(
        f"the labels {', '.join(costs)} can be read neither off the task nor by keywords, so no request could be "
        "given its tier; train a signal on them (stakes signal train) and give --signal learned:FILE"
    )
