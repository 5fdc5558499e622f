"""Common mistakes of newcomers end in one sentence that says what to do."""

from __future__ import annotations

import io
import json
import re
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from tests.evaluation.oracle import Oracle, write_samples

from stakes import cli
from stakes.calibration.calibrate import CalibrationOptions, calibrate
from stakes.calibration.certify.power import SamplesNeeded, SizeRow
from stakes.calibration.evaluate import evaluate
from stakes.commands import evaluate as evaluate_command
from stakes.commands import plan
from stakes.commands.calibrate import _explained
from stakes.commands.options import inputs
from stakes.commands.output.plan import certified_share, print_needed
from stakes.errors import BadInput, InfeasibleBudget, LedgerBreach
from stakes.evaluation.samples import prepare_samples
from stakes.experiments.study import fixed_policy
from stakes.report.html import report_html

COSTS = {"high": 5.0, "low": 1.0}


def stakes(*words: object) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as left:
        cli.main([str(word) for word in words])
    return int(left.value.code or 0), out.getvalue(), err.getvalue()


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Whatever a newcomer may have lying about; page1.png is cut short, and so is page2.jpg."""
    folder = tmp_path_factory.mktemp("here")
    for name in ("page0.png", "page1.png", "page2.jpg"):
        Image.effect_noise((392, 280), 40).save(folder / name)
    for name in ("page1.png", "page2.jpg"):
        (folder / name).write_bytes((folder / name).read_bytes()[:-3000])
    for name, images in (("good", ["page0.png"]), ("cut", ["page0.png", "page1.png"]), ("jpeg", ["page2.jpg"])):
        rows = [
            {"id": f"{name}{i}{tier}", "image": image, "question": question, "answers": ["x"], "tier": "high"}
            for i, image in enumerate(images)
            for tier, question in (("high", "What is the total?"), ("low", "Who signed?"))
        ]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "s.csv").write_text("id,question\n1,What?\n")
    (folder / "bad.json").write_text('{"my": "notes"}')
    (folder / "emptymodel").mkdir()
    (folder / "none").mkdir()
    return folder


WRONG = [
    ("calibrate good.jsonl --model ./nofolder", "there is no folder ./nofolder; check the path"),
    ("calibrate good.jsonl --model ./emptymodel", "the folder ./emptymodel holds no model: it has no config.json"),
    ("calibrate good.jsonl --model bad.json", "bad.json is a file, and a model is a folder"),
    ("evaluate good.jsonl --policy bad.json", "bad.json is not a policy file: it has no schema"),
    ("serve --budget high=576", "give one beside high a budget: --budget low=96"),
    ("plan --published docvqa --mean-budget 20", "take 32 per image; give --mean-budget 32 or more"),
    ("evaluate good.jsonl", "see stakes evaluate --help"),
    ("data check", "see stakes data check --help"),
    ("plan --nonsense", "see stakes plan --help"),
    ("data check s.csv", "s.csv is CSV, and samples are read as JSONL"),
    ("calibrate s.csv", "s.csv is CSV, and samples are read as JSONL"),
    ("calibrate .", "is a folder; give cut.jsonl"),
    ("calibrate none", "none is a folder; give a JSONL file of samples"),
    ("calibrate cut.jsonl", r"sample 'cut1high': page1.png: the image cannot be decoded.*stakes data check names"),
    ("calibrate jpeg.jsonl", r"sample 'jpeg0high': page2.jpg: the image cannot be decoded.*stakes data check names"),
    ("calibrate good.jsonl --signal keywords:words.txt", "there is no file words.txt; keywords:FILE takes one"),
    ("signal train good.jsonl", r"the labels of good.jsonl are 2 high.*distinguish at least two tiers"),
]


@pytest.mark.parametrize(("line", "says"), WRONG)
def test_a_wrong_line_says_what_to_do(here: Path, line: str, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(here)
    if "--model" in line:
        pytest.importorskip("torch")
    status, out, err = stakes(*line.split())
    message = err.splitlines()[-1]
    assert (status, out) == (2, "")
    assert message.startswith("stakes: ")
    assert re.search(says, message), message


def test_data_check_and_calibrate_note_labels_that_the_signal_reads_differently(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(here)
    status, out, _ = stakes("data", "check", "good.jsonl", "--largest-budget", 32)
    assert (status, out.count("the file's labels disagree with the keyword rule on 1 of 2; --signal tier")) == (0, 1)
    assert (
        "note: the file's labels disagree with the signal on 1 of 2 questions"
        in stakes("calibrate", "good.jsonl", "--model", "./nofolder")[2]
    )


@pytest.mark.parametrize("grid", [None, [2, 20]])
def test_a_default_grid_is_named_when_no_image_can_take_it(tmp_path: Path, grid: list[int] | None) -> None:
    samples = prepare_samples(write_samples(tmp_path, pages=1), tmp_path)
    with pytest.raises(InfeasibleBudget) as error, _explained(grid, 20, Oracle(), "resolution"):
        calibrate(samples, Oracle(), costs=COSTS, mean_budget=20, options=CalibrationOptions(grid=grid))
    assert "no size of a 1008x756 image takes 2 tokens" in str(error.value)
    assert ("the grid scaled to a mean budget of 20 goes from 2 to 38" in str(error.value)) == (grid is None)
    assert "--mechanism deletion" not in str(error.value)  # an oracle has no features to delete


@dataclass
class Tiles(Oracle):
    """An oracle behind LLaVA's geometry, which shows features."""

    def encode(self) -> None:
        """What a model that can delete has."""


