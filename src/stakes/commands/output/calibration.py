"""The summary that ``stakes calibrate`` prints: curves, budgets, held-out check, certificate, tokens."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from stakes.calibration.arms.comparison import TOLERANCE
from stakes.calibration.certify.certificate import Certificate
from stakes.calibration.result import Calibration
from stakes.commands.output import format_by_tier, print_table
from stakes.commands.output.plan import print_plan
from stakes.evaluation.savings import ms_per_thousand_tokens, savings
from stakes.formats import counted, format_dollars, format_seconds

if TYPE_CHECKING:
    from stakes.budgets.options.tier_plan import OptionEvidence
    from stakes.budgets.policy import Policy
    from stakes.calibration.adaptive.sampler import AdaptiveResult
    from stakes.calibration.reading import SignalTraining
    from stakes.evaluation.statistics import Gain


def print_shipped(found: Calibration) -> None:
    """Print the certificate, or which estimator the policy's budgets rest on."""
    if found.certificate is not None:
        print_certificate(found.certificate)
    elif dict(found.policy.budgets) != dict(found.plan.allocation.budgets):
        typer.echo(f"By {found.policy.estimator} the policy has {format_by_tier(found.policy.budgets)}.\n")
    else:
        typer.echo(f"Curves by {found.policy.estimator}.")


def print_certificate(certificate: Certificate) -> None:
    """Print what ships and with which bounds."""
    rows = [(tier, bound.budget, bound.error, f"{bound.upper:.3f}") for tier, bound in certificate.upper_errors.items()]
    sure = f"{certificate.confidence:.4g}"
    typer.echo(f"Certificate at {sure} confidence: {certificate.shipped} budgets ship.")
    print_table("", ["tier", "budget", "error", "at most"], rows)
    typer.echo(
        f"Chosen on {certificate.chosen_on} {certificate.unit}s by {certificate.estimator}, certified on the other "
        f"{certificate.certified_on}: {certificate.why}."
    )
    typer.echo(". ".join(part[0].upper() + part[1:] for part in (certificate.covers, certificate.rate) if part) + ".")
    test = certificate.no_harm
    if test is not None:
        budgets = format_by_tier(test.budgets)
        typer.echo(
            f"{budgets} against uniform {test.uniform}, the largest measured budget within the mean: CWE gain "
            f"{test.gain:.3f}, at least {test.lower:.3f}."
        )
    for tier, bound in certificate.harm.items():
        verdict = "within" if bound.kept else "not certified to stay within"
        rise = f"a rise of {bound.rise:.3f}, at most {bound.upper:.3f}"
        typer.echo(
            f"{tier} error against uniform {bound.uniform}: {rise}, {verdict} the harm limit of {bound.limit:g}."
        )
    for ceiling in certificate.ceilings.values():
        typer.echo(f"{ceiling}.")
    typer.echo("")


def print_calibration(
    found: Calibration,
    source: str,
    output: Path,
    log: Path,
    agreement: float | None = None,
    *,
    stated: bool = True,
    price: float | None = None,
) -> None:
    """Print the whole summary; ``stated``: the user gave the costs; ``price``: of a million input tokens."""
    if found.harm is not None:
        typer.echo(f"{found.harm}\n")
    if found.policy.basis == "legibility":
        typer.echo("LEGIBILITY, not a VLM's error: whether the text at each answer's position can still be read.")
    if len(found.excluded):
        typer.echo(f"{found.excluded}.")
    if found.margins is not None and found.margins.trimmed:
        typer.echo(f"{found.margins}.")
    budgets = sorted({budget for curve in found.curves.values() for budget in curve.budgets})
    rows = [
        (budget, *(f"{curve.error(budget):.3f}" if budget in curve.budgets else "" for curve in found.curves.values()))
        for budget in budgets
    ]
    if next(iter(found.run.outcomes.values())).layers is not None:
        typer.echo("Budgets are tokens averaged over the decoder's layers.")
    print_table("Error by budget, raw", ["budget", *found.curves], rows)
    as_planned = found.certificate is None or dict(found.policy.budgets) == dict(found.plan.allocation.budgets)
    title = "Budgets" if as_planned else "Budgets, before the certificate"
    print_plan(
        found.plan, found.curves, source, found.policy.estimator, fitted=found.fitted, title=title, stated=stated
    )
    if found.certificate is None:  # a certificate splits the documents differently and would show another number
        _print_held_out(found)
    print_shipped(found)
    for line in format_options(found):
        typer.echo(line)
    native, spent = found.native_tokens, found.spent
    typer.echo(
        f"At full resolution these questions take {native:,} visual tokens; under the policy {spent:,}, "
        f"{spent / native:.1%} of that. Measuring took {found.measured_tokens:,}."
    )
    for line in format_savings(found, price):
        typer.echo(line)
    ran = found.run
    if ran.answered:
        rate = ran.answered / ran.seconds if ran.seconds else 0.0
        typer.echo(f"{ran.answered:,} of {len(ran.outcomes):,} answers are new, {rate:.1f} per second.")
    if ran.retiered:
        typer.echo(f"{ran.retiered} questions have another tier than before; their answers are kept.")
    if ran.changed:
        typer.echo(f"{ran.changed} answers of a redone batch differ from the log: this model is not deterministic.")
    kind = found.policy.signal["kind"]
    if found.training is not None:
        for line in format_training(found.training):
            typer.echo(line)
    if agreement is not None:
        typer.echo(
            f"Calibrated on the labels; the policy reads tiers by {kind}, which agrees with {agreement:.1%} of them."
        )
    for line in format_served(found):
        typer.echo(line)
    typer.echo(f"Policy in {output}, answers in {log}.")


