"""One self-contained page from a run: no network to view it, nothing in it runs but its own scripts.

    text = report_html(read_run("policy.json"), source=from_pages("forms", run))

Questions and answers come from strangers. In the page they are text: the template escapes, data travels as JSON that
cannot end its element, and a content policy names the page's scripts by their digests and forbids every other, and all
connections.
"""

import base64
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stakes.errors import BadInput, StakesError
from stakes.report.charts import DARK, LIGHT, PAGE, curves_figure, frontier_figure
from stakes.report.charts_measured import arms_figure, latency_figure
from stakes.report.facts import facts
from stakes.report.gallery import LONGEST, Gallery, make_gallery
from stakes.report.run import Asking, Run
from stakes.report.sentences import other_arms, promises, unkept, verdict
from stakes.report.svg import charting_script
from stakes.signals import KeywordRule
from stakes.signals.agreement import kind_of

# Why is each question in its tier? What every signal reads off it, and where they differ.
#
# The log's tier is what the run went by; beside it stand the policy's own signal, the keyword rule where it names the
# same tiers, and the label of the samples file.


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


FOLDER = Path(__file__).parent / "page"


@dataclass(frozen=True)
class Wishes:
    """What the reader brings: a price per million visual tokens, and the images that it is counted over."""

    price_per_million: float | None = None
    images: int = 100_000


def report_html(
    run: Run,
    source: Mapping[str, Asking] | None = None,
    *,
    model: Any = None,
    selectors: Sequence[str] = (),
    wishes: Wishes | None = None,
) -> str:
    """The page. ``source``: questions and images, where they are at hand. ``model``: draws the tokens it keeps."""
    try:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined
        from markupsafe import Markup
    except ImportError as error:
        raise BadInput(f"a report needs {error.name}; run: pip install 'stakes[report]'") from None

    wishes = wishes or Wishes()
    numbers = facts(run)
    shown = make_gallery(run, source, model, selectors) if source else Gallery([], [])
    asked = question_rows(run, source) if source else []
    scripts = [charting_script(), *(_read(name) for name in ("allocate.js", "live.js", "report.js"))]
    blocks = {
        "facts": numbers,
        "specs": _specs(numbers),
        "pictures": shown.cards,
        "asked_json": asked,
    }
    # The template is not HTML by its name, so escaping is asked for outright.
    environment = Environment(loader=FileSystemLoader(FOLDER), autoescape=True, undefined=StrictUndefined)
    return environment.get_template("report.html.j2").render(
        csp=_policy(scripts),
        css=Markup(_css()),
        scripts=[Markup(script) for script in scripts],
        **{name: Markup(safe_json(value)) for name, value in blocks.items()},
        **_words(run, numbers, shown, asked, wishes, bool(source)),
    )


