"""``stakes signal train``: from labelled questions to a signal that reads the tier off the words of a new one."""

from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stakes.commands.inputs import check_writable
from stakes.commands.output import AsJson, print_json
from stakes.errors import BadInput

if TYPE_CHECKING:
    from stakes.data.sample import Sample
    from stakes.signals.agreement import Confusion

app = typer.Typer(help="Train a signal on labelled questions.", no_args_is_help=True)

LEAST = 10
"""Labelled questions of each tier: with fewer, one of five folds has at most one, and agreement cannot be measured."""


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
        str | None, typer.Option(help="The tier that undecided questions get. Default: the first of high, medium, low.")
    ] = None,
    repeats: Annotated[int, typer.Option(help="Cross-validations to average over.", min=1)] = 3,
    seed: Annotated[int, typer.Option(help="The seed of the folds.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Learn tiers from the labels of a samples file; agreement is cross-validated with whole documents held out.

    Example: stakes signal train labelled.jsonl -o signal.json
    """
    from stakes.data.sample import read_samples
    from stakes.signals import LearnedSignal
    from stakes.signals.base import find_most_expensive
    from stakes.signals.crossval import score_folds

    check_writable(output, samples)
    read = read_samples(samples)
    labelled = [sample for sample in read if sample.tier]
    counts = _count_tiers(samples, labelled)
    try:
        top = find_most_expensive(sorted(counts), most_expensive)
    except BadInput:
        raise BadInput(
            f"it is not known which of the tiers {', '.join(sorted(counts))} is the most expensive; give it, as in "
            f"--most-expensive {min(counts)}"
        ) from None
    if top not in counts:
        raise BadInput(f"no question is labelled {top!r}; the labels are {', '.join(sorted(counts))}")
    signal = LearnedSignal(most_expensive=top, seed=seed)
    texts, tiers = [sample.question for sample in labelled], [sample.tier for sample in labelled]
    documents = [sample.document or sample.image or sample.id for sample in labelled]
    groups: list[str] | None = documents
    score = partial(score_folds, texts, tiers, most_expensive=top, repeats=repeats, folds=signal.folds, seed=seed)
    why_plain = ""
    try:
        scores = score(groups)
    except BadInput as error:  # too few documents to hold out
        groups, why_plain = None, str(error).partition(";")[0]
        scores = score(groups)
    signal.fit(texts, tiers, groups)
    signal.training_ |= {"agreement": round(scores.accuracy, 4), "kappa": round(scores.kappa, 4)}
    signal.save(output)
    rule, unlabelled = _by_keywords(texts, tiers, top), len(read) - len(labelled)
    if as_json:
        record = {
            "signal": str(output), "questions": len(labelled), "unlabelled": unlabelled,
            "documents": len(set(documents)), "tiers": dict(counts), "most_expensive": top,
            "agreement": scores.accuracy, "kappa": scores.kappa, "held_out": "questions" if why_plain else "documents",
            "keyword_rule": None if rule is None else {"agreement": rule.agreement, "kappa": rule.kappa},
        }  # fmt: skip
        print_json(record)
        return
    skipped = f"; {unlabelled} without a tier were skipped" if unlabelled else ""
    typer.echo(
        f"Trained on {len(labelled)} questions ({_format_counts(counts)}) on {len(set(documents))} documents{skipped}."
    )
    typer.echo(
        f"Cross-validated with {'questions' if why_plain else 'whole documents'} held out: it agrees with "
        f"{scores.accuracy:.1%} of the labels, kappa {scores.kappa:.3f}."
    )
    if rule is not None:
        agreement = f"agrees with {rule.agreement:.1%} of the same labels, kappa {rule.kappa:.3f}"
        typer.echo(f"The keyword rule, untrained, {agreement}.")
    if why_plain:
        typer.echo(f"Documents were not held out: {why_plain}.")
    typer.echo(f"Signal in {output}; use it with --signal learned:{output}.")


def _count_tiers(path: Path, labelled: "list[Sample]") -> Counter[str]:
    """Questions by tier; refuses too few to learn from or to measure agreement on."""
    counts = Counter(sample.tier for sample in labelled)
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
