"""``stakes evaluate``: does the policy help? Arms of one total on held-out questions, or on saved answers again."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stakes.budgets.policy import Policy
from stakes.calibration.arms.comparison import Comparison
from stakes.calibration.evaluate import Evaluation
from stakes.commands.calibrate import calibration_log
from stakes.commands.inputs import (
    SIGNAL_HELP,
    Log,
    Pages,
    PerTier,
    check_writable,
    gather,
    judge_of,
    read_signal,
    signal_file,
    tell,
    told_labels,
    told_reading,
    told_units,
)
from stakes.commands.options import Spread, Who, asks_a_model
from stakes.commands.output import AsJson, print_json, print_table, show
from stakes.errors import BadInput, InfeasibleBudget, LedgerBreach
from stakes.report.sentences import OTHER_SIGNAL, soft_stakes, told_uniform, verdict

if TYPE_CHECKING:
    from stakes.budgets.policy import Policy
    from stakes.signals import Signal


@asks_a_model
def evaluate(
    policy: Annotated[Path, typer.Option(help="The policy file that calibrate wrote.")],
    samples: Annotated[
        Path | None, typer.Argument(help="Held-out questions, one JSON object a line: id, image, question, answers.")
    ] = None,
    *,
    who: Who,
    arms: Annotated[str, typer.Option(help="Ways of spending the same total.")] = "uniform,content,cost,anti",
    signal: Annotated[str | None, typer.Option(help=f"{SIGNAL_HELP} Default: the policy's own.")] = None,
    selector: Annotated[
        str | None, typer.Option(help="Which tokens deletion keeps, for an older policy that does not say.")
    ] = None,
    metric: Annotated[
        str | None, typer.Option(help="relaxed (default), exact, anls, chartqa or vqa; saved answers keep their own.")
    ] = None,
    ratios: Annotated[str, typer.Option(help="Cost ratios at which CWE is told.")] = "1,2,3,5,10,20",
    cost: Annotated[
        list[str] | None, typer.Option(help="With --outcomes: other costs than the policy's, as tier=cost.")
    ] = None,
    pages: Pages = None,
    per_tier: PerTier = 100,
    log: Log = None,
    outcomes: Annotated[
        Path | None, typer.Option(help="Compare the saved answers of this log again; needs no model.")
    ] = None,
    spread: Spread,
    as_json: AsJson = False,
) -> None:
    """Compare ways of spending the same total of visual tokens: errors, cost-weighted error, and whether it is luck.

    Example: stakes evaluate held-out.jsonl --policy policy.json --model ./my-vlm
    """
    from stakes.budgets.policy import Policy
    from stakes.calibration import evaluate as judge
    from stakes.evaluation.fingerprint import Setting
    from stakes.evaluation.progress import progress_on
    from stakes.tiers import parse_costs

    rules = Policy.load(policy)
    at = _ratios(ratios)
    if outcomes is not None:
        prices = {name: tier.cost for name, tier in parse_costs(cost).items()} if cost else None
        answers = _answers(samples, pages, per_tier)
        found = judge.regrade(outcomes, answers, rules, metric=metric, costs=prices, ratios=at)
    else:
        if cost:
            raise BadInput("costs come from the policy; --cost is for saved outcomes, with --outcomes LOG")
        setting = Setting(rules.mechanism, selector or rules.selector, metric or "relaxed")
        reader = _reader(signal, rules)
        log = policy.with_suffix(".evaluation.jsonl") if log is None else log
        check_writable(log, samples, policy, signal_file(signal or ""))
        if rules.soft is not None and signal is not None and reader is not None:
            rules.use(reader)  # who reads also decides; beside labels the policy's own signal goes on deciding
        asked, read = gather(samples, pages, per_tier, "test", reader, judge_of(signal or "", rules.costs))
        reading = told_reading(reader, [one.question for one in asked]) if reader else ""
        tell(told_labels(read, asked), reading, told_units(asked))
        with who.ready() as answerer, _of_one_family(rules, answerer):
            found = judge.evaluate(
                answerer,
                asked,
                rules,
                log=log,
                arms=[name.strip() for name in arms.split(",")],
                setting=setting,
                ratios=at,
                calibrated_on=_calibrated_on(policy, rules),
                progress=progress_on(sys.stderr, "evaluate"),
                spread=spread(answerer),
            )
    if as_json:
        from stakes.report.sentences import soft_stakes, told_uniform, verdict

        told = {"verdict": verdict(found), "uniform": told_uniform(found, rules), "soft_stakes": soft_stakes(rules)}
        print_json({"policy": str(policy), "log": str(outcomes or log), **found.record(), **told})
        return

    print_evaluation(found, rules, str(outcomes or log))


@contextmanager
def _of_one_family(rules: "Policy", model: object) -> Iterator[None]:
    """Budgets that a model cannot take may have been measured in another family's tokens: say so."""
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
    """The documents of a policy that does not keep them, from its own log, where that stands beside it still."""
    from stakes.evaluation.outcome_log import read_outcomes

    behind = calibration_log(policy)
    if rules.documents is not None or not behind.is_file():
        return set()
    return {outcome.document for outcome in read_outcomes(behind) if outcome.run in rules.fingerprint}


