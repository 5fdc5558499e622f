"""What would one tell a manager? Sentences made from the measured arms, whatever they say.

    "At the same tokens, mistakes of tier high fall from 30.0 % to 13.3 %; tier low pays for it: 37.3 % to 84.3 %. …"
    "It does not help here, keep uniform: …"

A gain is called one only where the 95 % interval of the fall in CWE over whole documents lies above zero, and
never of fewer than ten documents, which have no interval to speak of.
"""

from stakes.budgets.policy import Policy
from stakes.calibration.arms.comparison import ArmRow, Comparison
from stakes.calibration.evaluate import Evaluation

OTHER_SIGNAL = "The policy's signal has changed since this evaluation: run stakes evaluate again to judge it as it is."


def verdict(found: Evaluation) -> str:
    """The cost arm beside uniform, in words."""
    seen = found.comparison
    rows = {row.arm: row for row in seen.rows}
    if "cost" not in rows:
        return "The policy's own arm was not evaluated, so there is nothing to say about it."
    uniform, cost = rows["uniform"], rows["cost"]
    gain = cost.gain
    assert gain is not None  # only uniform has none
    moved = _moved(uniform, cost, seen)
    sized = f"{len(found.plan.samples)} questions on {seen.documents} documents"
    span = f"{_signed(gain.value)} (95\u00a0% interval {_signed(gain.low)} to {_signed(gain.high)}; {sized})"
    fall = f"cost-weighted error falls by {span}"
    if gain.low == gain.high == 0:
        return f"It does not help here, keep uniform: {moved}, and cost-weighted error stays the same ({sized})."
    if gain.few:
        point = f"a fall of {_signed(gain.value)}, with {gain.few} ({sized})"
        return (
            f"Not to be told yet, keep uniform and label more: {moved}; the change in cost-weighted error is {point}."
        )
    change = f"the change in cost-weighted error is a fall of {span}"
    if gain.low > 0:
        return f"At the same tokens, {moved}. Counted at the policy's costs it helps: {fall}."
    if gain.high < 0:
        return f"It does harm here, keep uniform: {moved}, and {change}."
    return f"It does not help here for certain, keep uniform or label more: {moved}, but {change}, which may be luck."


def told_uniform(found: Evaluation, policy: Policy) -> str:
    """What the uniform arm gives each image, and why that is not the policy's mean budget where it is not."""
    counts = found.comparison.counts
    size, tokens = sum(counts.values()), found.plan.total / sum(counts.values())
    budgets = f"budgets ({', '.join(f'{tier} {budget}' for tier, budget in policy.budgets.items())}) come"
    own = "decisions, question by question, come" if found.plan.soft else budgets
    told = f"Uniform gives every image {tokens:.0f} tokens: what the policy's own {own} to here"
    if abs(tokens - policy.mean_budget) < 1:
        return f"{told}."
    here = ", ".join(f"{count} of {size} read as {tier}" for tier, count in counts.items())
    then = {tier: max(plan.curve.counts) for tier, plan in policy.tiers.items() if plan.curve is not None}
    there = ", ".join(f"{count} {tier}" for tier, count in then.items())
    calibrated = f" (calibrated on {there})" if len(then) == len(policy.tiers) else ""
    return f"{told}, with {here}; the policy's mean budget is {policy.mean_budget}{calibrated}."


def soft_stakes(policy: Policy) -> str:
    """That this policy decides by question and not by tier, at what price, and whose word it takes; else empty."""
    if policy.soft is None:
        return ""
    trust = policy.soft.trust
    word = "tiers are as likely as its signal says"
    if trust is not None:
        word = ", ".join(f"{tier} is right {trust[tier].get(tier, 0.0):.1%} of the time" for tier in trust)
        word = f"of its signal's readings {word}".replace("%", "\u00a0%")
    return (
        "Soft stakes: the policy's own arm gives each question what its expected cost pays for at "
        f"{policy.soft.price:.3g} of cost a token ({word}), as it is served, and not one budget a tier."
    )


