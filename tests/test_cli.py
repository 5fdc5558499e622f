"""The command line: its output, its exit status, and one sentence when something is wrong."""

import io
import json
import re
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from stakes.aliases import KEYS, OPTIONS, with_new_options, with_old_keys
from stakes.cli import app, main
from stakes.evaluation.outcome_log import Outcome


def _stakes(*words: str) -> subprocess.CompletedProcess[str]:
    """The command within this process, which saves a second of imports each; one test starts a real one."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as left:
        main(list(words))
    return subprocess.CompletedProcess(words, int(left.value.code or 0), out.getvalue(), err.getvalue())


def test_a_real_process_prints_json_or_one_sentence() -> None:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "stakes", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    good = run("plan", "--published", "docvqa", "--json")
    assert (good.returncode, good.stderr) == (0, "")
    assert json.loads(good.stdout)["allocation"]["budgets"] == {"high": 576, "low": 32}
    assert re.fullmatch(r"stakes \d+\.\d+\.\d+\S*\n", run("--version").stdout)
    bad = run("plan", "--published", "docvqa", "--cost", "high=-5", "--cost", "low=1")
    assert (bad.returncode, bad.stdout, bad.stderr.count("\n")) == (2, "", 1)


def _json(*words: str) -> Any:
    done = _stakes(*words, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def test_plan_on_the_published_curves_gives_the_papers_optima() -> None:
    plan = _json("plan", "--published", "docvqa", "--pair", "high=512", "--pair", "low=96")
    optima = {row["ratio"]: tuple(row["budgets"].values()) for row in plan["ratios"]}
    assert optima == {
        1: (304, 304), 2: (304, 304), 3: (448, 160), 5: (576, 32), 10: (576, 32), 20: (576, 32),
    }  # fmt: skip
    assert [round(change["ratio"], 2) for change in plan["changes"]] == [2.10, 2.38, 3.72]
    assert plan["pair"]["break_even"] == pytest.approx(2.82)
    assert plan["allocation"]["cwe"] == pytest.approx(0.235, abs=5e-4)
    assert plan["allocation"]["on_edge"] == {"high": "largest", "low": "smallest"}
    assert plan["uniform_cwe"] == pytest.approx(0.312, abs=5e-4)


@pytest.mark.parametrize(("dataset", "ratio"), [("chartqa", 3.60), ("infographicvqa", 0.74)])
def test_plan_gives_the_other_published_break_evens(dataset: str, ratio: float) -> None:
    plan = _json("plan", "--published", dataset, "--pair", "high=512", "--pair", "low=96")
    assert plan["pair"]["break_even"] == pytest.approx(ratio, abs=5e-3)


def test_plan_takes_minutes_in_place_of_costs() -> None:
    plan = _json("plan", "--published", "docvqa", "--effort", "high=20 minutes", "--effort", "low=1 minute")
    assert plan["costs"] == {"high": 20, "low": 1}
    assert plan["required_confidence"] == pytest.approx((3.722 - 1) / 19, abs=1e-3)
    page = _stakes("plan", "--published", "docvqa", "--effort", "high=20 minutes", "--effort", "low=1 minute").stdout
    assert "The cost ratio is 20; these budgets are the best at ratios from 3.72 upward." in page
    assert "the probability that it is high is 14% or more" in page


def _outcomes(path: Path, lines: int = 40, spoil: int | None = None) -> Path:
    rows = []
    for i in range(lines):
        tier, budget = ("high", "low")[i % 2], (32, 304)[i // 2 % 2]
        right = budget == 304 and i % 10 > 1
        name, score = f"q{i // 4}", float(right)
        row = Outcome(
            name, "p", tier, "resolution", None, budget, 972, budget, "x", False, score, right, "relaxed", 1.0, "r"
        )
        rows.append(json.dumps(asdict(row)))
    if spoil is not None:
        rows[spoil - 1] = rows[spoil - 1][:-9]
    file = path / "outcomes.jsonl"
    file.write_text("\n".join(rows) + "\n")
    return file


def test_plan_reads_a_log_of_outcomes(tmp_path: Path) -> None:
    plan = _json("plan", "--curves", str(_outcomes(tmp_path)), "--mean-budget", "304")
    assert plan["allocation"]["budgets"] == {"high": 304, "low": 304}
    assert plan["counts"] == {"high": 10, "low": 10}


def _curves(path: Path, **high: Any) -> str:
    low = {"budgets": [32, 304, 576], "errors": [0.9, 0.4, 0.1], "counts": 300}
    file = path / "curves.json"
    file.write_text(json.dumps({"high": {**low, **high}, "low": low}))
    return str(file)


@pytest.mark.parametrize(
    ("errors", "needless", "edge"), [([0.9, 0.4, 0.1], False, True), ([0.9, 0.1, 0.1], True, False)]
)
def test_more_tokens_are_not_called_useless_at_the_largest_measured_budget(
    tmp_path: Path, errors: list[float], needless: bool, edge: bool
) -> None:
    curve = {"budgets": [32, 304, 576], "errors": errors, "counts": 300}
    file = tmp_path / "curves.json"
    file.write_text(json.dumps({"high": curve, "low": curve}))
    page = _stakes("plan", "--curves", str(file), "--mean-budget", "576").stdout
    assert ("More tokens would not help" in page, "A wider grid might do better" in page) == (needless, edge)
    assert "error, pooled" in _stakes("plan", "--curves", str(file), "--estimator", "pooled").stdout


BAD_CURVES = [
    ({"budgets": [304, 32, 576]}, "tier 'high'.*budgets must rise, but 32 comes after 304"),
    ({"budgets": [32, 32, 576]}, "tier 'high'.*budget 32 appears twice"),
    ({"errors": [0.9, float("nan"), 0.1]}, "error at budget 304 is nan"),
    ({"errors": [0.9, 1.4, 0.1]}, "error at budget 304 is 1.4"),
    ({"budgets": [], "errors": [], "counts": []}, "tier 'high'.*at least one measured budget"),
    ({"counts": 0}, "rests on 0 questions"),
    ({"errors": "many"}, "errors must be a list of numbers, not 'many'"),
]
BAD_WORDS = [
    (["--cost", "high=-5", "--cost", "low=1"], "'high'.*-5"),
    (["--cost", "high=5"], "low"),
    (["--cost", "high=5", "--cost", "low=1", "--cost", "gold=9"], "gold"),
    (["--cost", "high"], "tier=value, such as high=5, not 'high'"),
    (["--cost", "high=much", "--cost", "low=1"], "'much' is not a number"),
    (["--count", "high=1.5", "--count", "low=1"], "'1.5' is not a whole number"),
    (["--total", "1000"], "19200"),
    (["--floor", "5000"], "floor"),
    (["--pair", "high=576", "--pair", "low=97"], "97 was not measured"),
    (["--effort", "high=ages", "--effort", "low=1 minute"], "cannot read 'ages'"),
    (["--cost", "high=5", "--effort", "high=5"], "not both"),
    (["--mean-budget", "lots"], "--mean-budget.*integer"),
    (["--nonsense"], "nonsense"),
]


def _refused(*words: str) -> str:
    done = _stakes(*words)
    assert done.returncode == 2, done
    assert done.stdout == ""
    assert done.stderr.startswith("stakes: ")
    assert done.stderr.count("\n") == 1, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


@pytest.mark.parametrize(("change", "message"), BAD_CURVES)
def test_bad_curves_end_in_one_sentence(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    assert re.search(message, _refused("plan", "--curves", _curves(tmp_path, **change)))


@pytest.mark.parametrize(("words", "message"), BAD_WORDS)
def test_bad_words_end_in_one_sentence(tmp_path: Path, words: list[str], message: str) -> None:
    assert re.search(message, _refused("plan", "--curves", _curves(tmp_path), *words))


def test_a_malformed_line_17_is_named(tmp_path: Path) -> None:
    assert "line 17 of" in _refused("plan", "--curves", str(_outcomes(tmp_path, spoil=17)))


def test_other_bad_input_ends_in_one_sentence(tmp_path: Path) -> None:
    assert "there is no file" in _refused("plan", "--curves", str(tmp_path / "none.json"))
    deep = tmp_path / "deep.json"
    deep.write_text("[" * 200_000)
    assert "deep.json is not JSON (maximum recursion depth" in _refused("plan", "--curves", str(deep))
    assert "deep.json is not a policy file" in _refused("report", str(deep))
    assert "is not a JSON file of tasks" in _refused("explain", "What?", "--signal", f"task:{deep}")
    assert "the floor is at least one token, not -3" in _refused("plan", "--published", "docvqa", "--floor", "-3")
    huge = ("--cost", "high=1e308", "--cost", "low=1e308")
    assert "the cost of tier 'high' is 1e+308" in _refused("plan", "--published", "docvqa", *huge)
    assert "no published curves of 'mnist'" in _refused("plan", "--published", "mnist")
    assert "not both" in _refused("plan")
    assert "there is no table 'nine'" in _refused("reproduce", "nine")
    assert "no policy file" in _refused("explain", "What?", "--policy", str(tmp_path / "none.json"))
    assert "nothing to explain" in _refused("explain")


def test_reproduce_published_lists_what_does_not_follow() -> None:
    found = _json("reproduce", "published")
    assert found["verdicts"]["does not follow"] == 5
    page = _stakes("reproduce", "published").stdout
    assert "anti: avg" in page
    assert "uniform: cwe_r5" not in page
    assert "uniform: cwe_r5" in _stakes("reproduce", "published", "--every").stdout


def test_without_a_command_the_help_lists_them() -> None:
    done = _stakes()
    assert (done.returncode, done.stderr) == (2, "")
    assert "reproduce" in done.stdout


@pytest.mark.parametrize(
    "command", ["plan", "explain", "reproduce", "calibrate", "evaluate", "serve", "report", "demo", "doctor"]
)
def test_every_command_has_help_with_an_example(command: str) -> None:
    done = _stakes(command, "--help")
    assert done.returncode == 0
    assert f"Example: stakes {command}" in " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("old", "words", "message"),
    [
        ("--race", ["calibrate", "none.jsonl", "--race", "--per-request"], "leaves most out; choose one"),
        ("--soft", ["calibrate", "none.jsonl", "--soft", "--certify"], "per-request costs have none; choose one"),
        ("--dearest", ["signal", "train", "labels.jsonl", "--dearest=gold"], "no question is labelled 'gold'"),
        ("--apart-from", ["data", "fetch", "docvqa", "--out", "o", "--apart-from", "none"], "its rows are unknown"),
    ],
)
def test_options_of_version_0_1_still_work_and_are_hidden(
    old: str, words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = [
        {"id": f"{tier}{i}", "question": f"What? {i}", "answers": ["x"], "tier": tier}
        for tier in ("high", "low")
        for i in range(10)
    ]
    Path("labels.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert message in _refused(*words)
    command = words[: 1 if words[0] == "calibrate" else 2]
    shown = _stakes(*command, "--help").stdout
    assert old not in shown
    assert OPTIONS[old] in shown


def test_every_old_option_has_a_new_one_and_values_are_left_alone() -> None:
    params = {opt for command in _commands(get_command(app)) for one in command.params for opt in one.opts}
    assert set(OPTIONS.values()) <= params
    assert not set(OPTIONS) & params
    assert with_new_options(["explain", "--soft?", "--soft=x", "-o", "--"]) == [
        "explain", "--soft?", "--per-request=x", "-o", "--",
    ]  # fmt: skip


def _commands(command: Any) -> list[Any]:
    return (
        [one for sub in command.commands.values() for one in _commands(sub)]
        if hasattr(command, "commands")
        else [command]
    )


def test_json_has_the_keys_of_version_0_1_next_to_the_new_ones() -> None:
    plan = _json("plan", "--published", "docvqa", "--pair", "high=512", "--pair", "low=96")
    assert plan["dearest"] == plan["most_expensive"] == "high"
    assert plan["sureness"] == plan["required_confidence"]
    assert plan["pair"]["sureness"] == plan["pair"]["required_confidence"]
    for old, new in KEYS.items():
        assert with_old_keys([{new: {"p": 1.0}, "arm": "cost"}])[0][old] == {"p": 1.0}
    by_tier = {"high_cost": 576, "cheap": 32}  # tiers may have any name
    assert with_old_keys({"budgets": by_tier, "mean": 304.0})["budgets"] == by_tier


def test_help_loads_no_heavy_package() -> None:
    code = (
        "import sys\nfrom contextlib import suppress\nfrom stakes.cli import main\n"
        "with suppress(SystemExit):\n    main(['--help'])\n"
        "print([name for name in ('numpy', 'scipy', 'pandas', 'PIL', 'torch') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
