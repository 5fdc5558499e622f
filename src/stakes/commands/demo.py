"""``stakes demo``: calibrate, evaluate and report in two minutes, with the embedded reader on fresh pages."""

import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stakes.commands.inputs import check_writable
from stakes.commands.output import AsJson, format_by_tier, print_json
from stakes.errors import BadInput

if TYPE_CHECKING:
    from stakes.data.sample import Sample

MEAN = 304
GRID = (32, 160, 304, 448, 576)
PER_PAGE = 2
"""Questions of a tier on one page: intervals are over pages, so many pages with few questions give narrower ones.

With this reader CWE falls by 0.158 on 20 pages and on 40, with lower bounds of 0.025 and 0.069. The demo shows how
things work; evidence for the method takes a run of hundreds (docs/results.md).
"""


def demo(
    folder: Annotated[Path, typer.Option("--output", "-o", help="A folder for the files.")] = Path("stakes-demo"),
    per_tier: Annotated[int, typer.Option(help="Questions of each tier, for calibration and again for the test.")] = 80,
    as_json: AsJson = False,
) -> None:
    """Calibrate on a few synthetic pages, test the policy on others, and write report.html.

    Example: stakes demo
    """
    from stakes.calibration.calibrate import CalibrationOptions, calibrate
    from stakes.calibration.evaluate import EvaluationOptions, evaluate
    from stakes.commands.calibrate import calibration_log
    from stakes.evaluation.fingerprint import Setting
    from stakes.evaluation.progress import Progress
    from stakes.evaluation.runner import RunOptions
    from stakes.models import load
    from stakes.report.data import read_run
    from stakes.report.gallery import samples_from_pages
    from stakes.report.html import report_html
    from stakes.report.sentences import verdict
    from stakes.report.svg import converter
    from stakes.signals import KeywordRule

    started = time.perf_counter()
    converter()  # report a missing extra now, not after two minutes
    policy, target = folder / "policy.json", folder / "report.html"
    check_writable(target)
    if policy.exists() and not calibration_log(policy).exists():  # a demo writes its log first
        raise BadInput(f"{policy} exists already and is not from a demo; choose another folder with -o")
    model = load("embedded")
    setting = Setting("deletion", "redundancy")
    options = CalibrationOptions(setting, GRID, run=RunOptions(Progress(sys.stderr, "calibrate")))
    found = calibrate(
        _few_per_page("calibration", per_tier), model, costs={"high": 5.0, "low": 1.0}, mean_budget=MEAN,
        signal=KeywordRule(), log=calibration_log(policy), options=options,
    )  # fmt: skip
    found.policy.save(policy)
    again = EvaluationOptions(setting=setting, run=RunOptions(Progress(sys.stderr, "evaluate")))
    log = policy.with_suffix(".evaluation.jsonl")
    judged = evaluate(model, _few_per_page("test", per_tier), found.policy, log=log, options=again)
    run = read_run(policy)
    html = report_html(run, samples_from_pages("forms", run), model=model, selectors=["redundancy", "saliency"])
    target.write_text(html, encoding="utf-8")
    conclusion, seconds = verdict(judged), time.perf_counter() - started
    if as_json:
        record = {"report": str(target), "policy": str(policy), "budgets": found.policy.budgets, "verdict": conclusion}
        print_json({**record, "seconds": seconds, "evaluation": judged.record()})
        return
    typer.echo(f"Budgets: {format_by_tier(found.policy.budgets)} visual tokens, {MEAN} on average.")
    typer.echo(conclusion)
    typer.echo(f"Report in {target}, {seconds:.0f} s; open it in any browser and move its controls.")


def _few_per_page(split: str, per_tier: int) -> "list[Sample]":
    """``per_tier`` questions of each tier, at most ``PER_PAGE`` of them on one page."""
    from stakes.evaluation.samples import draw_samples

    on_page, of_tier = Counter[tuple[str, str]](), Counter[str]()
    samples = []
    for sample in draw_samples("forms", split, 2 * per_tier):  # four of each tier on a page, of which two are taken
        page = sample.document, sample.tier
        if on_page[page] < PER_PAGE and of_tier[sample.tier] < per_tier:
            on_page[page] += 1
            of_tier[sample.tier] += 1
            samples.append(sample)
    return samples
