"""Adaptive sampling of answers that are already known: from a complete log, or from simulated ones."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from stakes.calibration.adaptive.units import AskRows, Columns, Counts, slice_numbers
from stakes.calibration.by_document import ByDocument, by_document
from stakes.evaluation.outcome_log import Outcome


def replay(full: ByDocument) -> AskRows:
    """Answers from a table that holds them all."""

    def ask(rows: Sequence[int], columns: Columns) -> dict[str, Counts]:
        return {tier: full.wrong[tier][np.ix_(rows, found)] for tier, found in columns.items()}

    return ask


def sliced(outcomes: Iterable[Outcome], tiers: Sequence[str] | None = None) -> tuple[ByDocument, list[str]]:
    """A log in slices of at most one question a tier, and the document that each is a slice of."""
    outcomes = list(outcomes)
    number = slice_numbers((o.sample, o.document, o.tier) for o in outcomes)
    table = by_document((replace(o, document=f"{o.document}#{number[o.sample]}") for o in outcomes), tiers)
    return table, [name.rpartition("#")[0] for name in table.documents]
