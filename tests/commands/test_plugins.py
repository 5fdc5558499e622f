"""A selector and a signal of another package, as CONTRIBUTING.md shows it: installed, and used by name and by class."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from tests.gateway.gateways import ask
from tests.gateway.processes import process
from tests.gateway.upstream import serving
from tests.models.test_load import save
from tests.models.tiny import picture

from stakes.budgets.policy import Policy
from stakes.cli import main
from stakes.evaluation.outcome_log import read_outcomes

ROOT = Path(__file__).resolve().parents[2]
BY_CLASS = "acme_contrast:Contrast:weight=0.5"


def write_package(folder: Path) -> None:
    """The files of the guide: each block that begins with its name."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    files = re.findall(r"```(?:toml|python)\n# ([\w.]+)\n(.*?)```", text, re.DOTALL)
    assert [name for name, _ in files] == ["pyproject.toml", "acme_contrast.py", "acme_refund.py"]
    assert 25 <= len(files[1][1].splitlines()) <= 35
    folder.mkdir()
    for name, body in files:
        (folder / name).write_text(body, encoding="utf-8")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the installed package, a tiny model and samples."""
    folder = tmp_path_factory.mktemp("plugins")
    write_package(folder / "acme")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-index", "--no-deps"]
    command = [*pip, "--no-build-isolation", "--target", str(folder / "site"), str(folder / "acme")]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    save("qwen2_5_vl", folder / "vlm")
    settings = json.loads((folder / "vlm" / "preprocessor_config.json").read_text())
    settings["size"]["longest_edge"] = 600 * 28 * 28  # the table asks for 512 tokens
    (folder / "vlm" / "preprocessor_config.json").write_text(json.dumps(settings))
    lines = []
    for i in range(4):
        picture(280, 224 + 28 * (i % 2), i).save(folder / f"{i}.png")
        questions = [("What refund is due?", "high"), ("Who signed?", "low")]
        for j, (question, tier) in enumerate(questions):
            sample = {"id": f"{i}{j}", "image": f"{i}.png", "question": question, "answers": ["a"]}
            lines.append(json.dumps({**sample, "tier": tier, "document": f"{i}"}) + "\n")
    (folder / "cal.jsonl").write_text("".join(lines[:4]))
    (folder / "test.jsonl").write_text("".join(lines[4:]))
    return folder


@pytest.fixture(autouse=True)
def _installed(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(place / "site"))
    monkeypatch.setenv("PYTHONPATH", f"{place / 'site'}:{ROOT / 'src'}:{ROOT}")  # of the served process


def stakes(*words: object) -> int:
    with pytest.raises(SystemExit) as left:
        main([str(word) for word in words])
    return int(left.value.code or 0)


def calibrate(place: Path, selector: str, output: str) -> int:
    rules = ("--mean-budget", 20, "--grid", "12,20,28", "--estimator", "raw", "--cost", "high=5", "--cost", "low=1")
    words = ("calibrate", place / "cal.jsonl", "--model", place / "vlm", *rules, "--signal", "refund")
    return stakes(*words, "--mechanism", "deletion", "--selector", selector, "-o", place / output)


def test_an_installed_selector_and_signal_calibrate_and_are_evaluated_by_name(place: Path) -> None:
    assert calibrate(place, "contrast", "named.json") == 0
    policy = Policy.load(place / "named.json")
    assert policy.selector == "contrast"
    assert policy.signal["name"] == "refund"
    assert policy.signal["package"] == "acme-contrast 1.0"
    meta = json.loads((place / "named.outcomes.jsonl.meta.json").read_text())
    assert meta["selector.package"] == "acme-contrast 1.0"
    assert re.fullmatch("[0-9a-f]{12}", meta["selector.source"])
    arms = ("--policy", place / "named.json", "--arms", "uniform,cost")
    assert stakes("evaluate", place / "test.jsonl", *arms) == 0
    assert {one.selector for one in read_outcomes(place / "named.evaluation.jsonl")} == {"contrast"}


def test_a_class_is_named_again_because_a_file_never_imports_code(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert calibrate(place, BY_CLASS, "class.json") == 0
    assert Policy.load(place / "class.json").selector == BY_CLASS
    arms = ("evaluate", place / "test.jsonl", "--policy", place / "class.json", "--arms", "uniform,cost")
    assert stakes(*arms) == 2
    assert f"name it yourself: --selector {BY_CLASS}" in " ".join(capsys.readouterr().err.split())
    assert stakes(*arms, "--selector", BY_CLASS) == 0


def test_answers_of_a_changed_source_are_not_mixed(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The policy of the first test; its module is changed in place, as an editable installation is."""
    assert calibrate(place, "contrast", "edited.json") == 0
    file = place / "site" / "acme_contrast.py"
    before = file.read_text()
    try:
        file.write_text(before + "# changed\n")
        assert calibrate(place, "contrast", "edited.json") == 2
        assert "another source of the selector" in " ".join(capsys.readouterr().err.split())
        arms = ("--policy", place / "edited.json", "--arms", "uniform,cost", "--json")
        assert stakes("evaluate", place / "test.jsonl", *arms) == 0
        assert "ANOTHER SELECTOR than the policy's" in capsys.readouterr().out
    finally:
        file.write_text(before)


def test_reproduce_measures_it(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--model", place / "vlm", "--per-tier", 2, "--folder", place / "runs", "--json")
    assert stakes("reproduce", "selector-curves", "--selector", "contrast", *words) == 0
    table = json.loads(capsys.readouterr().out)["tables"]["selector-curves"]
    assert [row[1:3] for row in table["rows"]] == [["contrast", "high"], ["contrast", "low"]]


def test_a_served_signal_reads_tiers() -> None:
    budgets = ("--budget", "high=256", "--budget", "low=64")
    with (
        serving() as upstream,
        process(*budgets, "--signal", "refund", "--upstream", upstream.url) as (_, about),
        httpx.Client(timeout=20, trust_env=False) as http,
    ):
        for question, budget in (("What refund is due?", "256"), ("Who signed?", "64")):
            reply = http.post(f"{about['address']}/chat/completions", json=ask(question))
            assert reply.headers["x-stakes-budget"] == budget
