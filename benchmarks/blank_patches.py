"""What does dropping blank patches before the encoder save, and what does it cost in errors?

    python benchmarks/blank_patches.py --split calibration --tolerance 4 8 16 32 --folder RUNS      # to choose one
    python benchmarks/blank_patches.py --data DIR --folder RUNS --out docs/results/blank.json       # the result

The embedded reader, by deletion with ``redundancy`` and with ``blank+redundancy``: the same questions at the same
budgets, paired. ``DIR`` holds ``sroie``, ``docvqa`` and ``chartqa`` as samples; nothing of their text is written. The
encoder is timed on one core in CPU seconds, whole and without blank tokens in turns, on pages of 972 tokens.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.machine import about, printed

from stakes.data import synthetic
from stakes.data.sample import Sample, read_samples
from stakes.evaluation.fingerprint import Setting
from stakes.evaluation.outcome_log import Outcome
from stakes.evaluation.progress import Progress
from stakes.evaluation.samples import prepare_samples
from stakes.evaluation.statistics import mcnemar
from stakes.experiments.study import Study, enlarged
from stakes.models import load
from stakes.vision.deletion.blank import InkFilter, blank_tokens
from stakes.vision.image.decode import open_image
from stakes.vision.selectors import TOLERANCE

BUDGETS = (64, 96, 160, 224, 304, 448, 576)
KINDS = {"forms": "relaxed", "receipts": "fields"}  # synthetic pages and the metric of their answers
LEVELS = (4, 8, 16, 32)
PARTS = ("shares", "encoder", "errors")
PAPER = 972  # tokens of a page in the paper: 27 x 36
Answers = Mapping[tuple[str, int], Outcome]


def answers(study: Study, source: str, samples: Sequence[Sample], selector: str, metric: str) -> Answers:
    """Every question at every budget."""
    setting = Setting("deletion", selector, metric)
    return study.answers(source, samples, [[budget] * len(samples) for budget in BUDGETS], setting)


def compared(name: str, before: Answers, after: Answers) -> list[list[Any]]:
    """One row for each budget: errors, wins : losses of the second, McNemar's exact p."""
    rows = []
    for budget in BUDGETS:
        keys = [key for key in before if key[1] == budget]
        old, new = ([answers[key].correct for key in keys] for answers in (before, after))
        wins, losses = (sum(a and not b for a, b in zip(x, y, strict=True)) for x, y in ((new, old), (old, new)))
        errors = [round(1 - sum(x) / len(x), 4) for x in (old, new)]
        rows.append([name, len(keys), budget, *errors, f"{wins}:{losses}", float(f"{mcnemar(wins, losses):.2g}")])
    return rows


def tolerances(study: Study, per_tier: int, levels: Sequence[int]) -> dict[str, Any]:
    """Errors at each budget by tolerance, on pages that no result is reported of."""
    rows = []
    for kind, metric in KINDS.items():
        samples = study.questions(kind, per_tier)
        pages = [synthetic.draw(kind, seed, study.split).image for seed in range(20)]
        found = {name: answers(study, kind, samples, name, metric) for name in ["redundancy", *map(spec, levels)]}
        for name, outcomes in found.items():
            right = [[outcomes[one.id, budget].correct for one in samples] for budget in BUDGETS]
            old = [[found["redundancy"][one.id, budget].correct for one in samples] for budget in BUDGETS]
            wins, losses = (int((np.array(a) & ~np.array(b)).sum()) for a, b in ((right, old), (old, right)))
            share = "" if name == "redundancy" else round(blank_share(study.model, pages, _level(name)), 3)
            errors = [round(1 - sum(some) / len(some), 3) for some in right]
            rows.append([kind, name, share, *errors, f"{wins}:{losses}" if share != "" else ""])
    columns = ["pages", "selector", "blank tokens", *map(str, BUDGETS), "wins : losses, all budgets"]
    return {"columns": columns, "rows": rows}


def spec(tolerance: int) -> str:
    """The selector with this tolerance."""
    return f"blank:tolerance={tolerance}+redundancy"


def _level(name: str) -> int:
    return int(name.split("=")[1].split("+")[0])


def blank_share(model: Any, pages: Sequence[Any], tolerance: int) -> float:
    """The mean share of blank tokens on these pages, as the processor sees them."""
    shares = []
    for page in pages:
        pixels, _ = model._pixels(page.convert("RGB"), False, True)
        low, high = model._levels(pixels)
        shares.append(float(blank_tokens(low, high, tolerance).mean()))
    return float(np.mean(shares))


def real(data: Path, name: str, model: Any) -> list[Sample]:
    """The samples of a real set, on pages with few tokens enlarged as in the other tables."""
    samples = prepare_samples(read_samples(data / name / "questions.jsonl"), data / name)
    return [enlarged(sample, model.family) for sample in samples]


def pages_of(samples: Sequence[Sample], most: int) -> list[Any]:
    """The different pages of some samples."""
    return [open_image(sample.load()) for sample in list({sample.digest: sample for sample in samples}.values())[:most]]


