"""Conclusions in plain English, made from the measured arms and the certificate.

    "With the same total of tokens, errors of tier high fall from 30.0 % to 13.3 %; errors of tier low rise from …"
    "It does not help here, keep uniform: …"

A gain is called one only where the 95 % interval of the fall in CWE over whole documents lies above zero, and never
with fewer than ten documents, where an interval means little.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from stakes.budgets.digests import edited_parts
from stakes.budgets.policy import Policy
from stakes.calibration.arms.comparison import ArmRow, Comparison
from stakes.calibration.evaluate import Evaluation
from stakes.evaluation.outcome_log import Outcome
from stakes.models.embedded import READS, UNSURE_BELOW

SIGNAL_CHANGED = (
    "The policy's signal has changed since this evaluation: run stakes evaluate again to judge it as it is."
)


def note_on_unsure(policy: Policy, outcomes: Iterable[Outcome]) -> str:
    """That the embedded reader was not sure of most answers at its largest budget; else empty.

    On synthetic forms it is sure of three in four at 448 tokens, on DocVQA of one in five with all tokens.
    """
    if policy.model is None or policy.model.name != "embedded":
        return ""
    known = [(outcome.budget, outcome.confidence) for outcome in outcomes if outcome.confidence is not None]
    most = max((budget for budget, _ in known), default=0)
    sure = [confidence >= UNSURE_BELOW for budget, confidence in known if budget == most]
    if 2 * sure.count(False) <= len(sure):
        return ""
    return (
        f"The embedded reader was not sure of {sure.count(False)} of {len(sure)} answers at {most} tokens, the largest "
        f"budget. {READS}"
    )


def verdict(judged: Evaluation) -> str:
    """What was not as in the calibration; then whether the cost arm is better than uniform, with the numbers."""
    return " ".join([*judged.differences, _conclusion(judged)])


def _conclusion(judged: Evaluation) -> str:
    comparison = judged.comparison
    rows = {row.arm: row for row in comparison.rows}
    if "cost" not in rows:
        return "The policy's own arm was not evaluated, so there is nothing to say about it."
    uniform, cost = rows["uniform"], rows["cost"]
    gain = cost.gain
    assert gain is not None  # only uniform has none
    moved = _moved(uniform, cost, comparison)
    size = f"{len(judged.plan.samples)} questions on {comparison.documents} documents"
    fall = f"the fall in cost-weighted error is {_signed(gain.value)}"
    span = f"{fall} (95\u00a0% interval {_signed(gain.low)} to {_signed(gain.high)}; {size})"
    if gain.low == gain.high == 0:
        return f"It does not help here, keep uniform: {moved}, and cost-weighted error stays the same ({size})."
    if gain.few:
        return f"Too few documents to decide, keep uniform and label more: {moved}; {fall}, with {gain.few} ({size})."
    if gain.low > 0:
        return f"With the same total of tokens, {moved}. At the policy's costs it helps: {span}."
    if gain.high < 0:
        return f"It does harm here, keep uniform: {moved}; {span}."
    return f"No significant difference, keep uniform or label more: {moved}; {span}, which includes no change."


def _moved(uniform: ArmRow, cost: ArmRow, comparison: Comparison) -> str:
    """How each tier's error changes, most expensive tier first."""
    changes = []
    for tier in sorted(comparison.counts, key=lambda tier: -comparison.costs[tier]):
        before, after = uniform.errors[tier], cost.errors[tier]
        verb = "fall" if after < before else "rise"
        change = f"stay at {after:.1%}" if after == before else f"{verb} from {before:.1%} to {after:.1%}"
        changes.append(f"errors of tier {tier} {change}".replace("%", "\u00a0%"))
    if len(changes) > 4:
        changes = [*changes[:3], f"the table has the other {len(changes) - 3} tiers"]
    return "; ".join(changes)


def _signed(value: float) -> str:
    return f"{value:+.3f}".replace("-", "\u2212")


def other_arms(judged: Evaluation) -> list[str]:
    """One sentence for each arm that is neither uniform nor the policy's own."""
    sentences = []
    for row in judged.comparison.rows:
        if row.arm in ("uniform", "cost") or row.gain is None:
            continue
        gain = row.gain
        if gain.few:
            sentences.append(f"The {row.arm} arm lowers cost-weighted error by {_signed(gain.value)}, with {gain.few}.")
            continue
        result = (
            "is worse than" if gain.high < 0 else "is better than" if gain.low > 0 else "does not clearly differ from"
        )
        span = f"{_signed(gain.value)}, 95\u00a0% interval {_signed(gain.low)} to {_signed(gain.high)}"
        sentences.append(f"The {row.arm} arm {result} uniform (fall in cost-weighted error {span}).")
    return sentences


