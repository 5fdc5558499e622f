"""Does asking many questions of one page cost less than asking them one by one? As a ratio to the plain loop.

    python benchmarks/answering.py                                   # a tiny random model: runs anywhere
    python benchmarks/answering.py --model PATH --pages 8            # a real checkpoint
    python benchmarks/answering.py --model PATH --mechanism deletion
    python benchmarks/answering.py --model PATH --cpu --threads 1    # processor time: for a machine that others use
    python benchmarks/answering.py --model PATH --latency            # one page, one question, nothing remembered

The plain loop is one stock ``generate`` for each question and budget: fit the image, process it, generate. By deletion,
which ``generate`` cannot do, it is one ``answer`` at a time with no image remembered. Ours is ``answer`` on all
questions of the pages at one budget, budget after budget. Both take turns, so that a busy machine slows both; the
answers must be the same, word for word.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import torch

from stakes import models
from stakes.data import pages
from stakes.data.pages.page import Page
from stakes.models import Request
from stakes.models.images import EncodedCache
from stakes.vision.resize import fit

TOGETHER = 8  # pages in one call


def tiny_model() -> Any:
    """The random model of the tests: 4 layers, 32 wide."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from tests.models.tiny import tiny

    return replace(tiny("qwen2_5_vl"), max_new_tokens=16)


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
        pixel_values=seen["pixel_values"].to(model.device),
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


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a folder or hub name of the Qwen-VL families; default: a tiny random model")
    parser.add_argument("--pages", type=int, default=4)
    parser.add_argument("--questions", type=int, default=4, help="of each page")
    parser.add_argument("--budgets", type=int, nargs="+", default=[64, 128, 208, 304, 432])
    parser.add_argument("--mechanism", choices=("resolution", "deletion"), default="resolution")
    parser.add_argument("--answer-length", type=int, default=24, help="most tokens in an answer of --model")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--cpu", action="store_true", help="count processor time, not wall time; wants one thread")
    parser.add_argument("--latency", action="store_true", help="time single pages at their native size instead")
    options = parser.parse_args()
    now = time.process_time if options.cpu else time.perf_counter
    model: Any = models.load(options.model, max_new_tokens=options.answer_length) if options.model else tiny_model()
    torch.set_num_threads(options.threads)
    drawn = [pages.draw("forms", seed, "test") for seed in range(options.pages + 1)]
    if options.latency:
        latency(model, drawn, now)
        return
    asked = [
        [
            Request(page.image, q.text, budget, options.mechanism)
            for page in drawn[1:]
            for q in page.questions[: options.questions]
        ]
        for budget in options.budgets
    ]
    alone(model, replace(asked[0][0], image=drawn[0].image))  # warm up both on a page that is not measured
    model.answer([replace(asked[0][0], image=drawn[0].image)])
    spent: dict[tuple[str, int], float] = defaultdict(float)
    stages: dict[str, float] = defaultdict(float)
    wrong = 0
    step = TOGETHER * options.questions
    for start in range(0, len(asked[0]), step):
        for budget, lane in zip(options.budgets, asked, strict=True):
            requests = lane[start : start + step]
            began = now()
            plain = [alone(model, request) for request in requests]
            between = now()
            ours = model.answer(requests)
            spent["plain", budget] += between - began
            spent["ours", budget] += now() - between
            wrong += sum(one != other.text for one, other in zip(plain, ours, strict=True))
            for answer in ours:
                for stage, ms in answer.timings.items():
                    stages[stage] += ms
    count = len(asked[0])
    print(f"{options.mechanism}, {options.pages} pages x {options.questions} questions, {options.threads} threads")
    print(f"{'budget':>8}{'plain':>10}{'ours':>10}   ms an answer{'ratio':>8}")
    for budget in options.budgets:
        plain_s, ours_s = spent["plain", budget], spent["ours", budget]
        print(f"{budget:8}{1000 * plain_s / count:10.1f}{1000 * ours_s / count:10.1f}{plain_s / ours_s:23.2f}")
    plain_s, ours_s = (sum(s for (who, _), s in spent.items() if who == name) for name in ("plain", "ours"))
    print(f"{'all':>8}{plain_s:10.1f}{ours_s:10.1f}   s           {plain_s / ours_s:8.2f}")
    total = count * len(options.budgets)
    print("ours by stage, ms an answer: " + ", ".join(f"{stage} {ms / total:.1f}" for stage, ms in stages.items()))
    if wrong:
        raise SystemExit(f"{wrong} of {total} answers differ")
    print(f"all {total} answers the same")


if __name__ == "__main__":
    main()
