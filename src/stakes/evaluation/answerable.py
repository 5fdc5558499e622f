"""Which samples can a model be asked at all? Nearly every model: all of them. One that cannot says which, and why.

A model with ``locate(asked, done) -> {sample: why}`` is shown the samples, answers included, before the run: so does
legibility find the answers' places. What it cannot judge is set apart: not asked, not counted as right or wrong, and
listed in ``LOG.apart.json`` beside the log, so that nobody has to guess what a curve is missing.

    asked, apart = answerable(model, asked, log)
    apart.by_tier                              # {'high': 31, 'low': 40}
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from stakes.errors import BadInput
from stakes.evaluation.fingerprint import beside, save_json
from stakes.evaluation.items import Asked
from stakes.evaluation.progress import share_done


@dataclass(frozen=True)
class Apart:
    """Samples that were not asked."""

    why: Mapping[str, str]
    """By the sample's id."""
    by_tier: Mapping[str, int]

    def __len__(self) -> int:
        return len(self.why)

    def record(self) -> dict[str, object]:
        """As JSON."""
        return asdict(self)

    def __str__(self) -> str:
        reasons = Counter(self.why.values())
        tiers = ", ".join(f"{count} {tier}" for tier, count in self.by_tier.items())
        return f"{len(self.why)} samples are set apart and counted neither way ({tiers}): " + "; ".join(reasons)


def answerable(model: object, asked: Sequence[Asked], log: str | Path | None = None) -> tuple[list[Asked], Apart]:
    """The samples that the model can be asked, in their order, and those that it cannot."""
    locate = getattr(model, "locate", None)
    if not callable(locate):
        return list(asked), Apart({}, {})
    pages = len({one.digest for one in asked})
    with share_done("reading pages", total=pages) as advance:
        why = dict(locate(asked, lambda _done, _of: advance(1)))
    kept = [one for one in asked if one.id not in why]
    apart = Apart(why, dict(sorted(Counter(one.tier for one in asked if one.id in why).items())))
    if not kept:
        raise BadInput(f"none of the {len(asked)} samples can be asked: {next(iter(why.values()), 'there are none')}")
    if log is not None:
        save_json(beside(Path(log), "apart"), {"asked": len(kept), **apart.record()})
    return kept, apart


def basis_of(model: object) -> str:
    """What a model's outcomes are: ``answers``, or ``legibility`` where nothing was asked of a VLM."""
    return str(getattr(model, "basis", "answers"))
