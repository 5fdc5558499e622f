"""``stakes evaluate``: compare a policy with other ways of spending the same total, on held-out questions.

Model, metric, selector and signal are the policy's. What is named otherwise is used, and the first lines say so. With
``--outcomes`` it compares the saved answers of an earlier evaluation again, without a model.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stakes.commands.calibrate import calibration_log
from stakes.commands.options import inputs
from stakes.commands.options.model import ModelSource, Workers, asks_the_policys_model
from stakes.commands.output import AsJson, print_json, print_next, print_table
from stakes.errors import BadInput, InfeasibleBudget, LedgerBreach

if TYPE_CHECKING:
    from stakes.budgets.policy import Policy
    from stakes.calibration.arms.comparison import Comparison
    from stakes.calibration.evaluate import Evaluation
    from stakes.signals import Signal

ARM_MEANINGS = {
    "uniform": "the same for all",
    "cost": "the policy's budgets",
    "anti": "the reverse, as a check",
    "content": "by how much is on the page",
    "proportional": "a share of each page's full size",
}
HELD_OUT = {
    True: "Held out: the policy was calibrated on none of these documents.",
    False: "NOT held out: the policy was calibrated on some of these documents.",
    None: "Whether these documents are held out is NOT known: neither this policy nor a log beside it says what it was "
    "calibrated on.",
}


@asks_the_policys_model
def evaluate(
    policy: Annotated[Path, typer.Option(help="The policy file that calibrate wrote.")],
    samples: Annotated[
        Path | None, typer.Argument(help="Held-out questions, one JSON object per line: id, image, question, answers.")
    ] = None,
    *,
    source: ModelSource,
    arms: Annotated[str, typer.Option(help="Ways of spending the same total.")] = "uniform,content,cost,anti",
    signal: Annotated[str | None, typer.Option(help=f"{inputs.SIGNAL_HELP} Default: the policy's own.")] = None,
    selector: Annotated[str | None, typer.Option(help="The selector, if the policy has none or a class.")] = None,
    metric: Annotated[
        str | None,
        typer.Option(help=f"{inputs.METRIC_HELP} Default: the policy's, else value; saved answers keep their own."),
    ] = None,
    ratios: Annotated[str, typer.Option(help="Cost ratios at which CWE is reported.")] = "1,2,3,5,10,20",
    cost: Annotated[list[str] | None, typer.Option(help="With --outcomes: other costs, as tier=cost.")] = None,
    pages: inputs.Pages = None,
    per_tier: inputs.PerTier = None,
    log: inputs.Log = None,
    outcomes: Annotated[
        Path | None, typer.Option(help="Compare the saved answers of this log, without a model.")
    ] = None,
    workers: Workers,
    as_json: AsJson = False,
) -> None:
    """Compare ways of spending the same total of visual tokens: error, cost-weighted error, and significance.

    Example: stakes evaluate held-out.jsonl --policy policy.json
    Example: stakes evaluate held-out.jsonl --policy policy.json --model ./another-vlm
    """
    from stakes.budgets.policy import Policy
    from stakes.calibration import evaluate as calibration
    from stakes.evaluation.progress import Progress
    from stakes.evaluation.runner import RunOptions
    from stakes.evaluation.samples import format_joined
    from stakes.report.sentences import describe_per_request, describe_reading, describe_uniform, verdict
    from stakes.signals import from_dict
    from stakes.tiers import parse_costs, ratio_meaning

    rules = Policy.load(policy)
    at = _parse_ratios(ratios)
    if outcomes is not None:
        costs = {name: tier.cost for name, tier in parse_costs(cost).items()} if cost else None
        answers = _answers(samples, pages, per_tier)
        result = calibration.regrade(outcomes, answers, rules, metric=metric, costs=costs, ratios=at)
    else:
        if cost:
            raise BadInput("costs come from the policy; --cost is for saved outcomes, with --outcomes LOG")
        setting = calibration.policy_setting(rules, selector, metric)
        reader = from_dict(rules.signal) if signal is None else inputs.parse_signal(signal, rules.costs)
        log = policy.with_suffix(".evaluation.jsonl") if log is None else log
        inputs.check_writable(log, samples, policy, inputs.signal_file(signal or ""))
        if rules.per_request is not None and signal is not None and reader is not None:
            rules.use(reader)  # the signal that reads tiers also decides; with labels, the policy's own decides
        judge = inputs.parse_judge(signal or "", rules.costs)
        prepared, read = inputs.gather_samples(samples, pages, per_tier, "test", reader, judge)
        reading = inputs.note_on_reading(reader, [sample.question for sample in prepared]) if reader else ""
        inputs.print_notes(inputs.note_on_labels(read, prepared), reading, format_joined(prepared))
        with source.open() as model, _explained(rules, model):
            inputs.print_notes(_check_model(rules, model, source))
            options = calibration.EvaluationOptions(
                arms=[name.strip() for name in arms.split(",")],
                setting=setting,
                ratios=at,
                calibrated_on=_calibrated_on(policy, rules),
                read_by=_read_by(rules, signal, reader),
                run=RunOptions(Progress(sys.stderr, "evaluate"), workers(model)),
            )
            result = calibration.evaluate(model, prepared, rules, log=log, options=options)
    if as_json:
        sentences = {
            "verdict": verdict(result),
            "uniform": describe_uniform(result, rules),
            "ratio": ratio_meaning(result.comparison.costs),
            "reading": describe_reading(result.comparison),
            "per_request_costs": describe_per_request(rules),
        }
        print_json({"policy": str(policy), "log": str(outcomes or log), **result.record(), **sentences})
    else:
        print_evaluation(result, rules, str(outcomes or log))
        print_next("report", policy)


def _check_model(rules: "Policy", model: object, source: ModelSource) -> str:
    """Refuse a model that nobody named and that is not known to be the policy's; a note on one that had to be found."""
    from stakes.calibration.evaluate import is_same_model
    from stakes.evaluation.fingerprint import model_digest

    same = is_same_model(rules, model_digest(model))
    if source.stated or (same is None and rules.model is not None):
        return ""
    if same:
        found = "the policy does not name its model; it was calibrated with the embedded reader, which answers here"
        return found if rules.model is None else ""
    if rules.model is None:
        raise BadInput(
            "the policy does not name the model that it was calibrated with, and nothing shows that it is the embedded "
            "reader; give --model or --endpoint"
        )
    raise BadInput(
        f"{rules.model} has other weights, another prompt or another answer length than when the policy was made; "
        f"calibrate again, or give --model {source.name} to evaluate the policy with it as it is now"
    )


