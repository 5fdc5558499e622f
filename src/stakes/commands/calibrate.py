"""``stakes calibrate``: from labelled questions to a policy. A stopped run continues with the same command."""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stakes.commands.options import inputs
from stakes.commands.options.model import ModelSource, Workers, asks_a_model, format_server_counts, server_counts
from stakes.commands.output import AsJson, print_json, print_next
from stakes.errors import BadInput, InfeasibleBudget, LedgerBreach
from stakes.evaluation.grading import DEFAULT_METRIC

if TYPE_CHECKING:
    from stakes.calibration.adaptive.sampler import AdaptiveSampling
    from stakes.calibration.certify.certificate import Certification

POLICY = "policy.json"
EstimatorName = Annotated[
    str | None,
    typer.Option(help="How curves are estimated: raw or pooled. Default: pooled to calibrate, raw to plan."),
]
Confidence = Annotated[float | None, typer.Option(help="The confidence of a certificate. Default: 0.95.")]
Ceilings = Annotated[
    list[str] | None,
    typer.Option(help="The largest error rate of a tier, as tier=rate, such as high=0.10; once per tier."),
]
MaxHarm = Annotated[
    list[str] | None,
    typer.Option(
        help="How much a tier's error may rise over uniform at the same tokens: 0.15 for all tiers, or low=0.15; once "
        "per tier. Default: no limit."
    ),
]


