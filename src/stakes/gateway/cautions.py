"""What should whoever runs a policy know before trusting it? Sentences for the start, the log, doctor and the page.

for sentence in cautions(policy):
    print(f"warning: {sentence}")
"""

from stakes.budgets.policy import Policy
from stakes.gateway.controller_promise import kept
from stakes.vision.geometry import family as named_family
from stakes.vision.geometry.anyres import AnyRes
from stakes.vision.ladder import ladder

A4 = (1654, 2339)  # pixels at 200 dpi
LEGIBILITY = (
    "LEGIBILITY, not a VLM's error: this policy was measured by what an OCR engine can still read, and no model "
    "answered; calibrate with the model that is served"
)


def cautions(policy: Policy) -> list[str]:
    """Whatever about this policy is weaker than it looks; empty where its curves are answers and pages can take it."""
    read = [LEGIBILITY] if policy.basis == "legibility" else []
    return [*read, *_of_other_budgets(policy), *_below_the_lowest_rung(policy)]


def _of_other_budgets(policy: Policy) -> list[str]:
    """A certificate beside budgets that it does not speak of."""
    if policy.certificate is None or kept(policy) is not None:
        return []
    return [
        f"NOT CERTIFIED: the certificate is of budgets {policy.certificate.get('budgets')}, the policy's are "
        f"{policy.budgets}; nothing of it is kept; calibrate again with --certify"
    ]


def _below_the_lowest_rung(policy: Policy) -> list[str]:
    """Budgets that AnyRes, which reads every image once whole and again in tiles, reaches with hardly any image."""
    if not isinstance(named_family(policy.family).formula, AnyRes):
        return []
    least = ladder(*A4, policy.family)[0].tokens
    short = ", ".join(f"{tier} {budget}" for tier, budget in policy.budgets.items() if budget < least)
    if not short:
        return []
    return [
        f"NO RUNG SO LOW: a page of A4 takes {least} tokens or more in {policy.family}, which the budgets {short} do "
        f"not pay, so that its requests are refused; give {least} or more"
    ]