def shares(model: Any, pages: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """Blank tokens by kind of page."""
    rows = [
        [kind, len(some), *(round(blank_share(model, some, level), 3) for level in LEVELS)]
        for kind, some in pages.items()
    ]
    return {"columns": ["pages", "number", *(f"tolerance {level}" for level in LEVELS)], "rows": rows}


@torch.inference_mode()
def encoder_times(model: Any, pages: Mapping[str, Sequence[Any]], budget: int, repeats: int) -> dict[str, Any]:
    """CPU seconds of the encoder on one core, whole and without blank tokens in turns; pages scaled to 972 tokens."""
    torch.set_num_threads(1)
    rows = []
    for kind, some in pages.items():
        whole, pruned, operations, read = [], [], [], []
        for page in some:
            image = page.convert("RGB").resize((27 * 28, 36 * 28))
            ink = InkFilter(TOLERANCE, budget)
            times: list[list[float]] = [[], []]
            for _ in range(repeats):
                for which, one in enumerate((None, ink)):
                    began = time.process_time()
                    encoded = model.encode(image, exact=True, attention=False, ink=one)
                    times[which].append(time.process_time() - began)
            whole.append(median(times[0]))
            pruned.append(median(times[1]))
            read.append(len(encoded.features))
            operations.append(counted(model, image, ink) / counted(model, image, None))
        ratios = [round(value, 3) for value in (sum(pruned) / sum(whole), float(np.mean(operations)))]
        rows.append([kind, len(some), round(float(np.mean(read)), 1), round(float(np.mean(read)) / PAPER, 3), *ratios])
    columns = ["pages", "number", f"of {PAPER} tokens, the encoder reads", "share", "CPU time", "operations"]
    return {"columns": columns, "rows": rows}


def counted(model: Any, image: Any, ink: InkFilter | None) -> int:
    """Floating-point operations of one pass of the encoder, in matrix products and attention."""
    from torch.utils.flop_counter import FlopCounterMode

    # torch's table of operations lacks its own attention kernel of CPUs, which would count as nothing
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    with FlopCounterMode(display=False, custom_mapping={kernel: _attention_operations}) as counter:
        model.encode(image, exact=True, attention=False, ink=ink)
    return int(counter.get_total_flops())


def _attention_operations(query: Sequence[int], key: Sequence[int], *_: Any, **__: Any) -> int:
    """Two products of [B, H, L, h] and [B, H, S, h]."""
    batch, heads, length, width = query
    return 4 * batch * heads * length * key[2] * width


def main() -> None:
    """Measure part after part, print, and write each beside what the file holds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="a folder with sroie, docvqa and chartqa as samples")
    parser.add_argument("--folder", type=Path, required=True, help="where answers are kept")
    parser.add_argument("--split", choices=("calibration", "test"), default="test")
    parser.add_argument("--tolerance", type=int, nargs="+", default=LEVELS, help="with --split calibration")
    parser.add_argument("--per-tier", type=int, default=100, help="questions of each tier of synthetic pages")
    parser.add_argument("--pages", type=int, default=20, help="of each kind, for shares of blank tokens")
    parser.add_argument("--part", choices=PARTS, nargs="+", default=PARTS, help="with --split test")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    model = load("embedded")
    folder, progress = given.folder / given.split, Progress(sys.stderr, given.split)
    study = Study(model, "embedded", folder, per_tier=given.per_tier, split=given.split, progress=progress)
    parts = measured(study, given)
    if given.split == "calibration":
        parts = iter([("blank-tolerance", tolerances(study, given.per_tier, given.tolerance))])
    for name, table in parts:
        print(printed(table), flush=True)
        if given.out is not None:
            kept = json.loads(given.out.read_text("utf-8"))["tables"] if given.out.exists() else {}
            command = "python benchmarks/blank_patches.py, as its first lines say"
            record = {"about": about("torch", "transformers"), "command": command, "tables": {**kept, name: table}}
            given.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def measured(study: Study, given: argparse.Namespace) -> Iterator[tuple[str, dict[str, Any]]]:
    """The tables of the test pages; errors after each set."""
    sets = {f"synthetic {kind}": (study.questions(kind, given.per_tier), metric) for kind, metric in KINDS.items()}
    pages = {name: pages_of(samples, given.pages) for name, (samples, _) in sets.items()}
    if given.data is not None:
        sets["real receipts"] = (real(given.data, "sroie", study.model), "fields")
        for name in ("sroie", "docvqa", "chartqa"):
            pages[f"real, {name}"] = pages_of(real(given.data, name, study.model), given.pages)
    if "shares" in given.part:
        yield "blank-shares", shares(study.model, pages)
    if "encoder" in given.part:
        yield "blank-encoder", encoder_times(study.model, {name: some[:6] for name, some in pages.items()}, 304, 3)
    rows: list[list[Any]] = []
    columns = ["pages", "questions", "budget", "redundancy", "blank+redundancy", "wins : losses", "p"]
    for name, (samples, metric) in sets.items() if "errors" in given.part else ():
        rows += compared(
            name, *(answers(study, name, samples, one, metric) for one in ("redundancy", "blank+redundancy"))
        )
        yield "blank-errors", {"columns": columns, "rows": rows}


if __name__ == "__main__":
    main()
