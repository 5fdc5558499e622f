"""The report of a measured run as one self-contained HTML file.

    text = report_html(run, samples_from_pages("forms", run))

It needs no network, and nothing in it runs but its own scripts. Questions and answers come from strangers, so they are
text only: the template escapes them, data travels as JSON that cannot end its element, and a content security policy
allows the report's scripts by their digests and forbids every other script and all connections.
"""

import base64
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stakes.data.sample import Sample
from stakes.errors import BadInput, StakesError
from stakes.formats import counted
from stakes.report.charts import CSS, DARK, LIGHT, arms_figure, curves_figure, frontier_figure, latency_figure
from stakes.report.data import MeasuredRun, report_data
from stakes.report.gallery import LONGEST, make_gallery
from stakes.report.sentences import (
    certificate_failures,
    describe_reading,
    ended_certificate,
    guarantees,
    other_arms,
    verdict,
)
from stakes.report.svg import charting_script
from stakes.signals import KeywordRule
from stakes.signals.agreement import kind_of
from stakes.tiers import describe_mean_costs, own_ratio, ratio_meaning

ASSETS = Path(__file__).parent / "assets"
MOST_QUESTIONS = 2000


@dataclass(frozen=True)
class Pricing:
    """A price per million visual tokens, and the number of images that money is counted over."""

    price_per_million: float | None = None
    images: int = 100_000


def report_html(
    run: MeasuredRun,
    samples: Mapping[str, Sample] | None = None,
    *,
    model: Any = None,
    selectors: Sequence[str] = (),
    pricing: Pricing | None = None,
) -> str:
    """The report. ``samples``: questions and images to show. ``model``, ``selectors``: which kept tokens to draw."""
    try:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined
        from markupsafe import Markup
    except ImportError as error:
        raise BadInput(f"a report needs {error.name}; run: pip install 'stakes[report]'") from None

    data = report_data(run)
    cards, gallery_notes = make_gallery(run, samples, model, selectors) if samples else ([], [])
    questions = question_rows(run, samples) if samples else []
    scripts = [
        charting_script(),
        *(_asset(name) for name in ("allocate.js", "recompute.js", "gallery.js", "report.js")),
    ]
    blocks = {"data": data, "specs": _specs(data), "gallery": cards, "questions": questions}
    # The template's name does not end in .html, so escaping is switched on explicitly.
    environment = Environment(loader=FileSystemLoader(ASSETS), autoescape=True, undefined=StrictUndefined)
    return environment.get_template("report.html.j2").render(
        csp=_content_policy(scripts),
        css=Markup(_css()),
        scripts=[Markup(script) for script in scripts],
        blocks={name: Markup(safe_json(value)) for name, value in blocks.items()},
        **_context(run, data),
        cards=cards,
        gallery_notes=gallery_notes,
        questions=questions,
        samples_given=bool(samples),
        thumbnail_px=LONGEST,
        pricing=pricing or Pricing(),
    )