def _moved(uniform: ArmRow, cost: ArmRow, seen: Comparison) -> str:
    """How each tier's mistakes moved, dearest first; a tier that lost is said to pay."""
    order = sorted(seen.counts, key=lambda tier: -seen.costs[tier])
    told = []
    for tier in order:
        before, after = uniform.errors[tier], cost.errors[tier]
        way = f"from {before:.1%} to {after:.1%}".replace("%", "\u00a0%")
        if after < before:
            told.append(f"mistakes of tier {tier} fall {way}")
        elif after > before:
            pays = bool(told) and "fall" in told[0]
            told.append(f"tier {tier} pays for it, {way}" if pays else f"mistakes of tier {tier} rise {way}")
        else:
            told.append(f"tier {tier} stays at {after:.1%}".replace("%", "\u00a0%"))
    if len(told) > 4:
        told = [*told[:3], f"and {len(told) - 3} more tiers move as tabled"]
    return "; ".join(told)


def _signed(value: float) -> str:
    return f"{value:+.3f}".replace("-", "\u2212")


def other_arms(found: Evaluation) -> list[str]:
    """One sentence for each arm that is neither uniform nor the policy's own."""
    told = []
    for row in found.comparison.rows:
        if row.arm in ("uniform", "cost") or row.gain is None:
            continue
        if row.gain.few:
            told.append(f"The {row.arm} arm lowers cost-weighted error by {_signed(row.gain.value)}, {row.gain.few}.")
            continue
        sure = "more" if row.gain.high < 0 else "less" if row.gain.low > 0 else ""
        span = f"({_signed(row.gain.value)}, 95\u00a0% interval {_signed(row.gain.low)} to {_signed(row.gain.high)})"
        what = f"loses {sure} than uniform {span}" if sure else f"cannot be told from uniform {span}"
        told.append(f"The {row.arm} arm {what}.")
    return told


def unkept(found: dict[str, object] | None) -> list[str]:
    """What a certificate could not promise, to be read before anything else on the page."""
    told = []
    if found and found["shipped"] == "uniform":
        told.append(
            f"The certificate failed, so this policy gives every tier the same budget: {found['why']}. What the "
            "controls show below is not certified."
        )
    ceilings = found.get("ceilings") if found else None
    failed = [tier for tier, one in ceilings.items() if one["budget"] is None] if isinstance(ceilings, dict) else []
    if failed:
        told.append(
            f"No measured budget keeps to the ceiling asked for of tier {', '.join(failed)}; see the certificate."
        )
    return told


def promises(found: dict[str, object] | None) -> list[str]:
    """What the certificate says, as sentences; and that there is none where there is none."""
    if not found:
        return [
            "Nothing is guaranteed: this policy was not certified. Calibrate with --certify to choose on half of the "
            "documents and certify on the other."
        ]
    sure = f"{found['confidence']:.4g}"
    told = [
        f"Shipped: {found['shipped']} budgets, because {found['why']}.",
        f"Chosen on {found['chosen_on']} documents, certified on {found['certified_on']} others, each statement with "
        f"confidence {sure}.",
    ]
    if found.get("tiers") == "named":
        told.append(
            "It was certified on labelled tiers, which the policy's signal does not always read: it holds for requests "
            "that name their tier (x-stakes-tier)."
        )
    ceilings = found.get("ceilings")
    for tier, ceiling in ceilings.items() if isinstance(ceilings, dict) else ():
        if ceiling["budget"] is None:
            told.append(
                f"The ceiling of {ceiling['ceiling']:.1%} on errors of tier {tier} is NOT certified: at the largest "
                f"measured budget, {ceiling['largest']} tokens, no less than {ceiling['least']:.1%} could be."
            )
        else:
            told.append(
                f"Errors of tier {tier} stay at or under {ceiling['ceiling']:.1%} from {ceiling['budget']} tokens up."
            )
    bounds = found.get("upper_errors")
    for tier, bound in bounds.items() if isinstance(bounds, dict) else ():
        told.append(
            f"Tier {tier} at {bound['budget']} tokens: {bound['error']:.1%} errors seen, at most {bound['upper']:.1%} "
            "to be expected."
        )
    return told