@asks_a_model
def calibrate(
    samples: Annotated[
        Path | None, typer.Argument(help="Labelled questions, one JSON object per line: id, image, question, answers.")
    ] = None,
    *,
    source: ModelSource,
    mean_budget: Annotated[int, typer.Option(help="Visual tokens per image on average, over all questions.")] = 304,
    cost: inputs.Costs = None,
    signal: Annotated[str | None, typer.Option(help=inputs.CALIBRATED_SIGNAL_HELP)] = None,
    grid: Annotated[
        str | None, typer.Option(help="Budgets to measure, as 32,64,96. Default: the paper's 13, scaled to the mean.")
    ] = None,
    mechanism: Annotated[str, typer.Option(help="How a budget is realized: resolution or deletion.")] = "resolution",
    selector: Annotated[
        str | None,
        typer.Option(help="Which tokens deletion keeps: redundancy, fastv:layer=2, module:Class, …"),
    ] = None,
    trim: Annotated[
        bool | None,
        typer.Option(help="Cut margins and scanner borders off, as the gateway then does. Default: by resolution."),
    ] = None,
    metric: Annotated[str, typer.Option(help=inputs.METRIC_HELP)] = DEFAULT_METRIC,
    floor: Annotated[int | None, typer.Option(help="The smallest budget permitted to any tier.")] = None,
    max_harm: MaxHarm = None,
    pages: inputs.Pages = None,
    per_tier: inputs.PerTier = None,
    log: inputs.Log = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="The policy file to write.")] = Path(POLICY),
    estimator: EstimatorName = None,
    certify: Annotated[
        bool,
        typer.Option("--certify", help="Choose on a quarter of the documents and ship only what passes on the others."),
    ] = False,
    max_per_document: Annotated[
        int | None,
        typer.Option(help="With --certify: count at most so many questions of a document; claims are of that rate."),
    ] = None,
    confidence: Confidence = None,
    ceiling: Ceilings = None,
    escalate: Annotated[
        bool | None,
        typer.Option(
            help="Ask again with more tokens where an answer is unsure. Default: considered where answers have a "
            "confidence, and taken where it wins on held-out documents. Of a server, --escalate asks for logprobs."
        ),
    ] = None,
    predict: Annotated[bool, typer.Option(help="Predict budgets from the image where that wins.")] = True,
    review_cost: Annotated[
        float | None,
        typer.Option(
            help="What it costs when a person checks an answer, in units of --cost. Unsure answers are then flagged "
            "where that is cheaper; --ceiling is of the answers that are not."
        ),
    ] = None,
    per_request: Annotated[
        bool,
        typer.Option(
            "--per-request", help="Spend by each request's expected cost. Samples need tiers; the signal predicts them."
        ),
    ] = False,
    adaptive: Annotated[
        bool,
        typer.Option(
            "--adaptive",
            help="Adaptive sampling: skip answers that will hardly change the choice. About a third are needed. It "
            "guarantees nothing by itself; --certify does.",
        ),
    ] = False,
    passes: Annotated[
        int | None, typer.Option(help="With --adaptive: the largest number of answers to choose on.")
    ] = None,
    price: inputs.Price = None,
    workers: Workers,
    as_json: AsJson = False,
) -> None:
    """Answer every question at every budget, measure each tier's curve, and choose the budgets.

    Example: stakes calibrate samples.jsonl --model ./my-vlm --mean-budget 304 --cost high=5 --cost low=1 -o policy.json
    Example: stakes calibrate labelled.jsonl --cost total=20 --cost date=5 --cost other=1
    Example: stakes calibrate samples.jsonl --certify --confidence 0.95 --ceiling high=0.10
    Example: stakes calibrate samples.jsonl --max-harm 0.15
    Example: stakes calibrate samples.jsonl --no-escalate
    Example: stakes calibrate samples.jsonl --cost high=20 --cost low=1 --review-cost 2
    Example: stakes calibrate samples.jsonl --per-request --signal learned:signal.json
    Example: stakes calibrate samples.jsonl --adaptive --certify
    Example: stakes calibrate samples.jsonl --endpoint http://127.0.0.1:8000/v1 --family qwen3-vl --key-env MY_KEY
    """
    from stakes.budgets.curve import budgets_to_measure
    from stakes.calibration import calibrate as steps
    from stakes.calibration.escalation.step import OptionRequest
    from stakes.calibration.estimators import DEFAULT
    from stakes.calibration.reading import settle_tiers
    from stakes.commands.output.calibration import format_adaptive, format_per_request, print_calibration
    from stakes.data.corrections import note_on_corrections
    from stakes.evaluation.fingerprint import Setting
    from stakes.evaluation.progress import Progress
    from stakes.evaluation.runner import RunOptions
    from stakes.evaluation.samples import format_joined
    from stakes.evaluation.savings import check_price, savings
    from stakes.report.sentences import note_on_unsure
    from stakes.tiers import check_spelling, check_tiers, parse_costs

    check_price(price)
    sampling, certification = _choices(adaptive, passes, certify, confidence, ceiling, max_per_document)
    costs = {name: tier.cost for name, tier in parse_costs(cost or ["high=5", "low=1"]).items()}
    check_tiers("--ceiling", () if certification is None else certification.ceilings, costs)
    budgets = None if grid is None else inputs.whole_numbers("--grid", grid)
    options = steps.CalibrationOptions(
        setting=Setting(mechanism, selector, metric),  # type: ignore[arg-type]
        grid=budgets,
        floor=floor,
        estimator=estimator or DEFAULT,
        sampling=sampling,
        certification=certification,
        max_harm=parse_harm(max_harm, costs),
        beside_budgets=OptionRequest(escalate, review_cost, predict),
        per_request=per_request,
        trim=trim,
    )
    log = calibration_log(output) if log is None else log
    inputs.check_writable(output, samples, log, inputs.signal_file(signal or ""))
    budgets_to_measure(budgets, mean_budget, floor)
    word = signal or inputs.default_signal(samples, costs, stated=bool(cost))
    if word in ("requests", "keywords"):  # labels would name the tiers
        check_spelling("--cost", costs)
    reader = None if word == "train" else inputs.parse_signal(word, costs)
    by_label = reader is None or per_request  # per-request costs need labels: misread tiers are part of the estimate
    prepared, read = inputs.gather_samples(
        samples, pages, per_tier, "calibration", None if by_label else reader, inputs.parse_judge(word, costs)
    )
    tiers = settle_tiers(
        prepared, costs, reader or ("train" if word == "train" else "tier"), named=bool(signal), per_request=per_request
    )
    notes = [
        tiers.note,
        "" if by_label else inputs.note_on_labels(read, prepared),
        "" if tiers.training else inputs.note_on_reading(tiers.signal, [sample.prompt for sample in prepared]),
        format_joined(prepared),
        note_on_corrections(prepared),
    ]
    inputs.print_notes(*notes)
    right = tiers.agreement(prepared)
    source = source.with_logprobs() if options.beside_budgets.required else source
    with source.open() as model, _explained(budgets, mean_budget, model, mechanism):
        run = RunOptions(Progress(sys.stderr, "calibrate"), workers(model))
        result = steps.calibrate_settled(tiers, model, costs, mean_budget, log, replace(options, run=run))
    counts = server_counts(model)
    outcomes = list(result.run.outcomes.values())
    after = [inputs.note_on_partial_answers(prepared, outcomes), note_on_unsure(result.policy, outcomes)]
    inputs.print_notes(*after)
    harm = "" if result.harm is None else str(result.harm)
    try:
        result.policy.save(output)
    except OSError as error:
        raise BadInput(f"{output} cannot be written ({error.strerror}); the answers are safe in {log}") from None
    if as_json:
        record = {"policy": str(output), "log": str(log), "signal": word, "signal_agreement": right}
        checked: dict[str, object] = {} if counts is None else {"server_counts": counts}
        if price is not None:
            checked |= {
                "dollars": {
                    "full_resolution": savings(result.native_tokens, price).dollars,
                    "policy": savings(result.spent, price).dollars,
                }
            }
        print_json({**record, **result.record(), **checked, "notes": [*filter(None, [harm, *notes, *after])]})
        return
    shown = right if by_label and result.training is None else None
    print_calibration(result, str(samples or f"{pages} pages"), output, log, shown, stated=bool(cost), price=price)
    for line in [*format_per_request(result.policy), *format_adaptive(result.adaptive, certify)]:
        typer.echo(line)
    if counts:
        typer.echo(format_server_counts(counts))
    drawn_by = ["--model", result.policy.model.name] if mechanism == "deletion" and result.policy.model else []
    print_next("report", output, *(["--pages", pages] if pages else ["--samples", samples]), *drawn_by)


