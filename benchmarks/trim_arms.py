"""Where do budgets by cost stand once margins are free? The arms of one total on whole and on trimmed pages.

    python -m benchmarks.trim_arms read --data DIR --folder runs/trim           # by OCR
    python -m benchmarks.trim_arms ask --data DIR --folder runs/trim            # by the embedded reader
    stakes reproduce proportional --per-tier 40 -o runs/trim/proportional.json         # and with --trim
    python -m benchmarks.trim_arms table --folder runs/trim -o docs/results/trim-arms.json

``read`` has the questions whose answer OCR finds at native size both on the whole and on the trimmed page, so that both
have the same ones; pages are those of ``stakes reproduce legibility``, with and without ``--trim``. ``ask`` is ``stakes
reproduce within-task``, with and without ``--trim``. Budgets are the paper's, 512 and 96 against uniform 304. Readings
and answers are kept in the folder, where a later call goes on.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stakes.evaluation.outcome_log import Outcome
from stakes.evaluation.statistics import discordant
from stakes.experiments.legibility.real_pages import ARM_BUDGETS, COSTS, real_set
from stakes.experiments.study import RECEIPTS, RECEIPTS_METRIC, Arms, Study
from stakes.experiments.table import Row, discordant_cells, format_both_p, gain_cell
from stakes.legibility.engine import Engine
from stakes.legibility.model import BASIS, Legibility
from stakes.legibility.page_cache import PageCache
from stakes.models import load
from stakes.models.base import Mechanism

READ = ("sroie", "docvqa")
ASKED: dict[str, int] = {"sroie": 80, "receipts": 40, "forms": 40}  # questions of each tier at most
MECHANISMS: tuple[Mechanism, ...] = ("deletion", "resolution")
BOTH = (False, True)  # whole, trimmed
ORDER = ("uniform", "content", "cost", "anti")
COLUMNS = (
    "model", "pages", "by", "arm", "high", "high, trimmed", "low", "low, trimmed", "CWE", "CWE, trimmed",
    "b:c", "p", "b:c, trimmed", "p, trimmed", "CWE gain", "CWE gain, trimmed",
)  # fmt: skip
PAIRED_COLUMNS = ("model", "pages", "by", "arm", "questions", "high gained:lost", "p", "low gained:lost", "p")


class Unscored(PageCache):
    """Without the page's score, which no table here shows and which takes a third of the time."""

    def score(self, *_: Any) -> float:
        """None."""
        return 0.0


def read(data: Path, folder: Path, name: str) -> tuple[Arms, Arms]:
    """The arms of a set by OCR, whole and trimmed, on the same questions."""
    model = Legibility(threads=1)
    model.pages = Unscored(Engine(), folder / "cache")
    whole, trimmed = (real_set(data, name, trim)[0] for trim in BOTH)
    unread = {key for samples in (whole, trimmed) for key in model.locate(samples)}
    measured = []
    for trim, samples in zip(BOTH, (whole, trimmed), strict=True):
        model.forget()
        asked = [sample for sample in samples if sample.id not in unread]
        model.locate(asked)
        study = Study(model, BASIS, folder, mechanism="resolution", trim=trim)
        measured.append(study.arms(name, asked, ARM_BUDGETS, COSTS))
    return measured[0], measured[1]


def ask(data: Path, folder: Path, name: str, mechanism: Mechanism) -> tuple[Arms, Arms]:
    """The arms of ``stakes reproduce within-task`` by the embedded reader, whole and trimmed."""
    sources = {"docvqa": name, **({RECEIPTS: str(data / name / "questions.jsonl")} if name == RECEIPTS else {})}
    metric = RECEIPTS_METRIC if name == RECEIPTS else "relaxed"
    study = Study(load("embedded"), "embedded", folder, ASKED[name], mechanism, metric, sources)
    measured = []
    for trim in BOTH:
        one = Study(study.model, study.name, folder, study.per_tier, mechanism, metric, sources, trim=trim)
        measured.append(one.arms(name, one.questions(name), ARM_BUDGETS, COSTS))
    return measured[0], measured[1]


def arm_rows(labels: Sequence[str], whole: Arms, trimmed: Arms) -> list[Row]:
    """Errors, CWE and the comparison with uniform of each arm, whole and trimmed side by side."""
    rows: list[Row] = []
    for arm in ORDER:
        pair = whole.rows[arm], trimmed.rows[arm]
        errors = [row.errors[tier] for tier in COSTS for row in pair]
        weighted = [row.ratios[5] for row in pair]
        against = [cell for row in pair for cell in discordant_cells(row.high_cost)]
        rows.append((*labels, arm, *errors, *weighted, *against, *map(gain_cell, pair)))
    return rows