def format_savings(found: Calibration, price: float | None) -> Iterator[str]:
    """What the policy saves against full resolution over 1,000 images, in money and time, as sentences."""
    questions = sum(found.plan.counts.values())
    native, spent = (1000 * tokens / questions for tokens in (found.native_tokens, found.spent))
    legible = found.policy.basis == "legibility"  # OCR's time says nothing of a model's
    ms = None if legible else ms_per_thousand_tokens(found.run.outcomes.values())
    full, own = savings(native, price, ms), savings(spent, price, ms)
    if full.dollars is not None and own.dollars is not None:
        yield (
            f"1,000 images at {format_dollars(price or 0)} per million input tokens: {format_dollars(own.dollars)} "
            f"under the policy, {format_dollars(full.dollars)} at full resolution."
        )
    if ms is not None and full.seconds is not None and own.seconds is not None:
        yield (
            f"1,000 further visual tokens take {ms:.0f} ms here, so the policy takes "
            f"{format_seconds((full.seconds - own.seconds) / 1000)} per image less than full resolution."
        )


def format_options(found: Calibration) -> Iterator[str]:
    """What came of second attempts and review, as sentences."""
    step = found.beside_budgets
    if step.verdict is None:
        if step.why_not:
            yield f"Options were not considered: {step.why_not}."
        return
    if not step.options:
        yield f"Second attempts, predicted budgets and review: {step.verdict.why}."
        return
    yield (
        f"Options ship, chosen on {step.verdict.chosen_on} documents and judged on the other {step.verdict.judged_on}: "
        f"{step.verdict.why}."
    )
    for tier, option in step.options.items():
        yield f"  {tier}: {option}. {format_evidence(found.policy.tiers[tier].evidence)}"
    if found.certificate is not None:
        yield from (f"{ceiling}." for ceiling in found.certificate.review_ceilings.values())


def format_evidence(evidence: "OptionEvidence | None") -> str:
    """What an option did on held-out documents, in one sentence."""
    if evidence is None:
        return ""
    asked = f"{evidence.tokens:.0f} tokens per question" + (
        f", {evidence.escalated:.1%} asked twice" if evidence.escalated else ""
    )
    if evidence.error is None:
        return f"{asked}, every answer flagged."
    bound = (
        "no bound" if evidence.upper is None else f"at most {evidence.upper:.1%} with {evidence.level:.4g} confidence"
    )
    if not evidence.flagged:
        return f"{asked}; {evidence.error:.1%} wrong, {bound}."
    passed = f"of the unflagged answers {evidence.error:.1%} are wrong, {bound}"
    return f"{asked}; {passed}; {evidence.flagged:.1%} go to a person."


def format_served(found: Calibration) -> Iterator[str]:
    """What the budgets give where the signal does not read every label as it is, as sentences."""
    served, kind = found.served, found.policy.signal["kind"]
    if served is None:
        return
    how = ", estimated from the curves" if served.estimated else ""
    gives = f"a CWE of {served.cwe:.3f} at {served.tokens:.0f} tokens per image{how}"
    even = f"uniform at the same tokens: {served.uniform:.3f}"
    if found.plan.costs_as_read is not None:
        yield (
            f"Budgets follow the reading by {kind}, which agrees with {served.agreement:.1%} of the labels; mistakes "
            f"cost by the label. So served, the policy's budgets give {gives}; {even}."
        )
        return
    yield (
        f"All of the above holds for requests that name their tier. As {kind} reads them, the same budgets give "
        f"these questions {gives}; with named tiers {served.by_label:.3f} at {served.label_tokens:.0f}; {even}. Name "
        f"tiers in the header x-stakes-tier, train a signal on the labels, or calibrate with --signal {kind} or "
        "--per-request."
    )