def _reader(word: str | None, rules: "Policy") -> "Signal | None":
    from stakes.signals import from_dict

    if word is None:
        return from_dict(rules.signal)
    return read_signal(word, rules.costs)


def _answers(samples: Path | None, pages: str | None, per_tier: int) -> dict[str, tuple[str, ...]]:
    """The acceptable answers by sample; of a file no image is opened."""
    from stakes.data.sample import read_samples

    if samples is not None and pages is None:
        return {sample.id: sample.answers for sample in read_samples(samples)}
    return {one.id: one.answers for one in gather(samples, pages, per_tier, "test", None)[0]}


def _ratios(text: str) -> list[float]:
    try:
        read = [float(word) for word in text.split(",")]
    except ValueError:
        read = []
    if not read or not all(0 < ratio < float("inf") for ratio in read):
        raise BadInput(f"--ratios takes numbers above 0 with commas between, such as 1,2,5, not {text!r}")
    return read


# How an evaluation reads to a person: one table of arms, one of cost ratios, and what to make of them.


def _draw(seen: Comparison) -> None:
    """CWE of every arm as bars, where the screen has room for them."""
    from stakes.report.terminal import bars, room

    if width := room():
        typer.echo("cost-weighted error\n" + bars({row.arm: row.cwe for row in seen.rows}, width) + "\n")


def _print_luck(seen: Comparison) -> None:
    """Each arm against uniform; a table of its own, so that both fit a screen of 80 columns."""
    rows = [
        (
            row.arm,
            f"{row.gain.value:+.3f}" + ("" if row.gain.few else f" [{row.gain.low:+.3f}, {row.gain.high:+.3f}]"),
            f"{row.dear.b}:{row.dear.c}",
            f"{row.dear.p:.2g}",
            "" if row.break_even is None else show(row.break_even),
        )
        for row in seen.rows
        if row.gain is not None and row.dear is not None
    ]
    if rows:
        few = next(row.gain.few for row in seen.rows if row.gain is not None)
        columns = [
            "arm",
            "fall of CWE" if few else "fall of CWE, 95 %",
            f"mended:broken, {seen.dearest}",
            "p",
            "pays from r",
        ]
        print_table(f"Against uniform; {few}" if few else "Against uniform", columns, rows)


HELD_OUT = {
    True: "Held out: the policy was calibrated on none of these documents.",
    False: "NOT held out: the policy was calibrated on some of these documents.",
    None: "Whether these documents are held out is NOT known: neither this policy nor a log beside it says what it was "
    "calibrated on.",
}


def print_evaluation(found: Evaluation, policy: Policy, log: str) -> None:
    """Print the whole page."""
    if found.basis == "legibility":
        typer.echo("LEGIBILITY, not a VLM's error: whether the print at each answer's place can still be read.")
    if len(found.apart):
        typer.echo(f"{found.apart}.")
    seen = found.comparison
    tiers = list(seen.counts)
    rows = [
        (row.arm, *(row.errors[tier] for tier in tiers), row.average, row.cwe, f"{row.spent:,}") for row in seen.rows
    ]
    columns = [
        "arm",
        *(f"error {tier}" for tier in tiers),
        "average",
        "CWE",
        "tokens" if found.plan.rounding is None else "tokens a layer",
    ]
    sizes = ", ".join(f"{count} {tier} at cost {seen.costs[tier]:g}" for tier, count in seen.counts.items())
    print_table(f"{sizes}; {seen.documents} documents; graded {seen.metric}", columns, rows)
    _print_luck(seen)
    _draw(seen)
    typer.echo(verdict(found) + "\n")
    ratios = list(seen.rows[0].ratios)
    table = [(f"{ratio:g}", *(row.ratios[ratio] for row in seen.rows)) for ratio in ratios]
    print_table(
        f"CWE when a mistake in {seen.dearest} costs r times another", ["r", *(r.arm for r in seen.rows)], table
    )
    rounding = found.plan.rounding
    forced = "" if rounding is None else f", and whole tokens may force {rounding:.3%}"
    typer.echo(
        f"Planned {found.plan.total:,} {found.plan.counted} in every arm by {found.plan.mechanism}; "
        f"realised totals differ by {found.deviation:.3%} at most{forced}."
    )
    if told := soft_stakes(policy):
        typer.echo(told)
    typer.echo(told_uniform(found, policy))
    if found.plan.density:
        typer.echo(f"The content arm goes by {found.plan.density} features.")
    typer.echo(HELD_OUT[found.held_out])
    if found.same_model is False:
        typer.echo("This is another model than the one that the policy was calibrated with.")
    if found.same_signal is False:
        typer.echo(OTHER_SIGNAL)
    typer.echo(f"Answers in {log}.")
