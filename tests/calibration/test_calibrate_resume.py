"""A calibration that was killed or cut at any moment ends with the same answers and the same policy."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.models.tiny import picture, tiny

from stakes.budgets.policy import Policy
from stakes.calibration.calibrate import CalibrationOptions, calibrate
from stakes.calibration.result import Calibration
from stakes.data.sample import Sample
from stakes.errors import BadInput
from stakes.evaluation.fingerprint import Setting
from stakes.evaluation.outcome_log import read_outcomes
from stakes.evaluation.samples import prepare_samples
from stakes.models.local.image_cache import EncodedCache
from stakes.signals import KeywordRule

ROOT = Path(__file__).parents[2]
COSTS = {"high": 5.0, "low": 1.0}

KILLER = """
import json, os, random, signal, sys, time
from pathlib import Path
from tests.evaluation.oracle import Oracle, write_samples
from stakes.calibration.calibrate import calibrate
from stakes.evaluation.samples import prepare_samples
from stakes.signals import KeywordRule

folder, dice, kills = Path(sys.argv[1]), random.Random(4), 0
samples, log = write_samples(folder, pages=24), folder / "killed.jsonl"

def start(name, seconds):  # a process of its own; only the imports are shared
    child = os.fork()
    if child:
        return child
    prepared, model = prepare_samples(samples, folder, KeywordRule()), Oracle(seconds=seconds)
    costs = {"high": 5.0, "low": 1.0}
    found = calibrate(prepared, model, costs=costs, signal=KeywordRule(), log=folder / f"{name}.jsonl")
    found.policy.save(folder / f"{name}.json")
    os._exit(0)

def size():
    return log.stat().st_size if log.exists() else 0

for _ in range(10):
    wanted = size() + dice.randrange(2 * 32 * 300)  # up to two batches further, and some milliseconds on
    child = start("killed", 0.02)
    while size() <= wanted and os.waitpid(child, os.WNOHANG) == (0, 0):
        time.sleep(0.001)
    time.sleep(0.03 * dice.random())
    os.kill(child, signal.SIGKILL)
    kills += os.waitpid(child, 0)[1] == signal.SIGKILL and not (folder / "killed.json").exists()
ends = [os.waitpid(start(name, 0.0), 0)[1] for name in ("killed", "calm")]
print(json.dumps([kills, ends]))
"""


def test_killed_at_ten_random_moments_it_ends_with_the_same_outcomes_and_the_same_policy_bytes(tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLER, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    assert json.loads(done.stdout) == [10, [0, 0]], "ten kills, each within the run"

    def facts(path: Path) -> list[str]:
        return sorted(repr(replace(outcome, ms=0.0)) for outcome in read_outcomes(path))

    assert len(facts(tmp_path / "killed.jsonl")) == 96 * 13
    assert facts(tmp_path / "killed.jsonl") == facts(tmp_path / "calm.jsonl")
    assert (tmp_path / "killed.json").read_bytes() == (tmp_path / "calm.json").read_bytes()
    assert Policy.load(tmp_path / "killed.json").budgets


@pytest.mark.parametrize("mechanism", ["resolution", "deletion"])
def test_a_real_model_class_end_to_end_the_same_after_a_cut(mechanism: Any, tmp_path: Path) -> None:
    samples = []
    for number in range(3):
        picture(280 + 28 * number, 224, number).save(tmp_path / f"{number}.png")
        for question in ("What is the total?", "Who signed?"):
            sample = f"{number}{question}"
            samples.append(Sample(sample, question, ("a",), f"{number}.png", document=str(number)))
    model = replace(tiny("qwen2_5_vl"), cache=EncodedCache())
    samples, log, setting = (
        prepare_samples(samples, tmp_path, KeywordRule()),
        tmp_path / "log.jsonl",
        Setting(mechanism),
    )
    grid = (12, 24, 40)
    encoded: list[int] = []
    handle = model.model.model.visual.register_forward_hook(lambda *_: encoded.append(1))

    def go() -> Calibration:
        return calibrate(
            samples,
            model,
            costs=COSTS,
            mean_budget=30,
            signal=KeywordRule(),
            log=log,
            options=CalibrationOptions(grid=grid, setting=setting),
        )

    try:
        first = go()
    finally:
        handle.remove()
    assert len(encoded) == (9 if mechanism == "resolution" else 3), "once per size, or once for all budgets"
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines[:7]) + lines[7][:20])
    model.cache = EncodedCache()
    again = go()
    assert (again.run.answered, again.run.changed) == (11, 0)
    assert {k: o.prediction for k, o in again.run.outcomes.items()} == {
        k: o.prediction for k, o in first.run.outcomes.items()
    }
    assert again.policy.model_dump() == first.policy.model_dump()
    assert len({outcome.prediction for outcome in first.run.outcomes.values()}) > 3
    with pytest.raises(BadInput, match="model.length was 8 and is 5"):
        calibrate(
            samples,
            replace(model, max_new_tokens=5),
            costs=COSTS,
            mean_budget=30,
            signal=KeywordRule(),
            log=log,
            options=CalibrationOptions(grid=grid, setting=setting),
        )
