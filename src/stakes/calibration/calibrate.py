"""Calibrate: from labeled samples to a policy, in four steps that can also be called alone.

    calibration = stakes.calibrate("questions.jsonl", "./my-vlm", costs={"high": 5, "low": 1}, mean_budget=304)
    calibration.policy.save("policy.json")
    calibration.held_out.gain                 # what the choice is worth on documents that it was not made on

1. measure   answer the samples at every budget, or adaptively          ``measure.measure``
2. fit       estimate each tier's error curve                           ``estimators.fit``
3. choose    the budgets that minimize cost-weighted error              ``estimators.choose``
             or options, where these beat them                          ``escalation.step.options_step``
4. certify   choose on a quarter of the documents, guarantee on others  ``certify.certificate.certify``

Adaptive sampling, certification and per-request costs are values in ``CalibrationOptions``. A run that was killed and
resumed gives the same bytes of the policy. Paper, section "Calibrate-Then-Allocate".
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from stakes.budgets.curve import budgets_to_measure
from stakes.budgets.digests import calibration_digests, sealed
from stakes.budgets.harm import Limits, check_limits
from stakes.budgets.plan import check_feasible, make_plan
from stakes.budgets.policy import Policy
from stakes.budgets.uniform import largest_within
from stakes.calibration.adaptive.sampler import AdaptiveSampling
from stakes.calibration.by_document import ByDocument, by_document
from stakes.calibration.certify.certificate import Certificate, Certification, certify, check_certifiable
from stakes.calibration.certify.drift import disagreements
from stakes.calibration.escalation.answers import Statistics
from stakes.calibration.escalation.choose import page_statistics_of
from stakes.calibration.escalation.step import OptionRequest, OptionStep, options_step
from stakes.calibration.estimators import DEFAULT, ChosenBudgets, Terms, check_estimator, choose
from stakes.calibration.holdout import HeldOut, held_out
from stakes.calibration.measure import Measurement, choosing_part, measure, questions_by_label, without_margins
from stakes.calibration.per_request import calibrate_per_request, errors_by_label
from stakes.calibration.reading import DEFAULT as DEFAULT_SIGNAL
from stakes.calibration.reading import SettledTiers, check_tiers, default_signal, settle_tiers, usable_labels
from stakes.calibration.result import Calibration, tier_plans
from stakes.data.sample import Sample, read_samples
from stakes.data.trim import MarginsCut
from stakes.errors import BadInput, StakesError
from stakes.evaluation.fingerprint import Setting
from stakes.evaluation.runner import RunOptions
from stakes.evaluation.samples import answerable, basis_of, prepare_samples
from stakes.models import VLM, load
from stakes.models.identity import family_of, menu_of, model_name, native_tokens, statistic_of
from stakes.signals import Signal, to_dict
from stakes.signals.named import named_signal
from stakes.tiers import expected_costs


@dataclass(frozen=True)
class CalibrationOptions:
    """How a calibration is made; the defaults measure the paper's grid, scaled to the mean budget."""

    setting: Setting = field(default_factory=Setting)
    grid: Sequence[int] | None = None
    floor: int | None = None
    """The smallest budget permitted to any tier."""
    estimator: str = DEFAULT
    sampling: AdaptiveSampling | None = None
    """Skip answers that will hardly change the choice."""
    certification: Certification | None = None
    """Choose on a quarter of the documents, certify on the others, and ship only what holds."""
    max_harm: float | Limits | None = None
    """How much the error of a tier, or of each, may rise over uniform at the same tokens (``budgets.harm``)."""
    beside_budgets: OptionRequest = field(default_factory=OptionRequest)
    """Second attempts and review, considered beside fixed budgets."""
    per_request: bool = False
    """Spend by each request's expected cost. The samples' tiers must be labels; the signal predicts them."""
    trim: bool | None = None
    """Cut the margins of all images off before anything is measured; None: where budgets are realized by resizing."""
    run: RunOptions = field(default_factory=RunOptions)

    def __post_init__(self) -> None:
        check_estimator(self.estimator)
        complete = {
            "per-request costs": self.per_request,
            "ceilings": self.certification and self.certification.ceilings,
        }
        for what, given in complete.items():
            if given and self.sampling is not None:
                raise BadInput(
                    f"{what} need every question at every budget, and adaptive sampling leaves most out; choose one"
                )
        if self.sampling is not None and self.estimator != DEFAULT:
            raise BadInput(
                f"adaptive sampling draws from the posterior of {DEFAULT}, and {self.estimator} has none; use {DEFAULT}"
            )
        if self.per_request and self.certification is not None:
            raise BadInput("a certificate is about budgets by tier, and per-request costs have none; choose one")
        if self.per_request and self.max_harm is not None:
            raise BadInput("a harm limit is about budgets by tier, and per-request costs have none; choose one")
        if self.certification is not None and self.certification.max_harm not in (None, self.max_harm):
            raise BadInput("give max_harm in the options of the calibration; its certificate takes it from there")


