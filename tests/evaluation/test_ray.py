"""Workers on a Ray cluster give the outcomes of a run without one, survive what happens to them, and name what fails.

Run by ``make test-ray``; where Ray is not installed these are skipped, but for the arithmetic.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tests.commands.test_calibrate import stakes
from tests.evaluation.oracle import Oracle, write_samples
from tests.evaluation.runs import GRID, facts
from tests.evaluation.workers import Mortal, Picky, gone
from tests.models.tiny import image_processor, tiny, tokenizer

from stakes.data.sample import Sample
from stakes.errors import BadInput, StakesError, UnreadableImage
from stakes.evaluation import ray as ray_workers
from stakes.evaluation.fingerprint import Setting
from stakes.evaluation.outcome_log import read_outcomes
from stakes.evaluation.ray import TRIES, OverRay
from stakes.evaluation.runner import Run, RunOptions, run
from stakes.evaluation.samples import draw_samples, prepare_samples
from stakes.models.loading import copy_of, threads

ROOT = Path(__file__).parents[2]
needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="needs Ray: make test-ray")
# Ray leaves files and sockets to the collector, which pytest would blame on whichever test runs then.
# Its warnings about its own use of what it deprecates do not concern this project.
pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning", "ignore::DeprecationWarning:ray"
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Ray on two CPUs and little memory, which the runs find and leave running."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray

    ray.init(
        address="local", num_cpus=2, object_store_memory=80 << 20, include_dashboard=False, log_to_driver=False
    )  # fmt: skip
    yield ray
    ray.shutdown()


def go(
    samples: Sequence[Sample],
    log: Path,
    make: Callable[[], Any] | None = None,
    workers: int = 2,
    model: Any = None,
    **more: Any,
) -> Run:
    """Without ``make``, a run without Ray."""
    model = model or Oracle()
    over = None if make is None else OverRay(model, make, workers)
    assignments = [[budget] * len(samples) for budget in GRID]
    return run(model, samples, assignments, Setting(), log, RunOptions(batch_size=8, workers=over, **more))


@needs_ray
def test_workers_give_the_same_log_and_each_loads_its_model_once(
    cluster: Any, samples: list[Sample], tmp_path: Path
) -> None:
    plain = go(samples, tmp_path / "plain.jsonl")
    reported: list[tuple[int, int]] = []

    class Recorder:
        def start(self, total: int, done: int) -> None:
            reported.append((total, done))

        def advance(self, answers: int, tokens: int) -> None:
            reported.append((answers, tokens))

        def finish(self) -> None:
            reported.append((0, 0))

    make = partial(Mortal, diary=str(tmp_path / "diary"))
    over = go(samples, tmp_path / "ray.jsonl", make, progress=Recorder())
    assert facts(tmp_path / "ray.jsonl") == facts(tmp_path / "plain.jsonl")
    assert (list(over.outcomes), over.fingerprint, over.answered, over.changed) == (
        list(plain.outcomes), plain.fingerprint, 72, 0
    )  # fmt: skip
    assert reported[0] == (72, 0)
    assert [answers for answers, _ in reported[1:-1]] == [8] * 9, "batch by batch, as they are answered"
    loaded = (tmp_path / "diary").read_text().split("\n")[:-1]
    assert 1 <= len(loaded) == len(set(loaded)) <= 2, "once a process; a worker that is late may find nothing to do"
    assert cluster.is_initialized(), "Ray was there before, and stays"


@needs_ray
@pytest.mark.parametrize("ray_first", [True, False])
def test_either_goes_on_with_the_others_log(
    cluster: Any, samples: list[Sample], tmp_path: Path, ray_first: bool
) -> None:
    log, whole = tmp_path / "log.jsonl", tmp_path / "whole.jsonl"
    first, then = (Oracle, None) if ray_first else (None, Oracle)
    go(samples, whole)
    go(samples, log, first)
    log.write_bytes(log.read_bytes()[:9000])
    kept = len(read_outcomes(log))
    assert 8 < kept < 64
    ran = go(samples, log, then)
    assert (ran.answered, ran.changed) == (72 - kept, 0)
    assert facts(log) == facts(whole)
    assert go(samples, log, gone).answered == 0, "nothing is left to ask, so nobody is"


@needs_ray
def test_a_worker_that_dies_is_started_again_and_nothing_is_lost_or_doubled(
    cluster: Any, samples: list[Sample], tmp_path: Path
) -> None:
    diary = tmp_path / "diary"
    go(samples, tmp_path / "plain.jsonl")
    over = go(samples, tmp_path / "ray.jsonl", partial(Mortal, diary=str(diary), word="word3x", lives=2))
    assert diary.read_text().count("died") == 2
    assert diary.read_text().count("loaded") >= 4
    assert (over.answered, over.changed) == (72, 0)
    assert facts(tmp_path / "ray.jsonl") == facts(tmp_path / "plain.jsonl")


@needs_ray
def test_what_kills_every_worker_is_named_and_not_tried_for_ever(
    cluster: Any, samples: list[Sample], tmp_path: Path
) -> None:
    diary, log = tmp_path / "diary", tmp_path / "ray.jsonl"
    with pytest.raises(StakesError, match=f"samples 'p[0-5]q0' to 'p[2-3]q3': {TRIES} workers died over them"):
        go(samples, log, partial(Mortal, diary=str(diary), word="word3x", lives=99))
    assert TRIES <= diary.read_text().count("died") <= 3 * TRIES, "the page is in three chunks"
    assert all(outcome.document not in ("page2", "page3") for outcome in read_outcomes(log))


@needs_ray
def test_an_error_comes_back_as_itself_and_names_the_sample(
    cluster: Any, samples: list[Sample], tmp_path: Path
) -> None:
    log = tmp_path / "log.jsonl"
    data = (tmp_path / "page1.png").read_bytes()[:600]
    torn = [replace(one, digest="torn", load=lambda: data) if one.document == "page1" else one for one in samples]
    with pytest.raises(UnreadableImage, match="^sample 'p1q0': the image cannot be decoded"):
        go(torn, log, Picky)
    assert all(outcome.document not in ("page0", "page1") for outcome in read_outcomes(log))
    kept = (tmp_path / "page4.png").read_bytes()
    (tmp_path / "page4.png").unlink()
    with pytest.raises(UnreadableImage, match=r"^sample 'p4q0': no image can be read at .*page4.png"):
        go(samples, tmp_path / "second.jsonl", Picky)
    (tmp_path / "page4.png").write_bytes(kept)
    with pytest.raises(BadInput, match="^no model at './gone': it is not a folder$"):
        go(samples, tmp_path / "third.jsonl", gone)


@needs_ray
def test_a_worker_with_another_model_is_refused(cluster: Any, samples: list[Sample], tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="a worker's model is not the run's: name differ"):
        go(samples, tmp_path / "log.jsonl", partial(Oracle, name="another"))
    assert read_outcomes(tmp_path / "log.jsonl") == []


@needs_ray
def test_drawn_pages_travel_by_their_seed_and_paths_mean_what_they_mean_here(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = draw_samples("shapes", "calibration", per_tier=2)
    assert max(len(ray_workers._packed(pages, [((i, 32),)], Setting())) for i in range(len(pages))) < 5000
    monkeypatch.chdir(tmp_path)
    files = prepare_samples(write_samples(Path(), pages=1), "")
    both = [*files, *pages]
    grid = [[32] * len(both)]
    plain = run(Oracle(), both, grid, Setting(), "plain.jsonl")
    over = run(Oracle(), both, grid, Setting(), "ray.jsonl", RunOptions(workers=OverRay(Oracle(), Oracle, 1)))
    assert over.outcomes == plain.outcomes


def test_an_image_is_sent_once_per_chunk(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="needs Ray: make test-ray")
    data = os.urandom(100_000)
    samples = prepare_samples(write_samples(tmp_path, pages=1), tmp_path)
    samples = [replace(one, load=partial(bytes, bytes(bytearray(data)))) for one in samples]
    chunk = [tuple((i, budget) for i in range(4)) for budget in GRID]
    assert len(ray_workers._packed(samples, chunk, Setting())) < 110_000


DRIVER = """
import os, sys
from pathlib import Path
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
import ray
from functools import partial
from tests.evaluation.oracle import Oracle, write_samples
from stakes.evaluation.samples import prepare_samples
from stakes.evaluation.fingerprint import Setting
from stakes.evaluation.runner import RunOptions, run
from stakes.evaluation.ray import OverRay
folder = Path(sys.argv[1])
ray.init(address="local", num_cpus=2, object_store_memory=80 << 20, include_dashboard=False, log_to_driver=False)
samples = prepare_samples(write_samples(folder, pages=6), folder)
over = OverRay(Oracle(), partial(Oracle, seconds=0.4), 2)
run(Oracle(), samples, [[b] * len(samples) for b in (32, 96, 304)], Setting(), folder / "log.jsonl",
    RunOptions(batch_size=8, workers=over))