def _read_by(rules: "Policy", word: str | None, reader: "Signal | None") -> str:
    """How tiers are read, where it is not by the policy's signal; else empty."""
    from stakes.signals import to_dict

    if word is None or (reader is not None and to_dict(reader) == rules.signal):
        return ""
    return "as labelled" if word == "tier" else f"read by {word}"


@contextmanager
def _explained(rules: "Policy", model: object) -> Iterator[None]:
    """Explain budgets that a model cannot take because they are tokens of another family."""
    from stakes.models.identity import family_of

    try:
        yield
    except (InfeasibleBudget, LedgerBreach) as error:
        family = family_of(model)
        if family == rules.family:
            raise
        raise type(error)(
            f"the policy's budgets are tokens of {rules.family}, and this model is {family}; give the --model that it "
            f"was calibrated with ({error})"
        ) from None


def _calibrated_on(policy: Path, rules: "Policy") -> set[str]:
    """The documents of an older policy, which does not list them, from its log if that is still beside it."""
    from stakes.evaluation.outcome_log import read_outcomes

    log = calibration_log(policy)
    if rules.documents is not None or not log.is_file():
        return set()
    return {outcome.document for outcome in read_outcomes(log) if outcome.run in rules.fingerprint}


def _answers(samples: Path | None, pages: str | None, per_tier: int | None) -> dict[str, tuple[str, ...]]:
    """The acceptable answers by sample; no image of a file is opened."""
    from stakes.data.sample import read_samples

    if samples is not None and pages is None:
        return {sample.id: sample.answers for sample in read_samples(samples)}
    return {sample.id: sample.answers for sample in inputs.gather_samples(samples, pages, per_tier, "test", None)[0]}