def calibrate(
    samples: Sequence[Sample] | str | Path,
    model: VLM | str = "embedded",
    *,
    costs: Mapping[str, float],
    mean_budget: int = 304,
    signal: Signal | Literal["train", "tier"] | None = None,
    log: str | Path | None = None,
    options: CalibrationOptions | None = None,
) -> Calibration:
    """Measure the samples, fit and choose, check the choice, and make the policy.

    ``samples``: a JSONL file, or samples; those that are not prepared yet are (``prepare_samples``), with image paths
    relative to the working folder. ``signal``: reads the tiers of these samples and of requests. ``train``: one that is
    trained on the samples' labels, and reads them out of fold. ``tier``: tiers are as labeled, and the policy reads
    requests by task or ``requests``. None: ``train`` if every sample has a label and every label a cost, else
    ``requests``.
    ``log``: keeps every answer, so that a killed run resumes; without one, answers are not kept.
    """
    options = options or CalibrationOptions()
    folder = Path(samples).parent if isinstance(samples, str | Path) else ""
    if isinstance(samples, str | Path):
        samples = read_samples(samples)
    given = signal or default_signal(samples, costs)
    reader = named_signal(given, costs) if given == DEFAULT_SIGNAL else None if isinstance(given, str) else given
    if not all(sample.digest for sample in samples):
        samples = prepare_samples(samples, folder, None if options.per_request else reader)
    tiers = settle_tiers(samples, costs, reader or given, named=signal is not None, per_request=options.per_request)
    answerer: VLM = load(model) if isinstance(model, str) else model
    return calibrate_settled(tiers, answerer, costs, mean_budget, log, options)


def calibrate_settled(
    tiers: SettledTiers,
    model: VLM,
    costs: Mapping[str, float],
    mean_budget: int,
    log: str | Path | None,
    options: CalibrationOptions,
) -> Calibration:
    """The same with the tiers of the samples settled (``reading.settle_tiers``)."""
    with _log_path(log) as path:
        calibration = _calibrate(tiers.samples, model, costs, mean_budget, tiers.signal, path, options)
    if tiers.labels and not options.per_request:
        readings = {sample.id: tiers.signal(sample.prompt, sample.task).tier for sample in tiers.samples}
        calibration = calibration.by_labels(readings, known=tiers.training is None)
    elif labels := usable_labels(tiers.samples, costs):
        calibration = calibration.with_labels(labels)
    return replace(calibration, training=tiers.training, policy=sealed(calibration.policy))


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
    floor, estimator, limits = options.floor, options.estimator, check_limits(options.max_harm, costs) or None
    menu, whole = menu_of(model, options.setting.mechanism), {sample.id: sample for sample in samples}
    budgets = budgets_to_measure(options.grid, mean_budget, floor, menu)
    samples, trim = without_margins(samples, model, options.setting, options.trim, budgets)
    samples, excluded = answerable(model, samples, log)
    if options.certification is not None:
        samples = check_certifiable(samples, costs, options.certification)
    check_tiers(samples, costs, signal)
    labels = usable_labels(samples, costs)
    questions = questions_by_label(samples, costs, labels)
    counts = {tier: sum(each.values()) for tier, each in questions.items()}
    terms = Terms(expected_costs(questions, costs), counts, mean_budget * len(samples), floor, max_harm=limits)
    check_feasible(costs, terms.counts, terms.total, budgets, floor)
    sampling, choice = options.sampling, terms
    if sampling is not None and options.certification is not None:
        uniform, confidence = largest_within(budgets, mean_budget), options.certification.confidence
        sampling, choice = choosing_part(samples, sampling, terms, costs, labels, uniform, confidence)
    measured = measure(model, samples, budgets, log, options.setting, options.run, terms=choice, sampling=sampling)
    outcomes, adaptive = measured.outcomes, measured.adaptive
    tables = by_document(outcomes, costs, labels)
    chosen = ChosenBudgets(adaptive.budgets, adaptive.fitted) if adaptive else choose(tables, terms, estimator)
    step = _options(measured, terms, costs, labels, options, None if menu else partial(page_statistics_of, samples))
    certificate = step.certificate or _certificate(tables, chosen, costs, mean_budget, options, sampling)
    if certificate is not None and any(sample.group for sample in samples):
        certificate = replace(certificate, unit="group")
    shipped, basis = chosen.budgets if certificate is None else certificate.budgets, basis_of(model)
    # Drift monitoring compares a VLM's answers at both budgets: adaptive sampling lacks some, and legibility has none.
    differ = disagreements(outcomes, shipped) if adaptive is None and basis != "legibility" else {}
    asked, pair = [whole[sample.id] for sample in samples], chosen.budgets if len(costs) == 2 else None
    policy = Policy(
        model=model_name(model),
        family=family_of(model),
        mechanism="deletion" if options.setting.mechanism == "deletion" else "resolution",
        selector=options.setting.selector,
        basis="legibility" if basis == "legibility" else "answers",
        metric=options.setting.metric,
        trim=trim or None,
        trim_above=max(budgets) if trim else None,
        menu=menu,
        mean_budget=mean_budget,
        floor=1 if floor is None else floor,
        max_harm=limits,
        confidence=statistic_of(model) if any(one.reads_confidence for one in step.options.values()) else None,
        tiers=step.plans(tier_plans(costs, questions, shipped, tables.curves(), chosen.curves, differ)),
        signal=to_dict(signal),
        estimator=estimator,
        certificate=None if certificate is None else certificate.record(),
        fingerprint=str(measured.run.fingerprint),
        documents=calibration_digests(asked),
    )
    if options.per_request:
        plan = calibrate_per_request(outcomes, samples, signal, costs, mean_budget, estimator, floor)
        policy = Policy.from_record(policy.model_dump(by_alias=True) | {"soft": plan.model_dump(by_alias=True)})
    check, why_not = _held_out(measured, costs, mean_budget, options, labels)
    return Calibration(
        policy=policy,
        curves=tables.curves(),
        fitted=chosen.curves,
        plan=make_plan(chosen.curves, costs, questions, terms.total, floor, pair=pair, max_harm=limits),
        run=measured.run,
        excluded=excluded,
        native_tokens=sum(native_tokens(model, *sample.size, options.setting.requested) for sample in asked),
        margins=MarginsCut.between(asked, samples) if trim else None,
        held_out=check,
        why_not_held_out=why_not,
        certificate=certificate,
        beside_budgets=step,
        adaptive=adaptive,
        request_errors=errors_by_label(policy, samples, chosen.curves) if options.per_request else None,
    )


