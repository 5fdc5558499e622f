"""``stakes demo``: calibrate, evaluate and report in two minutes, with the embedded reader on fresh pages.

Two policies are made of the same answers: one without limits, which gives up the low-cost tier, and one with a harm
limit. Both are tested at the same tokens.
"""

import shutil
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stakes.commands.options.inputs import check_writable
from stakes.commands.output import AsJson, print_json, print_next, print_table
from stakes.commands.output.installed import installed
from stakes.errors import BadInput

if TYPE_CHECKING:
    from stakes.budgets.policy import Policy
    from stakes.calibration.evaluate import Evaluation
    from stakes.calibration.result import Calibration
    from stakes.data.sample import Sample

MEAN = 304
GRID = (32, 160, 256, 304, 352, 448, 576)
"""256 and 352 are what a harm limit of 15 points leaves to choose from: this reader's errors fall steeply."""
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
    """Calibrate on a few synthetic pages, with and without a harm limit, test on others, and write report.html.

    Example: stakes demo
    """
    from stakes.budgets.harm import SUGGESTED, policy_rises
    from stakes.calibration.calibrate import CalibrationOptions, calibrate
    from stakes.calibration.escalation.step import OptionRequest
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
    from stakes.signals import KeywordRule

    started = time.perf_counter()
    _need_extras()  # report what is missing now, not after two minutes
    policy, limited, target = folder / "policy.json", folder / "limited.json", folder / "report.html"
    check_writable(target)
    if policy.exists() and not calibration_log(policy).exists():  # a demo writes its log first
        raise BadInput(f"{policy} exists already and is not from a demo; choose another folder with -o")
    model = load("embedded")
    setting = Setting("deletion", "redundancy")
    fixed = OptionRequest(escalate=False, predict=False)  # arms of one total are fixed budgets
    options = CalibrationOptions(setting, GRID, beside_budgets=fixed, run=RunOptions(Progress(sys.stderr, "calibrate")))
    again = EvaluationOptions(setting=setting, run=RunOptions(Progress(sys.stderr, "evaluate")))
    pages, others = (_few_per_page(split, per_tier) for split in ("calibration", "test"))

    def measure(path: Path, options: CalibrationOptions, again: EvaluationOptions) -> "tuple[Calibration, Evaluation]":
        found = calibrate(
            pages, model, costs={"high": 5.0, "low": 1.0}, mean_budget=MEAN,
            signal=KeywordRule(), log=calibration_log(path), options=options,
        )  # fmt: skip
        found.policy.save(path)
        log = path.with_suffix(".evaluation.jsonl")
        return found, evaluate(model, others, found.policy, log=log, options=again)

    found, judged = measure(policy, options, again)
    _copy_logs(policy, limited)  # the same answers: only the limited policy's own budgets are asked on the other pages
    kept, compared = measure(limited, replace(options, max_harm=SUGGESTED), replace(again, arms=("uniform", "cost")))
    run = read_run(policy)
    html = report_html(run, samples_from_pages("forms", run), model=model, selectors=["redundancy", "saliency"])
    target.write_text(html, encoding="utf-8")
    seconds = time.perf_counter() - started
    if as_json:
        record = {"report": str(target), **_record(policy, found.policy, judged), "seconds": seconds}
        print_json({**record, "limited": _record(limited, kept.policy, compared)})
        return
    _print_tested("Budgets without a limit", found.policy, judged)
    typer.echo(verdict(judged))
    if found.harm is not None:
        typer.echo(f"{found.harm}\n")
    _print_tested(f"Budgets with --max-harm {SUGGESTED:g}", kept.policy, compared)
    typer.echo(verdict(compared))
    rises = [f"{tier} errors go {rise}" for tier, rise in policy_rises(kept.policy).items() if rise.rise > 0]
    if rises:
        typer.echo(
            f"The limit is kept on the calibration's curves: {'; '.join(rises)}. That is an estimate from {per_tier} "
            "questions of each tier. With hundreds, --certify tests it on documents that were not used to choose."
        )
    typer.echo(
        f"\nPolicies in {policy} and {limited}. Report in {target}, {seconds:.0f} s; open it in any browser and move "
        "its controls."
    )
    print_next("data", "check", "your-samples.jsonl")


def _need_extras() -> None:
    """Refuse with one command that installs all that the demo lacks."""
    missing = [package for package in installed() if package.extra in ("local", "report") and not package.good]
    if missing:
        extras = ",".join(dict.fromkeys(package.extra for package in missing))
        names = ", ".join(package.name for package in missing)
        raise BadInput(f"the demo needs {names}; run: pip install 'stakes[{extras}]'")


def _copy_logs(policy: Path, other: Path) -> None:
    """Copy the answers beside one policy to where another's are looked for, unless they are there already."""
    for log in sorted(policy.parent.glob(f"{policy.stem}.*.jsonl*")):
        target = log.with_name(log.name.replace(policy.stem, other.stem, 1))
        if not log.name.endswith(".arms.json") and not target.exists():
            shutil.copyfile(log, target)


def _record(path: Path, policy: "Policy", judged: "Evaluation") -> dict[str, object]:
    """One policy and its test, as JSON."""
    from stakes.report.sentences import verdict

    record = {"policy": str(path), "budgets": policy.budgets, "max_harm": policy.max_harm}
    return {**record, "verdict": verdict(judged), "evaluation": judged.record()}


def _print_tested(title: str, policy: "Policy", judged: "Evaluation") -> None:
    """Print a policy's budgets and errors on the other pages beside uniform's, at the same tokens."""
    arms = {row.arm: row for row in judged.comparison.rows}
    own, even = arms["cost"], arms["uniform"]
    rows = [(tier, b, f"{own.errors[tier]:.3f}", f"{even.errors[tier]:.3f}") for tier, b in policy.budgets.items()]
    mean = round(own.spent / len(judged.plan.samples))
    uniform = round(even.spent / len(judged.plan.samples))
    rows.append(("CWE", mean, f"{own.cwe:.3f}", f"{even.cwe:.3f}"))
    print_table(f"{title}, tested on other pages", ["tier", "tokens", "error", f"error at uniform {uniform}"], rows)


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