def describe_uniform(judged: Evaluation, policy: Policy) -> str:
    """What the uniform arm gives each image, and why that may differ from the policy's mean budget."""
    counts = judged.comparison.read_as
    size, tokens = sum(counts.values()), judged.plan.total / sum(counts.values())
    budgets = f"budgets ({', '.join(f'{tier} {budget}' for tier, budget in policy.options.items())})"
    own = "decisions for each question" if judged.plan.per_request else budgets
    uniform = f"Uniform gives every image {tokens:.0f} tokens, the mean of the policy's own {own} here"
    if abs(tokens - policy.mean_budget) < 1:
        return f"{uniform}."
    here = ", ".join(f"{count} of {size} read as {tier}" for tier, count in counts.items())
    then = policy.counts
    there = ", ".join(f"{count} {tier}" for tier, count in then.items())
    calibrated = f" (calibrated on {there})" if len(then) == len(policy.tiers) else ""
    return f"{uniform}, with {here}; the policy's mean budget is {policy.mean_budget}{calibrated}."


def describe_reading(comparison: Comparison) -> str:
    """How far the signal's readings are the labels; "" where they agree or labels are not known."""
    if comparison.agreement is None:
        return ""
    return (
        f"Budgets follow the signal's reading, which agrees with {comparison.agreement:.1%} of the labels; errors and "
        "costs are by the label.".replace("%", "\u00a0%")
    )


def describe_per_request(policy: Policy) -> str:
    """How a policy with per-request costs decides, its price and what it assumes of its signal; "" for any other."""
    if policy.per_request is None:
        return ""
    trust = policy.per_request.trust
    assumed = "tiers are as likely as its signal says"
    if trust is not None:
        rates = ", ".join(f"{tier} is right {trust[tier].get(tier, 0.0):.1%} of the time" for tier in trust)
        assumed = f"of its signal's readings {rates}".replace("%", "\u00a0%")
    return (
        "Per-request costs: the policy's own arm gives each question the budget that its expected cost pays for, at "
        f"{policy.per_request.price:.3g} of cost a token ({assumed}), as the gateway does, and not one budget a tier."
    )


def certificate_failures(certificate: Mapping[str, Any] | None) -> list[str]:
    """What the certificate could not guarantee, for the top of the report."""
    sentences = []
    if certificate and certificate["shipped"] == "uniform":
        sentences.append(
            f"The certificate failed, so this policy gives every tier the same budget: {certificate['why']}. What the "
            "controls show below is not certified."
        )
    ceilings = (certificate or {}).get("ceilings") or {}
    if failed := [tier for tier, ceiling in ceilings.items() if ceiling["budget"] is None]:
        sentences.append(
            f"No measured budget meets the error ceiling of tier {', '.join(failed)}; see the certificate."
        )
    return sentences


def ended_certificate(policy: Policy) -> list[str]:
    """That the certificate is for another policy than this one, as a sentence; else empty."""
    edited = edited_parts(policy) if policy.certificate else []
    if not edited:
        return []
    return [
        f"Nothing is guaranteed: the certificate is for other {' and other '.join(edited)} than this policy has. "
        "Calibrate again with --certify."
    ]


def guarantees(certificate: Mapping[str, Any] | None) -> list[str]:
    """What the certificate guarantees, as sentences; without one, that nothing is guaranteed."""
    if not certificate:
        return [
            "Nothing is guaranteed: this policy was not certified. Calibrate with --certify to choose on a part of the "
            "documents and certify on the others."
        ]
    sentences = [
        f"Shipped: {certificate['shipped']} budgets, because {certificate['why']}.",
        f"Chosen on {certificate['chosen_on']} {certificate.get('unit', 'document')}s, certified on "
        f"{certificate['certified_on']} others, each statement with confidence {certificate['confidence']:.4g}.",
    ]
    stated = [certificate.get("rate"), "" if certificate.get("tiers") == "named" else certificate.get("covers")]
    sentences += [f"{part[0].upper()}{part[1:]}." for part in stated if part]
    if certificate.get("tiers") == "named":
        sentences.append(
            "It was certified on labelled tiers, which the policy's signal does not always read: it holds for requests "
            "that name their tier (x-stakes-tier)."
        )
    for tier, ceiling in (certificate.get("ceilings") or {}).items():
        if ceiling["budget"] is None:
            sentences.append(
                f"The ceiling of {ceiling['ceiling']:.1%} on errors of tier {tier} is NOT certified: at the largest "
                f"measured budget, {ceiling['largest']} tokens, the lowest ceiling that could be certified is "
                f"{ceiling['least']:.1%}."
            )
        else:
            sentences.append(
                f"Errors of tier {tier} stay at or under {ceiling['ceiling']:.1%} from {ceiling['budget']} tokens up."
            )
    for tier, bound in (certificate.get("upper_errors") or {}).items():
        sentences.append(
            f"Tier {tier} at {bound['budget']} tokens: {bound['error']:.1%} errors measured, at most "
            f"{bound['upper']:.1%} to be expected."
        )
    return sentences