def _options(
    measured: Measurement,
    terms: Terms,
    costs: Mapping[str, float],
    labels: Mapping[str, str] | None,
    options: CalibrationOptions,
    statistics: Callable[[], Statistics] | None,
) -> OptionStep:
    """Second attempts, predicted budgets and review beside fixed budgets; an engine's menu has no predicted ones."""
    request, goal = options.beside_budgets, options.certification
    reason = "per-request costs give each request a budget" if options.per_request else ""
    if measured.adaptive is not None:
        reason = "adaptive sampling does not ask every question at every budget"
    if reason and request.required:
        raise BadInput(f"second attempts and review cannot be considered: {reason}; choose one")
    if reason:
        return OptionStep(why_not=reason)
    given = measured.outcomes, terms, costs, labels, request
    return options_step(*given, estimator=options.estimator, certification=goal, statistics=statistics)


def _certificate(
    tables: ByDocument,
    chosen: ChosenBudgets,
    costs: Mapping[str, float],
    mean_budget: int,
    options: CalibrationOptions,
    sampling: AdaptiveSampling | None,
) -> Certificate | None:
    """The certificate, where one is requested: of its own choice, or of the one that adaptive sampling made."""
    if options.certification is None:
        return None
    goal, estimator, floor = replace(options.certification, max_harm=options.max_harm), options.estimator, options.floor
    made, made_on = (None, ()) if sampling is None else (chosen, sampling.chosen_on)
    return certify(tables, costs, mean_budget, goal, estimator=estimator, floor=floor, chosen=made, chosen_on=made_on)


def _held_out(
    measured: Measurement,
    costs: Mapping[str, float],
    mean_budget: int,
    options: CalibrationOptions,
    labels: Mapping[str, str] | None,
) -> tuple[HeldOut | None, str]:
    """The check on documents that the choice was not made on, or why there is none."""
    if measured.adaptive is not None:
        return None, "adaptive sampling does not ask every question at every budget"
    try:
        return held_out(
            measured.outcomes, costs, mean_budget, options.floor, options.estimator, labels, options.max_harm
        ), ""
    except StakesError as error:
        return None, str(error)