def paired_rows(labels: Sequence[str], whole: Arms, trimmed: Arms) -> list[Row]:
    """What each arm gains and loses by trimming, question by question."""
    rows: list[Row] = []
    for arm in ORDER:
        before, after = ({one.sample: one for one in arms.outcomes[arm]} for arms in (whole, trimmed))
        cells = [cell for tier in COSTS for cell in _paired(before, after, tier)]
        rows.append((*labels, arm, len(before), *cells))
    return rows


def _paired(before: Mapping[str, Outcome], after: Mapping[str, Outcome], tier: str) -> tuple[str, str]:
    ids = [key for key, one in before.items() if one.tier == tier]
    first, second = ([found[key].correct for key in ids] for found in (before, after))
    pair = discordant(first, second, [before[key].document for key in ids])
    return f"{pair.b}:{pair.c}", format_both_p(pair)


def _save(path: Path, labels: Sequence[str], whole: Arms, trimmed: Arms) -> None:
    counts = {"questions": sum(whole.comparison.counts.values()), "documents": whole.comparison.documents}
    record = {
        **counts,
        "total": whole.plan.total,
        "deviation": [whole.deviation, trimmed.deviation],
        "arms": arm_rows(labels, whole, trimmed),
        "paired": paired_rows(labels, whole, trimmed),
    }
    path.write_text(json.dumps(record, indent=1) + "\n")


def table(folder: Path) -> dict[str, Any]:
    """The tables of what was measured in the folder."""
    names = [("ocr", name, "resolution") for name in reversed(READ)]
    names += [("embedded", name, mechanism) for name in ASKED for mechanism in MECHANISMS]
    paths = {labels: folder / ("-".join(labels) + ".json") for labels in names}
    found = {labels: json.loads(path.read_text()) for labels, path in paths.items() if path.exists()}
    findings = [
        f"{model} on {name} by {mechanism}: {one['questions']} questions on {one['documents']} documents, all arms "
        f"plan {one['total']} tokens; realised totals differ by {max(one['deviation']):.3%} at most"
        for (model, name, mechanism), one in found.items()
    ]
    made: dict[str, Any] = {
        name: {
            "columns": columns,
            "rows": [row for one in found.values() for row in one[part]],
            "findings": findings if part == "arms" else [],
        }
        for name, part, columns in (("trim-by-cost", "arms", COLUMNS), ("trim-paired", "paired", PAIRED_COLUMNS))
    }
    shares = json.loads((folder / "proportional.json").read_text())["tables"]
    whole, trimmed = (shares[f"proportional{end}"] for end in ("", "-trimmed"))
    rows = [[label, *row] for label, one in (("whole", whole), ("trimmed", trimmed)) for row in one["rows"]]
    ours = [row for row in rows if row[1] != "published"]
    made["trim-proportional"] = {
        "columns": ["pages", *whole["columns"]],
        "rows": ours,
        "findings": [one["command"] for one in (whole, trimmed)],
    }
    return made


def main() -> None:
    """Read, ask, or make the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["read", "ask", "table"])
    parser.add_argument("--data", type=Path, default=Path())
    parser.add_argument("--folder", type=Path, default=Path("runs/trim"))
    parser.add_argument("--sets", nargs="+", choices=[*READ, *ASKED])
    parser.add_argument("-o", "--output", type=Path, default=Path("docs/results/trim-arms.json"))
    options = parser.parse_args()
    if options.what == "table":
        record = {"basis": "legibility (ocr) and answers (embedded)", "trim": True, "tables": table(options.folder)}
        options.output.write_text(json.dumps(record, indent=1) + "\n")
        return
    for name in options.sets or (READ if options.what == "read" else ASKED):
        for mechanism in MECHANISMS[1:] if options.what == "read" else MECHANISMS:
            by_ocr, where = options.what == "read", (options.data, options.folder, name)
            labels = ("ocr" if by_ocr else "embedded", name, mechanism)
            measured = read(*where) if by_ocr else ask(*where, mechanism)
            _save(options.folder / ("-".join(labels) + ".json"), labels, *measured)
            print(*labels, flush=True)


if __name__ == "__main__":
    main()