def safe_json(value: object) -> str:
    """JSON that cannot end the ``<script>`` that holds it. Infinity and NaN, which JSON lacks, are an error."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def question_rows(run: MeasuredRun, samples: Mapping[str, Sample]) -> list[dict[str, Any]]:
    """One row a question: how often it is asked, its tier in the log, the policy's reason, and what disagrees.

    Beside the policy's own signal stand the keyword rule, where it has the same tiers, and the samples file's label.
    """
    rule = KeywordRule()
    compared = set(rule.tiers) <= set(run.policy.tiers) and run.policy.signal.get("kind") != "keywords"
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for name, outcomes in run.by_sample.items():
        if name not in samples:
            continue
        sample, tier = samples[name], outcomes[0].tier
        differ, probability, why = [], None, ""
        try:
            decision = run.policy.decide(sample.prompt, sample.task)
        except StakesError as error:  # a policy file does not keep a judge's endpoint
            why = str(error)
        else:
            probability, why = decision.probability, decision.why
            if decision.tier != tier:
                too_high = run.policy.costs[decision.tier] > run.policy.costs.get(tier, 0.0)
                kind = kind_of(sample.question, too_high=too_high)
                differ.append(f"the policy's signal says {decision.tier}" + ("" if kind == "other" else f" ({kind})"))
        if compared and (read := rule(sample.question)).tier != tier:
            differ.append(f"keywords say {read.tier} ({read.why})")
        if sample.tier and sample.tier != tier:
            differ.append(f"labelled {sample.tier}")
        row = {"question": sample.question, "tier": tier, "probability": probability, "why": why, "differ": differ}
        rows.setdefault((sample.question, tier, probability, why, *differ), {**row, "times": 0})["times"] += 1
    # stable: disagreements first, the log's order otherwise
    return sorted(rows.values(), key=lambda row: not row["differ"])[:MOST_QUESTIONS]


def _specs(data: dict[str, Any]) -> dict[str, Any]:
    tiers = [tier["name"] for tier in data["tiers"]]
    if not tiers:
        return {}
    specs = {"curves": curves_figure(tiers, CSS)}
    if len(tiers) > 1:
        specs["frontier"] = frontier_figure([f"{ratio:g}" for ratio in data["ratios"]], CSS, data["most_expensive"])
    if data["arms"]:
        measures = [*(f"error {tier}" for tier in data["arms"]["tiers"]), "average error", "CWE"]
        specs["arms"] = arms_figure([row["arm"] for row in data["arms"]["rows"]], measures, CSS)
    if data["latency"]:
        specs["latency"] = latency_figure(CSS)
    return specs


def _context(run: MeasuredRun, data: dict[str, Any]) -> dict[str, Any]:
    """The template's variables for everything that is measured."""
    policy, tiers, judged = run.policy, data["tiers"], run.evaluation
    ratio, limits = own_ratio(policy.costs), policy.max_harm or {}
    return {
        "name": run.name,
        "policy": policy,
        "subtitle": _subtitle(run, data),
        "tiers": tiers,
        "arms": data["arms"],
        "arm_questions": 0 if judged is None else len(judged.plan.samples),
        "latency": data["latency"],
        "most_expensive": data["most_expensive"],
        "cheapest": data["cheapest"],
        "ratio_meaning": ratio_meaning(policy.costs),
        "costs_note": describe_mean_costs(policy.costs, policy.costs_as_read()),
        "single_limits": "" if len(limits) == len(tiers) and len(set(limits.values())) < 2 else _format_limits(limits),
        "reading": "" if judged is None else describe_reading(judged.comparison),
        "ratio": f"{ratio:.6g}",
        "ratio_most": max(20, math.ceil(2 * ratio)),
        "mean_least": _least_mean(data) if tiers else 1,
        "mean_most": max((budget for tier in tiers for budget in tier["budgets"]), default=1),
        "fitted": any(list(tier["fitted"]) != list(tier["errors"]) for tier in tiers),
        "verdict": "" if judged is None else verdict(judged),
        "glossary": json.loads(_asset("glossary.json")),
        "other_arms": [] if judged is None else other_arms(judged),
        "notes": [*run.notes, *certificate_failures(policy.certificate)],
        "guarantees": ended_certificate(policy) or guarantees(policy.certificate),
    }


def _format_limits(limits: Mapping[str, float]) -> str:
    return ", ".join(f"{tier} {100 * limit:g}" for tier, limit in limits.items())


def _subtitle(run: MeasuredRun, data: dict[str, Any]) -> str:
    policy, samples = run.policy, sum(tier["n"] for tier in data["tiers"])
    documents = len({outcome.document for outcome in run.outcomes})
    how = "resizing" if policy.mechanism == "resolution" else f"deletion with {policy.selector or 'its selector'}"
    parts = [f"{run.name}: {policy.family} by {how}, {policy.mean_budget} visual tokens per image on average"]
    if samples:
        parts.append(counted(samples, "question") + (f" on {counted(documents, 'document')}" if documents else ""))
    parts.append(", ".join(f"{tier} at cost {cost:g}" for tier, cost in data["costs"].items()))
    if policy.basis == "legibility":
        parts.append("LEGIBILITY, not a VLM's error: whether the print at each answer's place can still be read")
    return "; ".join(parts) + "."


def _least_mean(data: dict[str, Any]) -> int:
    """The smallest mean budget that the measured budgets can meet."""
    floor = data["floor"] or 1
    samples: int = sum(tier["n"] for tier in data["tiers"])
    smallest = [
        tier["n"] * min((b for b in tier["budgets"] if b >= floor), default=tier["budgets"][-1])
        for tier in data["tiers"]
    ]
    return -(-int(sum(smallest)) // samples)  # rounded up


def _content_policy(scripts: Sequence[str]) -> str:
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    return f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src {allowed}; base-uri 'none'"


def _css() -> str:
    def variables(colors: Mapping[str, str]) -> str:
        return " ".join(f"--{name}: {value};" for name, value in colors.items())

    return _asset("report.css").replace("LIGHT", variables(LIGHT)).replace("DARK", variables(DARK))


def _asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")