def _parse_ratios(text: str) -> list[float]:
    try:
        ratios = [float(word) for word in text.split(",")]
    except ValueError:
        ratios = []
    if not ratios or not all(0 < ratio < float("inf") for ratio in ratios):
        raise BadInput(f"--ratios takes numbers above 0 with commas between, such as 1,2,5, not {text!r}")
    return ratios


def print_evaluation(result: "Evaluation", policy: "Policy", log: str) -> None:
    """Print the summary: arms, significance, cost ratios, and the conditions that the comparison rests on."""
    from stakes.report.sentences import (
        SIGNAL_CHANGED,
        describe_per_request,
        describe_reading,
        describe_uniform,
        verdict,
    )
    from stakes.tiers import ratio_meaning

    comparison, plan = result.comparison, result.plan
    for sentence in result.differences:
        typer.echo(sentence)
    if result.basis == "legibility":
        typer.echo("LEGIBILITY, not a VLM's error: whether the text at each answer's position can still be read.")
    if len(result.excluded):
        typer.echo(f"{result.excluded}.")
    known = [f"{row.arm}: {ARM_MEANINGS[row.arm]}" for row in comparison.rows if row.arm in ARM_MEANINGS]
    typer.echo(f"An arm is one way of spending the same total. {'; '.join(known)}.")
    _print_arms(comparison, "tokens" if plan.rounding is None else "tokens per layer")
    typer.echo(verdict(result) + "\n")
    ratios = [(f"{r:g}", *(row.ratios[r] for row in comparison.rows)) for r in comparison.rows[0].ratios]
    print_table("CWE by cost ratio", ["r", *(row.arm for row in comparison.rows)], ratios)
    typer.echo(ratio_meaning(comparison.costs))
    rounding = "" if plan.rounding is None else f", and whole tokens may force {plan.rounding:.3%}"
    typer.echo(
        f"Planned {plan.total:,} {plan.counted} in every arm by {plan.mechanism}; realised totals differ by "
        f"{result.deviation:.3%} at most{rounding}."
    )
    if sentence := describe_per_request(policy):
        typer.echo(sentence)
    if sentence := describe_reading(comparison):
        typer.echo(sentence)
    typer.echo(describe_uniform(result, policy))
    if plan.density:
        typer.echo(f"The content arm uses {plan.density} features.")
    typer.echo(HELD_OUT[result.held_out])
    if result.same_signal is False:
        typer.echo(SIGNAL_CHANGED)
    typer.echo(f"Answers in {log}.")


def _print_arms(comparison: "Comparison", tokens: str) -> None:
    """Errors of every arm; then each arm against uniform, in a second table so that both fit 80 columns; then bars."""
    from stakes.report.terminal import bars, plot_width

    tiers = list(comparison.counts)
    sizes = ", ".join(f"{count} {tier} at cost {comparison.costs[tier]:g}" for tier, count in comparison.counts.items())
    print_table(
        f"{sizes}; {comparison.documents} {comparison.unit}s; graded {comparison.metric}",
        ["arm", *(f"error {tier}" for tier in tiers), "average", "CWE", tokens],
        [(r.arm, *(r.errors[tier] for tier in tiers), r.average, r.cwe, f"{r.spent:,}") for r in comparison.rows],
    )
    rows, few = [], ""
    for row in comparison.rows:
        gain, pairs = row.gain, row.high_cost
        if gain is None or pairs is None:
            continue
        few = few or gain.few
        fall = f"{gain.value:.3f}" if gain.few else str(gain)
        by_unit = "" if pairs.p_by_document is None else f"{pairs.p_by_document:.2g}"
        rows.append((row.arm, fall, f"{pairs.b}:{pairs.c}", f"{pairs.p:.2g}", by_unit, row.pays))
    if rows:
        fall = "fall of CWE" if few else "fall of CWE, 95 %"
        wins = f"wins:losses,\n{comparison.most_expensive}"
        columns = ["arm", fall, wins, "p", f"p, by\n{comparison.unit}", "pays from r"]
        print_table(f"Against uniform; {few}" if few else "Against uniform", columns, rows)
    if width := plot_width():
        typer.echo("cost-weighted error\n" + bars({row.arm: row.cwe for row in comparison.rows}, width) + "\n")
