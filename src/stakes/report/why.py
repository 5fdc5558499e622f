"""Why is each question in its tier? What every signal reads off it, and where they differ.

The log's tier is what the run went by; beside it stand the policy's own signal, the keyword rule where it names the
same tiers, and the label of the samples file.
"""

from collections.abc import Mapping
from typing import Any

from stakes.errors import StakesError
from stakes.report.run import Run
from stakes.report.sources import Asking
from stakes.signals import KeywordRule
from stakes.signals.disagreement import kind_of

MOST = 2000


def question_rows(run: Run, source: Mapping[str, Asking]) -> list[dict[str, Any]]:
    """One row a question: tier, probability, the deciding words, and every signal that says otherwise."""
    rule = KeywordRule()
    other = rule if set(rule.tiers) <= set(run.policy.tiers) and run.policy.signal.get("kind") != "keywords" else None
    rows = []
    for sample, outcomes in run.by_sample.items():
        if sample not in source:
            continue
        asked, tier = source[sample], outcomes[0].tier
        differ, probability, why = [], None, ""
        try:
            found = run.policy.decide(asked.question, asked.task)
        except StakesError as error:  # a judge is at no file's hand
            why = str(error)
        else:
            probability, why = found.probability, found.why
            if found.tier != tier:
                differ.append(f"the policy's signal says {found.tier}{_kind(run, asked.question, found.tier, tier)}")
        if other is not None and (read := other(asked.question)).tier != tier:
            differ.append(f"keywords say {read.tier} ({read.why})")
        if asked.tier is not None and asked.tier != tier:
            differ.append(f"labelled {asked.tier}")
        row = {"question": asked.question, "tier": tier, "probability": probability, "why": why, "differ": differ}
        rows.append(row)
    rows.sort(key=lambda row: not row["differ"])  # stable: disagreements first, the log's order otherwise
    return rows[:MOST]


def _kind(run: Run, question: str, said: str, tier: str) -> str:
    kind = kind_of(question, too_high=run.costs[said] > run.costs.get(tier, 0.0))
    return "" if kind == "other" else f" ({kind})"
