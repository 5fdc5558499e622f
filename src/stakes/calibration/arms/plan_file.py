"""The file beside an evaluation's log, ``LOG.arms.json``: what each arm asked, for which policy, and who answered."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stakes.budgets.policy import Policy
from stakes.calibration.arms.plan import ArmPlan, decisions
from stakes.calibration.reading import usable_labels
from stakes.data.sample import Sample
from stakes.errors import BadInput
from stakes.evaluation.fingerprint import Fingerprint, json_digest


def plan_key(
    samples: Sequence[Sample], policy: Policy, fingerprint: Fingerprint, arms: Sequence[str]
) -> dict[str, object]:
    """Everything that a plan of arms depends on; with an equal key a saved plan is used again."""
    key: dict[str, object] = {
        "run": fingerprint.run,
        "floor": policy.floor,
        "arms": list(arms),
        "tiers": {tier: [plan.cost, plan.budget] for tier, plan in policy.tiers.items()},
        "signal": json_digest(policy.signal),
    }
    if policy.per_request is not None:
        key["decided"] = [[decision.budget, decision.cost] for decision in decisions(samples, policy)]
        key["price"] = policy.per_request.price
    return key


def labels_and_unit(samples: Sequence[Sample], policy: Policy) -> dict[str, object]:
    """The true tier of each sample where the signal read some otherwise (else None), and what is independent."""
    labels = usable_labels(samples, policy.costs)
    known = labels is not None and any(labels[sample.id] != sample.tier for sample in samples)
    return {
        "labels": [labels[sample.id] for sample in samples] if labels is not None and known else None,
        "unit": "group" if any(sample.group for sample in samples) else "document",
    }


def read_plan(path: Path) -> ArmPlan:
    """The plan of the arms."""
    if not path.exists():
        raise BadInput(f"there is no {path}, which says what each arm asked; it stands beside the log of an evaluation")
    record = {key: value for key, value in read_record(path).items() if key not in ("key", "answered_by", "read_by")}
    try:
        return ArmPlan.from_record(record)
    except (TypeError, ValueError, AttributeError):
        raise _not_a_plan(path) from None


def read_about(path: Path) -> tuple[str | None, str | None, str]:
    """The model's name and digest, and how tiers were read, as they stand beside a log; older files have none."""
    record = read_record(path)
    answered_by, read_by = record.get("answered_by") or {}, record.get("read_by", "")
    if not isinstance(answered_by, dict) or not isinstance(read_by, str):
        raise _not_a_plan(path)
    model, digest = answered_by.get("model"), answered_by.get("digest")
    return None if model is None else str(model), None if digest is None else str(digest), read_by


def check_planned(path: Path, policy: Policy) -> bool | None:
    """Refuse arms of other budgets than the policy's; then, whether they were of its signal. None: an older file."""
    key = read_record(path).get("key")
    if key is None:
        return None
    try:
        planned, signal = {tier: int(budget) for tier, (_, budget) in key["tiers"].items()}, key.get("signal")
    except (TypeError, ValueError, KeyError, AttributeError):
        raise _not_a_plan(path) from None
    if planned != policy.budgets:
        was, now = (", ".join(f"{tier} {b}" for tier, b in budgets.items()) for budgets in (planned, policy.budgets))
        raise BadInput(f"this evaluation is of budgets {was}; the policy's are {now}; run stakes evaluate again")
    if policy.per_request is not None and key.get("price", policy.per_request.price) != policy.per_request.price:
        raise BadInput(
            f"this evaluation used a price of {key['price']} per token; the policy's is {policy.per_request.price}; "
            "run stakes evaluate again"
        )
    return None if signal is None else bool(signal == json_digest(policy.signal))


def read_record(path: Path) -> dict[str, Any]:
    """The whole file."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise BadInput(f"{path} cannot be read ({error}); remove it and evaluate again") from None
    if not isinstance(record, dict):
        raise _not_a_plan(path)
    return record


def _not_a_plan(path: Path) -> BadInput:
    return BadInput(f"{path} is not a plan of arms; remove it and evaluate again")
