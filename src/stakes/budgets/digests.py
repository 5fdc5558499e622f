"""Digests in a policy: of what its certificate rests on, and of the documents that it was calibrated on.

A certificate holds a digest of each part that it rests on. ``edited_parts`` names those that changed since.

A policy looks better than it is on what it was calibrated on. So its file holds, for every document and image of its
calibration, twelve hex digits of a digest, sorted: whoever has a document can check whether it is among them, and
nobody can read a name back. Images count too, because one page may go by another document's name in another file. Two
sets of 1,000 documents that share nothing are taken for overlapping with a probability of about 1.4e-8.

    policy.documents                                 # ('00a3…', '01f7…', …), None in files that do not have them
    is_held_out(policy, documents=["invoice-17"])    # True: held out; False: calibrated on it; None: not known
"""

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping

from stakes.budgets.options.tier_plan import TierPlan
from stakes.budgets.policy import DIGITS, Policy
from stakes.data.sample import Sample


def sealed(policy: Policy) -> Policy:
    """The policy with digests of all that its certificate rests on in the certificate; unchanged without one."""
    if policy.certificate is None:
        return policy
    return policy.model_copy(update={"certificate": {**policy.certificate, "digest": _part_digests(policy)}})


def edited_parts(policy: Policy) -> list[str]:
    """What was changed since the certificate was made, such as ``costs``; of an old one, budgets only are compared.

    A certificate of schema 1 has no digests of what schema 2 added. There these must still be empty.
    """
    certificate = policy.certificate or {}
    if isinstance(before := certificate.get("digest"), Mapping):
        now = _part_digests(policy)
        edited = {name for name, digest in now.items() if before.get(name, _digest(None)) != digest}
    else:
        edited = set() if certificate.get("budgets") == policy.budgets else {"budgets"}
    return sorted(edited | ({"signal"} if policy.reads_otherwise else set()))


def _part_digests(policy: Policy) -> dict[str, str]:
    """A digest of each part that a certificate rests on."""
    certificate, tiers = policy.certificate or {}, policy.tiers.items()
    parts = {
        "budgets": [policy.budgets, certificate.get("budgets"), policy.floor],
        "costs": {name: [plan.cost, plan.expected_cost] for name, plan in tiers},
        "mean": policy.mean_budget,
        "signal": policy.signal,
        "confidence": certificate.get("confidence"),
        "curves": {name: plan.model_dump(include={"curve", "fitted"}) for name, plan in tiers},
        "bounds": {key: value for key, value in certificate.items() if key not in ("digest", "confidence", "budgets")},
        "setting": [policy.family, policy.mechanism, policy.selector, policy.basis],
        "model": None if policy.model is None else policy.model.model_dump(),
        "metric": policy.metric,
        "harm limit": policy.max_harm,
        "trimming": (policy.trim and (policy.trim_above or True)) or None,
        "thresholds": None if policy.fixed else [policy.confidence, {n: _thresholds(plan) for n, plan in tiers}],
    }
    return {name: _digest(part) for name, part in parts.items()}


def _thresholds(plan: TierPlan) -> dict[str, object]:
    added = {"predictor"} if plan.predictor else set[str]()  # after the first files of schema 2
    return plan.model_dump(include={"escalate", "review_below", "evidence", *added})


def _digest(part: object) -> str:
    text = json.dumps(part, sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def document_digests(names: Iterable[str]) -> set[str]:
    """Short digests of names of documents and images; an image's name is its own digest."""
    encoded = [name.encode("utf-8", "backslashreplace") for name in names]
    return {hashlib.blake2b(name, digest_size=DIGITS // 2).hexdigest() for name in encoded}


def calibration_digests(samples: Iterable[Sample]) -> tuple[str, ...]:
    """The digests that a policy calibrated on these samples stores."""
    names = [name for one in samples for name in (one.named or one.document, one.document, one.digest)]
    return tuple(sorted(document_digests(names)))


def is_held_out(
    policy: Policy, documents: Collection[str], images: Collection[str] = (), calibrated_on: Collection[str] = ()
) -> bool | None:
    """Whether the policy was calibrated on none of these; None where it is not known what it was calibrated on.

    ``images``: digests of the image files, where they are known. ``calibrated_on``: names of documents that the policy
    was calibrated on, for a policy that does not store them itself.
    """
    if not set(documents).isdisjoint(calibrated_on):
        return False
    if policy.documents is not None:
        return document_digests([*documents, *images]).isdisjoint(policy.documents)
    return True if calibrated_on else None
