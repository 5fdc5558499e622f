"""``stakes signal train``: from labelled questions to a signal that reads the tier off the words of a new one."""

from collections import Counter
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Annotated

import typer

from stakes.commands.options.inputs import check_writable
from stakes.commands.output import AsJson, print_json
from stakes.errors import BadInput

if TYPE_CHECKING:
    from stakes.data.sample import Sample
    from stakes.signals.agreement import Confusion

app = typer.Typer(help="Train a signal on labelled questions.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Train a signal on labelled questions."""


@app.command()
def train(
    samples: Annotated[
        Path, typer.Argument(help="Labelled questions as JSONL: id, question, answers, tier, document.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The signal file to write.")] = Path("signal.json"),
    most_expensive: Annotated[
        str | None,
        typer.Option(
            help="The tier that undecided questions get. Default: by --cost, or the first of high, medium, low."
        ),
    ] = None,
    cost: Annotated[
        list[str] | None,
        typer.Option(help="Cost of a mistake, as tier=cost; once per tier. High-cost questions are then missed less."),
    ] = None,
    repeats: Annotated[int, typer.Option(help="Cross-validations to average over.", min=1)] = 3,
    seed: Annotated[int, typer.Option(help="The seed of the folds.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Learn tiers from the labels of a samples file. Agreement is cross-validated: documents and texts are held out.

    Example: stakes signal train labelled.jsonl -o signal.json
    Example: stakes signal train labelled.jsonl --cost total=20 --cost date=5 --cost other=1
    """
    from stakes.data.sample import read_samples
    from stakes.signals import LearnedSignal
    from stakes.signals.crossval import cross_fit
    from stakes.signals.prompt import text_of
    from stakes.tiers import parse_costs

    check_writable(output, samples)
    read = read_samples(samples)
    labelled = [sample for sample in read if sample.tier]
    counts = _count_tiers(samples, labelled)
    costs = {name: tier.cost for name, tier in parse_costs(cost).items()} if cost else None
    top = _most_expensive(counts, most_expensive, costs)
    texts, tiers = [sample.prompt for sample in labelled], [sample.tier for sample in labelled]
    documents = [sample.group or sample.document or sample.image or sample.id for sample in labelled]
    why_not, agreement, kappa, right = "", None, None, None
    try:
        fits = [
            cross_fit(texts, tiers, documents, costs=costs, most_expensive=top, seed=seed + repeat)
            for repeat in range(repeats)
        ]
        signal: LearnedSignal = fits[0].signal
        agreement, kappa = (
            mean(values) for values in zip(*((f.confusion.agreement, f.confusion.kappa) for f in fits), strict=True)
        )
        right = {tier: mean(fit.right_by_tier[tier] for fit in fits) for tier in counts}
        signal.training_ |= {"agreement": round(agreement, 4), "kappa": round(kappa, 4)}
    except BadInput as error:  # too few documents or distinct texts to hold out
        why_not = str(error)
        signal = LearnedSignal(most_expensive=top, costs=costs, seed=seed).fit(texts, tiers)
    signal.save(output)
    rule, unlabelled = _by_keywords([text_of(text) for text in texts], tiers, top), len(read) - len(labelled)
    if as_json:
        record = {
            "signal": str(output), "questions": len(labelled), "unlabelled": unlabelled,
            "documents": len(set(documents)), "tiers": dict(counts), "most_expensive": top,
            "agreement": agreement, "kappa": kappa, "right_by_tier": right,
            "held_out": None if why_not else "documents", "why_not_held_out": why_not,
            "keyword_rule": None if rule is None else {"agreement": rule.agreement, "kappa": rule.kappa},
        }  # fmt: skip
        print_json(record)
        return
    skipped = f"; {unlabelled} without a tier were skipped" if unlabelled else ""
    typer.echo(
        f"Trained on {len(labelled)} questions ({_format_counts(counts)}) on {len(set(documents))} documents{skipped}."
    )
    if right is not None:
        by_tier = ", ".join(f"{tier} {share:.1%}" for tier, share in right.items())
        typer.echo(
            f"Cross-validated with whole documents held out, and their texts: it agrees with {agreement:.1%} of the "
            f"labels, kappa {kappa:.3f} ({by_tier})."
        )
    if rule is not None:
        found = f"agrees with {rule.agreement:.1%} of the same labels, kappa {rule.kappa:.3f}"
        typer.echo(f"The keyword rule, untrained, {found}.")
    if why_not:
        typer.echo(f"Not cross-validated, so its accuracy on other questions is not known: {why_not}.")
    typer.echo(f"Signal in {output}; use it with --signal learned:{output}.")


def _most_expensive(counts: Counter[str], given: str | None, costs: dict[str, float] | None) -> str:
    """The tier of undecided questions: the one given, the one with the highest cost, or the paper's order."""
    from stakes.signals.base import find_most_expensive

    labels = ", ".join(sorted(counts))
    missing = [tier for tier in counts if costs is not None and tier not in costs]
    if missing:
        raise BadInput(f"the label {missing[0]!r} has no cost; give one for every label, such as --cost {missing[0]}=1")
    if costs and given is None:
        given = max(costs, key=costs.__getitem__)
    try:
        top = find_most_expensive(sorted(counts), given)
    except BadInput:
        raise BadInput(
            f"it is not known which of the tiers {labels} is the most expensive; give the costs, as in "
            f"--cost {min(counts)}=5, or only --most-expensive {min(counts)}"
        ) from None
    if top not in counts:
        raise BadInput(f"no question is labelled {top!r}; the labels are {labels}")
    return top


def _count_tiers(path: Path, labelled: "list[Sample]") -> Counter[str]:
    """Questions by tier; refuses too few to learn from or to measure agreement on."""
    counts = Counter(sample.tier for sample in labelled)
    from stakes.calibration.reading import LEAST

    listed = _format_counts(counts) or "none"
    if len(counts) < 2:
        raise BadInput(
            f"the labels of {path} are {listed}, and a signal learns to distinguish at least two tiers; give each line "
            'a "tier", such as "tier": "high"'
        )
    rarest = min(counts, key=counts.__getitem__)
    if counts[rarest] < LEAST:
        raise BadInput(
            f"{path} has only {counts[rarest]} labelled questions of tier {rarest!r} ({listed}); label at least "
            f"{LEAST} of each, better 100, or write keywords into a file and give --signal keywords:FILE"
        )
    return counts


def _format_counts(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {tier}" for tier, count in counts.items())


def _by_keywords(texts: list[str], tiers: list[str], most_expensive: str) -> "Confusion | None":
    """How the keyword rule, which needs no labels, reads the same questions; None with other than two tiers."""
    from stakes.signals import KeywordRule
    from stakes.signals.agreement import Confusion

    others = {*tiers} - {most_expensive}
    if len(others) != 1:
        return None
    rule = KeywordRule(high=most_expensive, low=others.pop())
    return Confusion.of(tiers, [rule(text).tier for text in texts])
