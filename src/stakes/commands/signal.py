"""``stakes signal``: from labelled questions to a signal that reads the tier off the words of a new one."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stakes.commands.inputs import check_writable
from stakes.commands.output import AsJson, print_json
from stakes.errors import BadInput

if TYPE_CHECKING:
    from stakes.data.sample import Sample
    from stakes.signals import LearnedSignal
    from stakes.signals.agreement import Confusion
    from stakes.signals.crossval import Scores


app = typer.Typer(help="Train a signal on labelled questions.", no_args_is_help=True)

LEAST = 10
"""Labelled questions of each tier: with fewer, a fold in five holds at most one, and no agreement can be told."""


@app.callback()
def _group() -> None:
    """Train a signal on labelled questions."""


@app.command()
def train(
    samples: Annotated[
        Path, typer.Argument(help="Labelled questions as JSONL: id, question, answers, tier, document.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The signal file to write.")] = Path("signal.json"),
    dearest: Annotated[
        str | None, typer.Option(help="The tier that undecided questions go to. Default: high, medium, low in order.")
    ] = None,
    repeats: Annotated[int, typer.Option(help="Cross-validations to average over.", min=1)] = 3,
    seed: Annotated[int, typer.Option(help="How folds are drawn.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Learn tiers from the labels of a samples file, and say how well: cross-validated, whole documents held out.

    Example: stakes signal train labelled.jsonl -o signal.json
    """
    from stakes.data.sample import read_samples
    from stakes.signals import LearnedSignal
    from stakes.signals.base import find_dearest

    check_writable(output, samples)
    read = read_samples(samples)
    labelled = [one for one in read if one.tier is not None]
    counts = _enough(samples, labelled)
    try:
        dear = find_dearest(sorted(counts), dearest)
    except BadInput:
        tiers = ", ".join(sorted(counts))
        raise BadInput(f"which of the tiers {tiers} is the dearest? Say so with --dearest {min(counts)}") from None
    if dear not in counts:
        raise BadInput(f"no question is labelled {dear!r}; the labels are {', '.join(sorted(counts))}")
    signal = LearnedSignal(dearest=dear, seed=seed)
    scores, why_plain = _scores(signal, labelled, dear, repeats, seed)
    texts, tiers_of = [one.question for one in labelled], [str(one.tier) for one in labelled]
    signal.fit(texts, tiers_of, None if why_plain else _documents(labelled))
    signal.chosen_ |= {"agreement": round(scores.accuracy, 4), "kappa": round(scores.kappa, 4)}
    signal.save(output)
    documents, rule = len(set(_documents(labelled))), _by_keywords(texts, tiers_of, dear)
    record = {
        "signal": str(output), "questions": len(labelled), "unlabelled": len(read) - len(labelled),
        "documents": documents, "tiers": dict(counts), "dearest": dear, "agreement": scores.accuracy,
        "kappa": scores.kappa, "held_out": "questions" if why_plain else "documents",
        "keyword_rule": None if rule is None else {"agreement": rule.agreement, "kappa": rule.kappa},
    }  # fmt: skip
    if as_json:
        print_json(record)
        return
    sizes = ", ".join(f"{count} {tier}" for tier, count in counts.items())
    left = f"; {record['unlabelled']} without a tier were left out" if record["unlabelled"] else ""
    typer.echo(f"Trained on {len(labelled)} questions ({sizes}) on {documents} documents{left}.")
    way = "questions" if why_plain else "whole documents"
    typer.echo(
        f"Cross-validated with {way} held out: it agrees with {scores.accuracy:.1%} of the labels, kappa "
        f"{scores.kappa:.3f}."
    )
    if rule is not None:
        same = f"agrees with {rule.agreement:.1%} of the same labels, kappa {rule.kappa:.3f}"
        typer.echo(f"The keyword rule, untrained, {same}.")
    if why_plain:
        typer.echo(f"Not by documents: {why_plain}.")
    typer.echo(f"Signal in {output}; use it with --signal learned:{output}.")


def _enough(path: Path, labelled: "list[Sample]") -> Counter[str]:
    """How many questions each tier has; too few to learn from, or to tell how well that went, are refused."""
    counts = Counter(str(one.tier) for one in labelled)
    told = ", ".join(f"{count} {tier}" for tier, count in counts.items()) or "none"
    if len(counts) < 2:
        raise BadInput(
            f"the labels of {path} are {told}, and a signal learns to tell at least two tiers apart; give each line a "
            '"tier", such as "tier": "high"'
        )
    short = min(counts, key=counts.__getitem__)
    if counts[short] < LEAST:
        raise BadInput(
            f"{path} has only {counts[short]} labelled questions of tier {short!r} ({told}); label at least {LEAST} of "
            "each, better 100, or write keywords into a file and give --signal keywords:FILE"
        )
    return counts


def _documents(labelled: "list[Sample]") -> list[str]:
    """What is held out together: the document, else the image, else the question alone."""
    return [one.document or one.image or one.id for one in labelled]


def _by_keywords(texts: list[str], tiers: list[str], dearest: str) -> "Confusion | None":
    """What the keyword rule, which needs no labels, says of the same questions; None where they have a third tier."""
    from stakes.signals import KeywordRule
    from stakes.signals.agreement import Confusion

    others = {*tiers} - {dearest}
    if len(others) != 1:
        return None
    rule = KeywordRule(high=dearest, low=others.pop())
    return Confusion.of(tiers, [rule(text).tier for text in texts])


def _scores(
    signal: "LearnedSignal", labelled: "list[Sample]", dearest: str, repeats: int, seed: int
) -> "tuple[Scores, str]":
    """Scores with whole documents held out; where no such folds can be had, with questions, and why."""
    from stakes.signals.crossval import score_folds

    texts, tiers = [one.question for one in labelled], [str(one.tier) for one in labelled]
    try:
        groups, why = _documents(labelled), ""
        found = score_folds(texts, tiers, groups, dearest=dearest, repeats=repeats, folds=signal.folds, seed=seed)
    except BadInput as error:
        why = str(error).partition(";")[0]
        found = score_folds(texts, tiers, None, dearest=dearest, repeats=repeats, folds=signal.folds, seed=seed)
    return found, why