def format_training(training: "SignalTraining") -> Iterator[str]:
    """What signal was trained on the labels, and how it reads questions that it has not seen, as sentences."""
    counts = ", ".join(f"{count} {tier}" for tier, count in training.counts.items())
    questions = sum(training.counts.values())
    yield f"A signal was trained on the {questions} labels ({counts}); the policy reads requests by it."
    if training.agreement is None or training.right_by_tier is None:
        yield (
            f"It was not checked on questions that it has not seen: {training.why_not}. The tiers above are the "
            "labels: all of it holds for requests that name their tier, or ask one of these questions word for word."
        )
        return
    right = ", ".join(f"{tier} {share:.1%}" for tier, share in training.right_by_tier.items())
    yield (
        f"Out of fold, with documents and texts held out, it reads {training.agreement:.1%} of the labels "
        f"({right}; kappa {training.kappa:.3f}); {training.undecided:.1%} are undecided and get the most expensive "
        "tier. The budgets rest on these readings."
    )


def _print_held_out(found: Calibration) -> None:
    check = found.held_out
    if check is None:
        typer.echo(f"No held-out check: {found.why_not_held_out}.")
        return
    if set(check.budgets.values()) == {check.uniform_budget}:
        typer.echo(
            f"Held out: chosen on {counted(check.chosen_on, 'document')}, the choice is uniform itself "
            f"({check.uniform_budget}); there is nothing to compare on the other {check.tested_on}."
        )
        return
    chosen, gain = format_by_tier(check.budgets), check.gain
    known = "helps" if gain.low > 0 else "hurts" if gain.high < 0 else "is not significantly better or worse"
    verdict = "cannot be judged yet" if gain.few else known
    mine, even = check.mean_tokens, check.uniform_mean_tokens
    tested, spent = f"the choice {verdict}", f"at {mine:.0f} tokens per image against {even:.0f}"
    if mine > (1 + TOLERANCE["resolution"]) * even:  # by more than arms may differ
        tested = "tested"
        spent = (
            f"at more tokens per image ({mine:.0f} against {even:.0f}), so this is no proof; stakes evaluate compares "
            "at equal tokens"
        )
    typer.echo(
        f"Held out: chosen on {counted(check.chosen_on, 'document')} ({chosen}), {tested} on the other "
        f"{check.tested_on}: CWE {_moves(gain)} from uniform {check.uniform_budget}, the largest "
        f"measured budget within the mean, {spent}; wins : losses in the most expensive tier {check.high_cost}."
    )


def _moves(gain: "Gain") -> str:
    """A fall of CWE, or a rise where it is negative, with its interval in the same direction."""
    rise = gain.value < 0
    value, low, high = (-gain.value, -gain.high, -gain.low) if rise else (gain.value, gain.low, gain.high)
    span = f"({gain.few})" if gain.few else f"[{low:.3f}, {high:.3f}]"
    return f"{'rises' if rise else 'falls'} by {value:.3f} {span}"


def format_per_request(policy: "Policy") -> Iterator[str]:
    """What per-request costs are estimated to give, as sentences."""
    if policy.per_request is None or policy.per_request.estimate is None:
        return
    p = policy.per_request.estimate
    yield (
        f"Per-request costs: a token is worth {policy.per_request.price:.3g} of cost. With predicted tiers "
        f"({p['right']:.1%} right), on other documents: CWE {p['cwe']:.3f} at {p['tokens']:.0f} tokens per "
        f"image; one budget per tier {p['hard_cwe']:.3f} at {p['hard_tokens']:.0f}."
    )
    yield (
        f"At cost ratios from {p['same_from']:.3g} to {p['same_to']:.3g} (stated: {p['ratio']:.3g}) at most 1 % of the "
        "budgets would change."
    )


def format_adaptive(result: "AdaptiveResult | None", certified: bool) -> Iterator[str]:
    """What adaptive sampling took, and what it is worth, as sentences."""
    if result is None:
        return
    yield (
        f"Adaptive sampling: {result.passes:,} of {result.of:,} answers ({result.passes / result.of:.0%}). By the "
        f"estimator's model, the choice loses {result.expected_regret:.4f} of CWE against the best one on average."
    )
    if certified:
        yield "What is guaranteed is in the certificate, which rests on documents that the budgets were not chosen on."
    else:
        yield "That is no guarantee. --certify gives one, from documents that the budgets are not chosen on."
