"""``stakes demo``: the whole point in two minutes, on the embedded reader and fresh pages, ending in a report."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stakes.commands.inputs import check_writable
from stakes.commands.output import AsJson, print_json
from stakes.errors import BadInput

if TYPE_CHECKING:
    from stakes.evaluation.items import Asked


MEAN = 304
GRID = (32, 160, 304, 448, 576)
# Of a tier: intervals are over pages, so few questions on many pages tell more than many on few. With this reader CWE
# falls by 0.158 on 20 pages and on 40, by 0.025 and 0.069 at the least; readers before it needed 40. So the demo shows
# the working, and is no evidence of the method; that is a run of hundreds (docs/results.md).
PER_PAGE = 2


def demo(
    folder: Annotated[Path, typer.Option("--output", "-o", help="Where the files go.")] = Path("stakes-demo"),
    per_tier: Annotated[int, typer.Option(help="Questions of each tier, for calibration and again for the test.")] = 80,
    as_json: AsJson = False,
) -> None:
    """Calibrate on a few synthetic pages, test the policy on others, and write report.html.

    Example: stakes demo
    """
    from stakes.calibration.calibrate import calibrate
    from stakes.calibration.evaluate import evaluate
    from stakes.commands.calibrate import calibration_log
    from stakes.evaluation.fingerprint import Setting
    from stakes.evaluation.progress import progress_on
    from stakes.models import load
    from stakes.report.html import report_html
    from stakes.report.run import from_pages, read_run
    from stakes.report.sentences import verdict
    from stakes.report.svg import converter
    from stakes.signals import KeywordRule

    started = time.perf_counter()
    converter()  # say now, not after two minutes, that the extra is missing
    policy, target = folder / "policy.json", folder / "report.html"
    check_writable(target)
    if policy.exists() and not calibration_log(policy).exists():  # a demo writes its log first
        raise BadInput(f"{policy} is there already and is no demo's; choose another folder with -o")
    model = load("embedded")
    setting = Setting("deletion", "redundancy")
    found = calibrate(
        model,
        _few_a_page("calibration", per_tier),
        {"high": 5.0, "low": 1.0},
        MEAN,
        KeywordRule(),
        log=calibration_log(policy),
        grid=GRID,
        setting=setting,
        progress=progress_on(sys.stderr, "calibrate"),
    )
    found.policy.save(policy)
    judged = evaluate(
        model,
        _few_a_page("test", per_tier),
        found.policy,
        log=policy.with_suffix(".evaluation.jsonl"),
        setting=setting,
        progress=progress_on(sys.stderr, "evaluate"),
    )
    run = read_run(policy)
    page = report_html(run, from_pages("forms", run), model=model, selectors=["redundancy", "saliency"])
    target.write_text(page, encoding="utf-8")
    told, seconds = verdict(judged), time.perf_counter() - started
    if as_json:
        record = {"report": str(target), "policy": str(policy), "budgets": found.policy.budgets, "verdict": told}
        print_json({**record, "seconds": seconds, "evaluation": judged.record()})
        return
    budgets = ", ".join(f"{tier} {budget}" for tier, budget in found.policy.budgets.items())
    typer.echo(f"Budgets: {budgets} visual tokens, {MEAN} on average.")
    typer.echo(told)
    typer.echo(f"Report in {target}, {seconds:.0f} s; open it in any browser and move its controls.")


def _few_a_page(split: str, per_tier: int) -> "list[Asked]":
    """``per_tier`` questions of each tier, at most ``PER_PAGE`` of them on one page."""
    from stakes.evaluation.items import ask_pages

    taken: dict[tuple[str, str], int] = {}
    of_tier: dict[str, int] = {}
    kept = []
    for one in ask_pages("forms", split, 2 * per_tier):  # which come four a page: two of each are left
        key = one.document, one.tier
        if taken.get(key, 0) < PER_PAGE and of_tier.get(one.tier, 0) < per_tier:
            taken[key], of_tier[one.tier] = taken.get(key, 0) + 1, of_tier.get(one.tier, 0) + 1
            kept.append(one)
    return kept
