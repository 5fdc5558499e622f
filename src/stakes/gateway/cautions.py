"""What should whoever runs a policy know before trusting it? Sentences for the start, the log, doctor and the page.

for sentence in cautions(policy):
    print(f"warning: {sentence}")
"""

from stakes.budgets.policy import Policy

LEGIBILITY = (
    "LEGIBILITY, not a VLM's error: this policy was measured by what an OCR engine can still read, and no model "
    "answered; calibrate with the model that is served"
)


def cautions(policy: Policy) -> list[str]:
    """Whatever about this policy is weaker than it looks; empty where curves are of a model's own answers."""
    return [LEGIBILITY] if policy.basis == "legibility" else []