def test_an_anyres_model_gets_its_tile_sizes_and_deletion_as_advice(tmp_path: Path) -> None:
    samples, model = prepare_samples(write_samples(tmp_path, pages=1), tmp_path), Tiles(family="reader-llava")
    # 100: the grid's own smallest budget is named, not any other that fails too
    with pytest.raises(InfeasibleBudget) as error, _explained(None, 100, model, "resolution"):
        calibrate(samples, model, costs=COSTS, mean_budget=100)
    assert re.search(r"takes 11 tokens or fewer with reader-llava, only 248, \d+, \d+.*, …; ", str(error.value))
    assert "or --mechanism deletion, which keeps any number of tokens" in str(error.value)


def test_a_scaled_grid_above_the_images_is_named_too(tmp_path: Path) -> None:
    samples = prepare_samples(write_samples(tmp_path, pages=1), tmp_path)
    with pytest.raises(LedgerBreach) as error, _explained(None, 600, Oracle(), "deletion"):
        calibrate(samples, Oracle(), costs=COSTS, mean_budget=600)
    assert "the grid scaled to a mean budget of 600 goes from 63 to 1137" in str(error.value)
    assert "give budgets of at most 972" in str(error.value)


def test_a_policy_of_another_familys_tokens_is_named(tmp_path: Path) -> None:
    samples = prepare_samples(write_samples(tmp_path, pages=2), tmp_path)
    rules = fixed_policy("reader-llava", "resolution", {"high": 1116, "low": 252}, COSTS, ["high"])
    said = "tokens of reader-llava, and this model is qwen2.5-vl; give the --model"
    with pytest.raises(LedgerBreach, match=said), evaluate_command._explained(rules, Oracle()):
        evaluate(Oracle(), samples, rules, log=tmp_path / "log.jsonl")
    own = rules.model_copy(update={"family": "qwen2.5-vl"})
    with pytest.raises(LedgerBreach, match="^arm 'cost'"), evaluate_command._explained(own, Oracle()):
        evaluate(Oracle(), samples, own, log=tmp_path / "log.jsonl")


@pytest.mark.parametrize(
    ("command", "within", "words", "resumes"),
    [
        ("calibrate", (inputs, "gather_samples"), ["x.jsonl"], True),
        ("plan", (plan, "_read_curves"), ["--published", "docvqa"], False),
    ],
)
def test_a_stopped_command_says_how_to_continue(
    monkeypatch: Any, command: str, within: tuple[Any, str], words: list[str], resumes: bool
) -> None:
    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(*within, stop)
    status, _, err = stakes(command, *words)
    assert (status, "the same command continues" in err) == (130, resumes)


def test_the_version_is_printed() -> None:
    status, out, _ = stakes("--version")
    assert status == 0
    assert re.fullmatch(r"stakes \d+\.\d+\.\d+\S*\n", out)


def test_a_report_without_its_extra_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    run: Any = None
    with pytest.raises(BadInput, match=r"a report needs jinja2; run: pip install 'stakes\[report\]'"):
        report_html(run)


@pytest.mark.parametrize(("hits", "repeats", "bound"), [(17, 20, 0.656), (20, 20, 0.861), (88, 100, 0.813)])
def test_power_is_claimed_only_where_the_exact_bound_clears_it(
    hits: int, repeats: int, bound: float, capsys: pytest.CaptureFixture[str]
) -> None:
    """The bound: 0.05 ** (1 / n) where all end well; others from tables of the exact interval."""
    row = SizeRow({"high": 9, "low": 9}, 9, hits / repeats, {}, {}, {"high": 0.1, "low": 0.1}, True)
    needed = SamplesNeeded((row,), 0.95, 0.8, repeats, row.samples, "")
    share, lower = certified_share(needed)
    assert share == hits / repeats
    assert lower == pytest.approx(bound, abs=5e-4)
    print_needed(needed, "published curves")
    summary = capsys.readouterr().out
    assert f"in {share:.0%} of the {repeats} simulated calibrations" in summary
    assert ("so the requested 80% are reached" in summary) == (bound >= 0.8)
    assert ("below the requested 80%" in summary) == (bound < 0.8)
