"""Does asking many questions of one page cost less than asking them one by one? As a ratio to the plain loop.

    python benchmarks/answering.py                                   # a tiny random model: runs anywhere
    python benchmarks/answering.py --model embedded --cpu --threads 1 --out docs/results/answering.json
    python benchmarks/answering.py --model random-7b --device cuda --pages 32 --every 16 --out answering.json  # one GPU
    python benchmarks/answering.py --model PATH --mechanism deletion
    python benchmarks/answering.py --model PATH --latency            # one page, one question, nothing remembered

Calibration asks every question at every budget of a grid, by default the paper's thirteen. The plain loop is one stock
``generate`` for each question and budget: fit the image, process it, generate. By deletion, which ``generate`` cannot
do, it is one ``answer`` at a time with no image remembered. Ours is ``answer`` on all questions of the pages at one
budget, budget after budget. Both take turns, so that a busy machine slows both; ``--cpu`` counts processor time, for a
machine that others use. On a CPU the answers must be the same, word for word; on a GPU those that differ are counted.
``random-7b`` is Qwen2.5-VL-7B's configuration with random weights and 16 new tokens: time does not depend on weights.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.machine import about, about_table, printed

from stakes import models
from stakes.budgets.curve import PAPER_GRID
from stakes.data import synthetic as pages
from stakes.data.synthetic.page import Page
from stakes.models import Request
from stakes.models.local.image_cache import EncodedCache
from stakes.vision.image.resize import fit

TOGETHER = 8  # pages in one call
COLUMNS = ("budget", "plain, ms an answer", "ours, ms an answer", "ratio")


def tiny_model() -> Any:
    """The random model of the tests: 4 layers, 32 wide."""
    from tests.models.tiny import tiny

    return replace(tiny("qwen2_5_vl"), max_new_tokens=16)


def load(name: str | None, device: str, length: int | None) -> Any:
    """The model that the options name."""
    if name is None:
        return tiny_model()
    if name == "random-7b":
        from benchmarks.latency_model import build

        return build(device, torch.float32 if device == "cpu" else torch.bfloat16, tiny=False)
    return models.load(name, device=device, max_new_tokens=length)


def generate(model: Any, request: Request) -> str:
    """What a user of plain transformers writes."""
    image = fit(request.image, request.budget or 0, model.family).image
    side = model.model.config.vision_config.patch_size * model.model.config.vision_config.spatial_merge_size
    size = {"shortest_edge": side * side, "longest_edge": image.width * image.height}
    seen = model.processor.images(images=[image], return_tensors="pt", size=size)
    tokens = int(seen["image_grid_thw"].prod()) // model.model.config.vision_config.spatial_merge_size**2
    ids = model.processor.ids(request.question, tokens)[None]
    out = model.model.generate(
        input_ids=ids.to(model.device),
        attention_mask=torch.ones_like(ids).to(model.device),
        mm_token_type_ids=(ids == model.processor.image_token_id).int().to(model.device),
        pixel_values=seen["pixel_values"].to(model.device, model.model.dtype),
        image_grid_thw=seen["image_grid_thw"].to(model.device),
        max_new_tokens=model.max_new_tokens,
        do_sample=False,
    )
    text: str = model.processor.tokenizer.decode(out[0, ids.shape[1] :], skip_special_tokens=True)
    return text.strip()


def alone(model: Any, request: Request) -> str:
    """One request with nothing remembered."""
    if request.mechanism == "resolution":
        return generate(model, request)
    (answer,) = replace(model, cache=EncodedCache()).answer([request])
    return str(answer.text)


def latency(model: Any, drawn: Sequence[Page], now: Callable[[], float]) -> None:
    """Print the seconds from a page to its answer, ours and the plain loop's, every page new."""
    both: dict[str, list[float]] = {"plain": [], "ours": []}
    spent: dict[str, list[float]] = defaultdict(list)
    for i, page in enumerate(drawn):
        request = Request(page.image, page.questions[0].text, 1280)
        began = now()
        plain = alone(model, request)
        between = now()
        (ours,) = model.answer([request])
        ended = now()
        if plain != ours.text:
            raise SystemExit(f"page {i}: {plain!r} became {ours.text!r}")
        if i:  # the first warms up
            both["plain"].append(between - began)
            both["ours"].append(ended - between)
            for stage, ms in ours.timings.items():
                spent[stage].append(ms)
    print(f"one page of {ours.realised_tokens} tokens and its answer, {len(both['ours'])} pages, all answers the same")
    for who, seconds in both.items():
        print(f"{who:>8}: median {median(seconds):.3f} s, least {min(seconds):.3f}, most {max(seconds):.3f}")
    print("ours by stage, median ms: " + ", ".join(f"{stage} {median(ms):.0f}" for stage, ms in spent.items()))


def title(options: argparse.Namespace) -> str:
    """The table's name in the docs, which have one of each device."""
    return "answering" if options.device == "cpu" else "answering-gpu"


