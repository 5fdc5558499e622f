"""``stakes calibrate``: from labelled questions to a policy; stop it anywhere, start it again, and it goes on."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from stakes.commands.calibrate_options import (
    Ceilings,
    Confidence,
    EstimatorName,
    Passes,
    Race,
    Soft,
    race_wanted,
    told_race,
    told_soft,
    wanted,
    with_soft,
)
from stakes.commands.inputs import (
    SIGNAL_HELP,
    Log,
    Pages,
    PerTier,
    check_writable,
    gather,
    judge_of,
    read_signal,
    serving_signal,
    signal_file,
    tell,
    told_labels,
    told_pieces,
    told_reading,
    told_units,
    whole_numbers,
)
from stakes.commands.options import Spread, Who, asks_a_model, server_counts, told_counts
from stakes.commands.output import AsJson, print_json
from stakes.errors import BadInput, InfeasibleBudget, LedgerBreach


@asks_a_model
def calibrate(
    samples: Annotated[
        Path | None, typer.Argument(help="Labelled questions, one JSON object a line: id, image, question, answers.")
    ] = None,
    *,
    who: Who,
    mean_budget: Annotated[int, typer.Option(help="Visual tokens per image on average, over all questions.")] = 304,
    cost: Annotated[
        list[str] | None, typer.Option(help="Cost of a mistake, as tier=cost; once per tier. Default: high=5, low=1.")
    ] = None,
    signal: Annotated[str, typer.Option(help=SIGNAL_HELP)] = "keywords",
    grid: Annotated[
        str | None, typer.Option(help="Budgets to measure, as 32,64,96. Default: the paper's 13, scaled to the mean.")
    ] = None,
    mechanism: Annotated[str, typer.Option(help="How a budget is realised: resolution or deletion.")] = "resolution",
    selector: Annotated[
        str | None,
        typer.Option(help="Which tokens deletion keeps, such as redundancy, fastv:layer=2, fastv:count=layers."),
    ] = None,
    metric: Annotated[
        str, typer.Option(help="How answers are graded: relaxed, exact, anls, chartqa, vqa.")
    ] = "relaxed",
    floor: Annotated[int | None, typer.Option(help="The smallest budget permitted to any tier.")] = None,
    pages: Pages = None,
    per_tier: PerTier = 100,
    log: Log = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="The policy file to write.")] = Path("policy.json"),
    estimator: EstimatorName = None,
    certify: Annotated[
        bool,
        typer.Option("--certify", help="Choose on half of the documents, certify on the other, ship what holds."),
    ] = False,
    confidence: Confidence = None,
    ceiling: Ceilings = None,
    soft: Soft = False,
    race: Race = False,
    passes: Passes = None,
    spread: Spread,
    as_json: AsJson = False,
) -> None:
    """Answer every question at every budget, measure each tier's curve, and choose the budgets.

    Example: stakes calibrate samples.jsonl --model ./my-vlm --mean-budget 304 --cost high=5 --cost low=1 -o policy.json
    Example: stakes calibrate samples.jsonl --certify --confidence 0.95 --ceiling high=0.10
    Example: stakes calibrate samples.jsonl --soft --signal learned:signal.json
    Example: stakes calibrate samples.jsonl --race --passes 2700
    Example: stakes calibrate samples.jsonl --endpoint http://127.0.0.1:8000/v1 --family qwen3-vl --key-env MY_KEY
    """
    from stakes.budgets.curve import budgets_to_measure
    from stakes.calibration.calibrate import calibrate as run_calibration
    from stakes.calibration.calibrate import check_tiers
    from stakes.evaluation.fingerprint import Setting
    from stakes.evaluation.progress import progress_on
    from stakes.tiers import parse_costs

    racing, confidence = race_wanted(race, passes, confidence, certify, soft)
    name, sure, ceilings = wanted(estimator, certify, confidence, ceiling)
    tiers = parse_costs(cost or ["high=5", "low=1"])
    costs = {name: tier.cost for name, tier in tiers.items()}
    setting = Setting(mechanism, selector, metric)  # type: ignore[arg-type]
    budgets = None if grid is None else whole_numbers("--grid", grid)
    log = calibration_log(output) if log is None else log
    check_writable(output, samples, log, signal_file(signal))
    budgets_to_measure(budgets, mean_budget, floor)
    reader = read_signal(signal, costs)
    # Soft stakes are priced against labels: what the signal gets wrong is part of the promise.
    asked, read = gather(samples, pages, per_tier, "calibration", None if soft else reader, judge_of(signal, costs))
    tasks = [sample.task for sample in read] or [None] * len(asked)
    labelled = [(one.question, task, one.tier) for one, task in zip(asked, tasks, strict=True)]
    served = serving_signal(labelled, costs) if reader is None else reader
    check_tiers(asked, costs, served)
    notes = ["" if soft else told_labels(read, asked), told_reading(served, [one.question for one in asked])]
    notes.append(told_units(asked))
    tell(*notes)
    readings = {one.id: served(question, task).tier for one, (question, task, _) in zip(asked, labelled, strict=True)}
    agreement = sum(readings[one.id] == one.tier for one in asked) / len(asked)
    with who.ready() as answerer, _explained(budgets, mean_budget, answerer, mechanism):
        found = run_calibration(
            answerer,
            asked,
            costs,
            mean_budget,
            served,
            log=log,
            grid=budgets,
            setting=setting,
            floor=floor,
            progress=progress_on(sys.stderr, "calibrate"),
            spread=spread(answerer),
            estimator=name,
            confidence=sure,
            ceilings=ceilings,
            race=racing,
            passes=passes,
        )
    if soft:
        tasked = {one.id: task for one, task in zip(asked, tasks, strict=True)}
        found = with_soft(found, asked, tasked, served, costs)
    elif reader is None:
        found = found.by_labels(readings)
    counts = server_counts(answerer)
    pieces = told_pieces(asked, found.run.outcomes.values())
    tell(pieces)
    try:
        found.policy.save(output)
    except OSError as error:
        raise BadInput(f"{output} cannot be written ({error.strerror}); the answers are safe in {log}") from None
    if as_json:
        files = {"policy": str(output), "log": str(log)}
        checked = {} if counts is None else {"server_counts": counts}
        print_json(
            {
                **files,
                "signal": signal,
                "signal_agreement": agreement,
                **found.record(),
                **checked,
                "notes": [*filter(None, [*notes, pieces])],
            }
        )
        return
    from stakes.commands.calibrate_summary import print_calibration

    shown = agreement if reader is None or soft else None
    print_calibration(found, str(samples or f"{pages} pages"), output, log, shown, stated=bool(cost))
    for line in [*told_soft(found.policy), *told_race(found.raced)]:
        typer.echo(line)
    if counts:
        typer.echo(told_counts(counts))


@contextmanager
def _explained(grid: list[int] | None, mean_budget: int, model: object, mechanism: str) -> Iterator[None]:
    """A budget that no image can take, and that nobody typed, is the scaled grid's: say so, and what to type."""
    from stakes.budgets.curve import default_grid

    try:
        yield
    except (InfeasibleBudget, LedgerBreach) as error:
        if grid is not None or not any(words in str(error) for words in ("smallest feasible budget", "native tokens")):
            raise
        scaled = default_grid(mean_budget)
        goes = f"from {scaled[0]} to {scaled[-1]}" if len(scaled) > 1 else f"only to {scaled[0]}"
        # Whoever shows its features can delete them, and deletion keeps any number.
        deletes = mechanism == "resolution" and isinstance(error, InfeasibleBudget) and hasattr(model, "encode")
        other = ", or --mechanism deletion, which keeps any number of tokens" if deletes else ""
        raise type(error)(
            f"the grid scaled to a mean budget of {mean_budget} goes {goes}, which these images cannot take; give "
            f"--grid with budgets that they can, and a --mean-budget between them{other} ({error})"
        ) from None


def calibration_log(policy: Path) -> Path:
    """Where the answers behind a policy are kept unless one says otherwise."""
    return policy.with_suffix(".outcomes.jsonl")