def safe_json(value: object) -> str:
    """JSON that cannot end the ``<script>`` it stands in; infinities and NaN, which JSON has not, are an error."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _specs(numbers: dict[str, Any]) -> dict[str, Any]:
    tiers = [tier["name"] for tier in numbers["tiers"]]
    if not tiers:
        return {}
    specs = {"curves": curves_figure(tiers, PAGE)}
    if len(tiers) > 1:
        ratios = [f"{ratio:g}" for ratio in numbers["ratios"]]
        specs["frontier"] = frontier_figure(ratios, PAGE, numbers["dearest"])
    if numbers["arms"]:
        measures = [*(f"error {tier}" for tier in numbers["arms"]["tiers"]), "average error", "CWE"]
        specs["arms"] = arms_figure([row["arm"] for row in numbers["arms"]["rows"]], measures, PAGE)
    if numbers["latency"]:
        specs["latency"] = latency_figure(PAGE)
    return specs


def _words(
    run: Run, numbers: dict[str, Any], shown: Gallery, asked: list[dict[str, Any]], wishes: Wishes, sourced: bool
) -> dict[str, Any]:
    """Everything that the template prints."""
    policy, tiers = run.policy, numbers["tiers"]
    grid = [budget for tier in tiers for budget in tier["budgets"]]
    ratio = numbers["costs"][numbers["dearest"]] / numbers["costs"][numbers["cheapest"]]
    samples = sum(tier["n"] for tier in tiers)
    documents = len({outcome.document for outcome in run.outcomes})
    how = "resizing" if policy.mechanism == "resolution" else f"deletion with {policy.selector or 'its selector'}"
    parts = [f"{run.name}: {policy.family} by {how}, {policy.mean_budget} visual tokens an image on average"]
    if samples:
        parts.append(f"{samples} questions" + (f" on {documents} documents" if documents else ""))
    parts.append(", ".join(f"{tier} at cost {cost:g}" for tier, cost in numbers["costs"].items()))
    if policy.basis == "legibility":
        parts.append("LEGIBILITY, not a VLM's error: whether the print at each answer's place can still be read")
    differing = sum(bool(row["differ"]) for row in asked)
    return {
        "name": run.name,
        "subtitle": "; ".join(parts) + ".",
        "tiers": tiers,
        "all_tiers": list(policy.tiers),
        "dearest": numbers["dearest"],
        "cheapest": numbers["cheapest"] if len(tiers) != 2 or ratio != 1 else next(reversed(policy.tiers)),
        "ratio": f"{ratio:.6g}",
        "ratio_most": f"{max(20, math.ceil(2 * ratio))}",
        "mean": policy.mean_budget,
        "mean_least": _least_mean(numbers) if tiers else 1,
        "mean_most": max(grid, default=1),
        "fitted": any(list(tier["fitted"]) != list(tier["errors"]) for tier in tiers),
        "estimator": policy.estimator,
        "verdict": None if run.evaluation is None else verdict(run.evaluation),
        "other_arms": [] if run.evaluation is None else other_arms(run.evaluation),
        "notes": [*run.notes, *unkept(policy.certificate)],
        "curve_table": _curve_table(tiers),
        "arms": None if run.evaluation is None else _arm_table(numbers["arms"], len(run.evaluation.plan.samples)),
        "gallery": bool(shown.cards),
        "gallery_notes": shown.notes,
        "gallery_words": f"Pages as each budget sizes them (thumbnails: larger sizes are shown at {LONGEST} pixels)."
        if policy.mechanism == "resolution"
        else "Pages with the tokens that deletion drops at each budget darkened.",
        "no_gallery": "None of the run's samples can be shown."
        if sourced
        else "The log holds no images; give the samples file, or --pages FAMILY, to see pages.",
        "asked": bool(asked),
        "asked_words": f"{len(asked)} questions, disagreements first; {differing} have a signal that says otherwise.",
        "promises": promises(policy.certificate),
        "price": "" if wishes.price_per_million is None else f"{wishes.price_per_million:g}",
        "volume": wishes.images,
        "latency": bool(numbers["latency"]),
        "footer": f"Policy fingerprint {policy.fingerprint}." if policy.fingerprint else "Made by stakes report.",
    }


def _least_mean(numbers: dict[str, Any]) -> int:
    floor = numbers["floor"] or 1
    least = sum(
        tier["n"] * min((b for b in tier["budgets"] if b >= floor), default=tier["budgets"][-1])
        for tier in numbers["tiers"]
    )
    samples: int = sum(tier["n"] for tier in numbers["tiers"])
    return -(-int(least) // samples)


def _curve_table(tiers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    rows = []
    for budget in sorted({budget for tier in tiers for budget in tier["budgets"]}):
        cells = []
        for tier in tiers:
            if budget in tier["budgets"]:
                i = tier["budgets"].index(budget)
                low, high, n = tier["low"][i], tier["high"][i], tier["counts"][i]
                cells.append(f"{tier['errors'][i]:.3f} [{low:.3f}, {high:.3f}] of {n}")
            else:
                cells.append("")
        rows.append({"budget": budget, "cells": cells})
    return rows


def _arm_table(arms: dict[str, Any], questions: int) -> dict[str, Any]:
    rows = []
    for row in arms["rows"]:
        pays = row["break_even"]
        rows.append(
            {
                "arm": row["arm"],
                "errors": [_rate(row["errors"][tier], row["intervals"][tier]) for tier in arms["tiers"]],
                "average": _rate(row["average"], row["average_interval"]),
                "cwe": f"{row['cwe']:.3f}",
                "gain": "" if row["gain"] is None else _fall(row["gain"], row["few"]),
                "dear": "" if row["dear"] is None else "{}:{}\np = {:.2g}".format(*row["dear"]),
                "break_even": "" if pays is None else pays if isinstance(pays, str) else f"{pays:.2f}",
            }
        )
    return {
        **{key: arms[key] for key in ("tiers", "dearest", "documents", "metric", "counted")},
        "rows": rows,
        "questions": questions,
        "total": f"{arms['total']:,}",
        "deviation": f"{arms['deviation']:.3%}",
    }


def _fall(gain: Sequence[float], few: str) -> str:
    return f"{gain[0]:+.3f}\n{few}" if few else "{:+.3f}\n[{:+.3f}, {:+.3f}]".format(*gain)


def _rate(value: float, interval: Sequence[float]) -> str:
    """The rate, and its interval on a line of its own."""
    return f"{value:.1%}\n[{interval[0]:.1%}, {interval[1]:.1%}]"


def _policy(scripts: Sequence[str]) -> str:
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    return f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src {allowed}; base-uri 'none'"


def _css() -> str:
    def variables(colours: Mapping[str, str]) -> str:
        return " ".join(f"--{name}: {value};" for name, value in colours.items())

    return _read("report.css").replace("LIGHT", variables(LIGHT)).replace("DARK", variables(DARK))


def _read(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")