def throughput(model: Any, drawn: Sequence[Page], options: argparse.Namespace, now: Callable[[], float]) -> Any:
    """Seconds of both by budget, ours by stage, and how many answers differ."""
    asked = [
        [
            Request(page.image, q.text, budget, options.mechanism)
            for page in drawn[1:]
            for q in page.questions[: options.questions]
        ]
        for budget in options.budgets
    ]
    for lane in asked:  # warm up both, at every size, on a page that is not measured
        alone(model, replace(lane[0], image=drawn[0].image))
        model.answer([replace(lane[0], image=drawn[0].image)])
    spent: dict[tuple[str, int], float] = defaultdict(float)
    stages: dict[str, float] = defaultdict(float)
    wrong = compared = 0
    step = TOGETHER * options.questions
    for start in range(0, len(asked[0]), step):
        for budget, lane in zip(options.budgets, asked, strict=True):
            requests = lane[start : start + step]
            began = now()
            plain = [alone(model, request) for request in requests[:: options.every]]
            between = now()
            ours = model.answer(requests)
            spent["plain", budget] += (between - began) * len(requests) / len(plain)
            spent["ours", budget] += now() - between
            wrong += sum(one != other.text for one, other in zip(plain, ours[:: options.every], strict=True))
            compared += len(plain)
            for answer in ours:
                for stage, ms in answer.timings.items():
                    stages[stage] += ms
    count, total = len(asked[0]), len(asked[0]) * len(options.budgets)
    rows: list[list[Any]] = []
    for budget in options.budgets:
        plain_ms, ours_ms = (1e3 * spent[who, budget] / count for who in ("plain", "ours"))
        rows.append([str(budget), f"{plain_ms:.1f}", f"{ours_ms:.1f}", f"{plain_ms / ours_ms:.2f}×"])
    plain_s, ours_s = (sum(s for (who, _), s in spent.items() if who == name) for name in ("plain", "ours"))
    whole = [f"{1e3 * seconds / total:.1f}" for seconds in (plain_s, ours_s)]
    rows.append(["all", *whole, f"{plain_s / ours_s:.2f}×"])
    said = (
        f"{total / ours_s:.2f} answers a second over {len(options.budgets)} budgets, by the plain loop "
        f"{total / plain_s:.2f}: {plain_s / ours_s:.2f} times as many; {wrong} of {compared} answers differ."
    )
    return {
        "answers": total,
        "compared": compared,
        "different": wrong,
        "plain_per_s": total / plain_s,
        "ours_per_s": total / ours_s,
        "ratio": plain_s / ours_s,
        "stages_ms": {stage: ms / total for stage, ms in stages.items()},
        "tables": {title(options): {"columns": COLUMNS, "rows": rows, "findings": [said]}},
    }


def main() -> None:
    """Measure, print the table, write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="embedded, random-7b, a folder or hub name; default: a tiny random model")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--pages", type=int, default=4)
    parser.add_argument("--questions", type=int, default=4, help="of each page")
    parser.add_argument("--every", type=int, default=1, help="the plain loop answers every n-th question; default all")
    parser.add_argument("--budgets", type=int, nargs="+", default=list(PAPER_GRID))
    parser.add_argument("--mechanism", choices=("resolution", "deletion"), default="resolution")
    parser.add_argument("--answer-length", type=int, help="most tokens in an answer of --model; default: its own")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--cpu", action="store_true", help="count processor time, not wall time; wants one thread")
    parser.add_argument("--latency", action="store_true", help="time single pages at their native size instead")
    parser.add_argument("--out", type=Path, help="where the results go, as JSON")
    options = parser.parse_args()
    if options.cpu and options.device != "cpu":
        raise SystemExit("processor time says nothing of a GPU; leave --cpu out")
    now = time.process_time if options.cpu else time.perf_counter
    torch.set_num_threads(options.threads)
    model = load(options.model, options.device, options.answer_length)
    drawn = [pages.draw("forms", seed, "test") for seed in range(options.pages + 1)]
    if options.latency:
        latency(model, drawn, now)
        return
    found = throughput(model, drawn, options, now)
    keys = ("mechanism", "pages", "questions", "every", "budgets", "threads", "device")
    setting = {key: getattr(options, key) for key in keys}
    setting |= {"model": options.model or "tiny", "time": "processor" if options.cpu else "wall"}
    gpu = {} if options.device == "cpu" else {"gpu": torch.cuda.get_device_name()}
    results = {"about": about("torch", "transformers") | gpu, "setting": setting, **found}
    table = results["tables"][title(options)]
    results["tables"][f"{title(options)}-about"] = about_table(results["about"])
    print(f"{setting['model']}, {options.mechanism}, {options.pages} pages x {options.questions} questions")
    print(printed(table))
    print(*table["findings"])
    print("ours by stage, ms an answer: " + ", ".join(f"{name} {ms:.1f}" for name, ms in found["stages_ms"].items()))
    if options.out:
        options.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    if found["different"] and options.device == "cpu":
        raise SystemExit("on a CPU they must not")


if __name__ == "__main__":
    main()