"""


@needs_ray
def test_a_driver_killed_outright_leaves_a_log_that_resumes_with_and_without_ray(
    cluster: Any, samples: list[Sample], tmp_path: Path
) -> None:
    go(samples, tmp_path / "whole.jsonl")
    log = tmp_path / "log.jsonl"
    with (tmp_path / "said").open("wb") as said:
        driver = subprocess.Popen([sys.executable, "-c", DRIVER, str(tmp_path)], cwd=ROOT, stderr=said)
        until = time.monotonic() + 120
        while time.monotonic() < until and (not log.exists() or log.read_bytes().count(b"\n") < 16):
            assert driver.poll() is None, (tmp_path / "said").read_text()
            time.sleep(0.02)
        driver.kill()
        driver.wait()
    kept = len(read_outcomes(log))
    assert 16 <= kept < 72
    (tmp_path / "again.jsonl").write_bytes(log.read_bytes())
    for path, make in ((log, None), (tmp_path / "again.jsonl", Oracle)):
        assert go(samples, path, make).answered == 72 - kept
        assert facts(path) == facts(tmp_path / "whole.jsonl")


@needs_ray
def test_the_commands_write_the_same_policy_and_the_same_comparison(cluster: Any, tmp_path: Path) -> None:
    model = tiny("qwen2_5_vl")
    model.model.save_pretrained(tmp_path / "vlm")
    tokenizer().save_pretrained(tmp_path / "vlm")
    image_processor("qwen2_5_vl").save_pretrained(tmp_path / "vlm")
    (tmp_path / "vlm" / "chat_template.jinja").write_text(model.processor.template, encoding="utf-8")
    for how in ("plain", "ray"):
        over = ("--ray", "--ray-workers", 2) if how == "ray" else ()
        policy = tmp_path / f"{how}.json"
        pages = ("--pages", "shapes", "--per-tier", 3, "--model", tmp_path / "vlm", *over)
        deletion = ("--mechanism", "deletion", "--mean-budget", 30, "--grid", "12,30,48")
        stakes("calibrate", *pages, *deletion, "-o", policy)
        stakes("evaluate", *pages, "--policy", policy)
    assert (tmp_path / "ray.json").read_bytes() == (tmp_path / "plain.json").read_bytes()
    for log in ("outcomes", "evaluation"):
        assert facts(tmp_path / f"ray.{log}.jsonl") == facts(tmp_path / f"plain.{log}.jsonl")
    assert len(facts(tmp_path / "ray.outcomes.jsonl")) == 18


def test_every_worker_has_its_share_of_the_cluster() -> None:
    share = ray_workers._share
    mine = threads()
    assert share({"CPU": 4.0 * mine}, None, gpu=False) == (4, {"num_cpus": float(mine)})
    assert share({"CPU": 0.5 * mine}, None, gpu=False)[0] == 1
    assert share({"CPU": 8.0}, 3, gpu=False) == (3, {"num_cpus": 2.0})
    assert share({"CPU": 2.0}, 4, gpu=False) == (4, {"num_cpus": 0.5})
    assert share({"CPU": 16.0, "GPU": 4.0}, None, gpu=True) == (4, {"num_cpus": 1.0, "num_gpus": 1.0})
    assert share({"CPU": 16.0, "GPU": 2.0}, 3, gpu=True) == (3, {"num_cpus": 1.0, "num_gpus": 0.5})
    assert share({"CPU": 2.0, "GPU": 4.0}, None, gpu=True) == (4, {"num_cpus": 0.5, "num_gpus": 1.0})
    with pytest.raises(BadInput, match="the Ray cluster has none"):
        share({"CPU": 2.0}, None, gpu=True)


def test_what_ray_cannot_do_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadInput, match="is an address, whose server already gets many questions at once"):
        copy_of(Oracle(), "http://127.0.0.1:8000/v1")
    with monkeypatch.context() as without:
        without.setattr(ray_workers, "find_spec", lambda name: None)
        with pytest.raises(BadInput, match="pip install 'stakes"):
            OverRay(Oracle(), Oracle)
    with pytest.raises(BadInput, match="at least one worker is needed, not 0"):
        OverRay(Oracle(), Oracle, 0)
