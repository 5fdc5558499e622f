"""A policy calibrated by local deletion, served by the gateway in front of a vLLM with the plugin.

Calibration: fresh forms, by ``stakes calibrate``. Served: forms of the test split, whose tiers the gateway reads from
the questions as in the calibration. The prediction is the tier's curve at the budgets that the gateway granted, which
follow the mix of tiers; the served error has a 95 % interval. The curve's own uncertainty is not in it.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
from scipy.stats import binomtest
from tests.gateway.gateways import Gateway, encoded, gateway, url_of

from stakes import Policy, grade
from stakes.data import synthetic
from stakes.evaluation.grading import is_correct
from stakes.models import load
from stakes.models.base import SUFFIX

GRID, MEAN, PER_TIER, AT_ONCE, BURST = "32,64,128,224,304", 264, 100, 4, 1000
BOUNDS: Any = {"min_pixels": 12544, "max_pixels": 1019200}  # of the embedded reader
CALIBRATE = (
    "calibrate", "--pages", "forms", "--per-tier", str(PER_TIER), "--grid", GRID, "--mean-budget", str(MEAN),
    "--mechanism", "deletion", "--selector", "redundancy",
)  # fmt: skip


def served_policy(url: str, number: int, path: Path | None = None) -> list[list[Any]]:
    """Rows of errors by tier and of the total; ``path``: a policy that ``CALIBRATE`` made before."""
    with ExitStack() as stack:
        if path is None:
            path = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "policy.json"
            subprocess.run([sys.executable, "-m", "stakes", *CALIBRATE, "-o", str(path)], check=True)
        rules = Policy.load(path)
        front = stack.enter_context(gateway(url, rules, actuator="vllm-deletion", burst=BURST, **BOUNDS))
        return _serve(front, rules, number)


def _serve(front: Gateway, rules: Policy, number: int) -> list[list[Any]]:
    asked = list(synthetic.samples("forms", "test", number // 2, per_page=1))
    length = load("embedded").max_new_tokens
    http = httpx.Client(trust_env=False, timeout=300)

    def one(item: tuple[Any, Any]) -> tuple[str, bool, int, int]:
        page, question = item
        image = {"type": "image_url", "image_url": {"url": url_of(encoded(page.image))}}
        turn = {"role": "user", "content": [image, {"type": "text", "text": question.text + SUFFIX}]}
        body = {"model": "reader", "messages": [turn], "temperature": 0, "max_tokens": length}
        reply = http.post(f"{front.base_url}/chat/completions", json=body)
        if reply.status_code != 200:
            raise SystemExit(f"status {reply.status_code}: {reply.text[:500]}")
        record = reply.json()
        text = record["choices"][0]["message"]["content"].strip()
        counted = record["usage"]["prompt_tokens_details"]["multimodal_tokens"]["image"]
        right = is_correct(grade(text, question.answers, rules.metric or "value"))
        return reply.headers["x-stakes-tier"], right, counted, int(reply.headers["x-stakes-predicted-tokens"])

    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = list(pool.map(one, asked))
    rows = [_row(rules, tier, [one[1:3] for one in found if one[0] == tier]) for tier in rules.tiers]
    counted, predicted = sum(one[2] for one in found), sum(one[3] for one in found)
    agreed = front.metric("usage_checks_total", result="agreed")
    total = rules.mean_budget * len(found) + BURST
    return [
        *rows,
        ["tokens of all images by vLLM's count, predicted, and the hard total", f"{counted}, {predicted}, {total}"],
        ["the gateway's comparisons that agreed", f"{agreed:.0f} of {len(found)}"],
    ]


def _row(rules: Policy, tier: str, found: list[tuple[bool, int]]) -> list[Any]:
    """One tier's served error, and what its curve says of the budgets that the gateway granted."""
    curve = rules.tiers[tier].curve
    if curve is None:
        raise SystemExit("this policy has no curves; calibrate one")
    errors = dict(zip(curve.budgets, curve.errors, strict=True))
    granted = Counter(tokens for _, tokens in found)
    predicted = sum(errors[tokens] * times for tokens, times in granted.items()) / len(found)
    wrong = sum(not right for right, _ in found)
    low, high = binomtest(wrong, len(found)).proportion_ci(0.95)
    served = f"{wrong / len(found):.3f} ({low:.3f} to {high:.3f}, n = {len(found)})"
    images = ", ".join(f"{times} at {tokens}" for tokens, times in sorted(granted.items()))
    return [f"errors of tier {tier}, served and predicted", f"{served}, {predicted:.3f}; {images} tokens"]