def _choices(
    adaptive: bool,
    passes: int | None,
    certify: bool,
    confidence: float | None,
    ceiling: list[str] | None,
    max_per_document: int | None = None,
) -> "tuple[AdaptiveSampling | None, Certification | None]":
    """Adaptive sampling and certification as options of the calibration."""
    from stakes.calibration.adaptive.sampler import AdaptiveSampling
    from stakes.calibration.certify.certificate import CONFIDENCE, Certification

    if passes is not None and not adaptive:
        raise BadInput("--passes limits adaptive sampling; add --adaptive")
    if (ceiling or confidence is not None or max_per_document is not None) and not certify:
        raise BadInput("--confidence, --ceiling and --max-per-document belong to a certificate; add --certify")
    level = check_confidence(CONFIDENCE if confidence is None else confidence)
    return (
        AdaptiveSampling(passes) if adaptive else None,
        Certification(level, parse_ceilings(ceiling), max_per_document) if certify else None,
    )


def check_confidence(level: float) -> float:
    """A confidence, refused outside of 0.5 to 1."""
    if not 0.5 <= level < 1:
        raise BadInput(f"--confidence lies between 0.5 and 1, not at {level:g}; 0.95 is usual")
    return level


def parse_ceilings(words: list[str] | None) -> dict[str, float]:
    """Ceilings by tier, as typed."""
    ceilings = inputs.tier_numbers("--ceiling", words or [], float)
    for tier, rate in ceilings.items():
        if not 0 < rate < 1:
            raise BadInput(f"--ceiling {tier}={rate:g} is no error rate; give one between 0 and 1, such as {tier}=0.10")
    return ceilings


def parse_harm(words: list[str] | None, tiers: Iterable[str]) -> dict[str, float] | None:
    """Harm limits by tier, as typed: one for all, of single tiers, or both; None without any."""
    from stakes.budgets.harm import check_limits

    tiers, plain = list(tiers), [word for word in words or [] if "=" not in word]
    if len(plain) > 1:
        raise BadInput(f"--max-harm has one limit for all tiers, not {' and '.join(plain)}; name tiers, as low=0.15")
    try:
        limits = dict.fromkeys(tiers, float(plain[0])) if plain else {}
    except ValueError:
        raise BadInput(
            f"--max-harm {plain[0]}: give a rise of the error rate, as 0.15 for all tiers or low=0.15"
        ) from None
    limits |= inputs.tier_numbers("--max-harm", [word for word in words or [] if "=" in word], float)
    return check_limits(limits, tiers) or None


@contextmanager
def _explained(grid: list[int] | None, mean_budget: int, model: object, mechanism: str) -> Iterator[None]:
    """Explain a budget that no image can take and that nobody typed: it comes from the scaled grid."""
    from stakes.budgets.curve import default_grid

    try:
        yield
    except (InfeasibleBudget, LedgerBreach) as error:
        if grid is not None or not any(words in str(error) for words in ("smallest feasible budget", "native tokens")):
            raise
        scaled = default_grid(mean_budget)
        span = f"from {scaled[0]} to {scaled[-1]}" if len(scaled) > 1 else f"only to {scaled[0]}"
        # A model that exposes its features can delete tokens, and deletion keeps any number.
        deletes = mechanism == "resolution" and isinstance(error, InfeasibleBudget) and hasattr(model, "encode")
        other = ", or --mechanism deletion, which keeps any number of tokens" if deletes else ""
        raise type(error)(
            f"the grid scaled to a mean budget of {mean_budget} goes {span}, which these images cannot take; give "
            f"--grid with budgets that they can, and a --mean-budget between them{other} ({error})"
        ) from None


def calibration_log(policy: Path) -> Path:
    """The default log of a policy's answers."""
    if policy.is_dir():
        raise BadInput(f"{policy} is a folder, and a policy is a file; give its name, such as -o {policy / POLICY}")
    return policy.with_suffix(".outcomes.jsonl")
