"""Has the policy seen these documents? Short digests in its file tell, and give no name away.

A policy flatters itself on what it was calibrated on, and the log of a calibration is often elsewhere by the time that
somebody evaluates. So the policy keeps, for every document and every image that it was calibrated on, twelve hex digits
of a digest, sorted; whoever has a document can look whether it is among them, and nobody can read a name back. Images
count too, because one page may go by another document's name in another file. Two sets of 1,000 documents that share
nothing are taken for overlapping with a chance of about 1.4e-8.

    policy.documents                                   # ('00a3…', '01f7…', …), None in files from before it was kept
    unseen(policy, documents=["invoice-17"])           # True: held out; False: calibrated on it; None: not known
"""

import hashlib
from collections.abc import Collection, Iterable

from stakes.budgets.policy import Policy
from stakes.evaluation.asked import Asked

DIGITS = 12


def digests(names: Iterable[str]) -> set[str]:
    """Short digests of names; an image's name is its own digest."""
    return {
        hashlib.blake2b(name.encode("utf-8", "backslashreplace"), digest_size=DIGITS // 2).hexdigest() for name in names
    }


def seen_by(asked: Iterable[Asked]) -> tuple[str, ...]:
    """What a policy calibrated on these keeps."""
    return tuple(
        sorted(digests(name for one in asked for name in (one.named or one.document, one.document, one.digest)))
    )


def unseen(
    policy: Policy, documents: Collection[str], images: Collection[str] = (), calibrated_on: Collection[str] = ()
) -> bool | None:
    """Whether all of these are held out; None where neither the policy nor the caller says what was calibrated on.

    ``images``: digests of the image files, where they are known. ``calibrated_on``: names of documents that the policy
    has seen, for a policy that does not keep them itself.
    """
    if not set(documents).isdisjoint(calibrated_on):
        return False
    if policy.documents is not None:
        return digests([*documents, *images]).isdisjoint(policy.documents)
    return True if calibrated_on else None
