"""A run answers everything once, survives what happens to it, and never mixes two experiments."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from tests.evaluation.oracle import Oracle, difficulty, page, write_samples

from stakes.errors import BadInput, InfeasibleBudget, LedgerBreach, StakesError, UnreadableImage
from stakes.evaluation.asked import Asked, ask, ask_pages, digest
from stakes.evaluation.fingerprint import Setting
from stakes.evaluation.outcomes import OutcomeLog, read_outcomes
from stakes.evaluation.runner import Run, run
from stakes.models.base import Answer, Request

ROOT = Path(__file__).parents[2]
GRID = (32, 96, 304)


@pytest.fixture
def asked(tmp_path: Path) -> list[Asked]:
    return ask(write_samples(tmp_path, pages=6), tmp_path)


def go(model: Any, asked: Sequence[Asked], log: Path, grid: Sequence[int] = GRID, **more: Any) -> Run:
    setting = more.pop("setting", Setting())
    return run(model, asked, [[budget] * len(asked) for budget in grid], setting, log, batch_size=8, **more)


def facts(log: Path) -> list[tuple[Any, ...]]:
    """What a log says, whatever the order and the time taken; a line twice stays twice."""
    return sorted(tuple(replace(outcome, ms=0.0).__dict__.items()) for outcome in read_outcomes(log))


def test_every_pair_is_answered_once_graded_and_logged(asked: list[Asked], tmp_path: Path) -> None:
    model, log = Oracle(), tmp_path / "log.jsonl"
    ran = go(model, asked, log)
    assert len(read_outcomes(log)) == ran.answered == 24 * 3
    assert sorted(map(repr, read_outcomes(log))) == sorted(map(repr, ran.outcomes.values()))
    assert list(ran.outcomes) == [(one.id, budget) for one in asked for budget in GRID]
    right = 0
    for one in asked:
        for budget in GRID:
            outcome = ran.outcomes[one.id, budget]
            reads = outcome.realised >= difficulty(Path(tmp_path, f"{one.document}.png").read_bytes(), one.question)
            assert (outcome.correct, outcome.score) == (reads, float(reads))
            assert (outcome.native, outcome.realised <= budget, outcome.run) == (972, True, ran.fingerprint.run)
            right += reads
    assert 5 < right < 67, "a test on answers that are all right or all wrong says nothing"


def test_a_finished_run_asks_nothing_and_an_image_is_read_once_a_block(asked: list[Asked], tmp_path: Path) -> None:
    log, reads = tmp_path / "log.jsonl", list[str]()

    def counted(one: Asked) -> Asked:
        def load() -> Any:
            reads.append(one.digest)
            return one.load()

        return replace(one, load=load)

    watched = [counted(one) for one in asked]
    go(Oracle(), watched, log)
    assert len(reads) == 6
    again = Oracle()
    ran = go(again, watched, log)
    assert (ran.answered, again.batches, len(reads), len(ran.outcomes)) == (0, [], 6, 72)


def test_a_log_cut_anywhere_resumes_to_the_same_outcomes_and_redoes_the_cut_batch_whole(
    asked: list[Asked], tmp_path: Path
) -> None:
    log = tmp_path / "log.jsonl"
    first = Oracle()
    go(first, asked, log)
    whole, wanted = log.read_bytes(), facts(log)
    lines = [at + 1 for at, byte in enumerate(whole) if byte == 10]
    partial = 0
    for cut in range(0, len(whole), 997):
        log.write_bytes(whole[:cut])
        kept = sum(end <= cut for end in lines)
        again = Oracle()
        ran = go(again, asked, log)
        assert (ran.answered, ran.changed) == (72 - kept, 0)
        assert facts(log) == wanted
        assert again.batches == first.batches[kept // 8 :], "whole batches, the very ones of the first run"
        partial += kept % 8 > 0
    assert partial > 5


def test_the_first_answer_counts_and_a_model_that_changes_its_mind_is_told(asked: list[Asked], tmp_path: Path) -> None:
    class Moody(Oracle):
        def _answer(self, request: Request) -> Answer:
            return replace(super()._answer(request), text=f"mood {len(self.batches)} {self.seconds}")

    log = tmp_path / "log.jsonl"
    go(Moody(), asked, log)
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines[:5]))
    ran = go(Moody(seconds=0.001), asked, log)
    assert (ran.changed, ran.answered) == (5, 67)
    assert log.read_bytes().splitlines(keepends=True)[:5] == lines[:5]


def test_a_grid_that_grows_asks_only_what_is_new(asked: list[Asked], tmp_path: Path) -> None:
    log, model = tmp_path / "log.jsonl", Oracle()
    go(Oracle(), asked, log)
    ran = go(model, asked, log, (32, 64, 304))
    assert {request.budget for batch in model.batches for request in batch} == {64}
    assert ran.answered == 24
    assert {budget for _, budget in ran.outcomes} == {32, 64, 304}


def other(asked: list[Asked], **change: Any) -> list[Asked]:
    return [replace(asked[0], **change), *asked[1:]]


MIXES: list[tuple[str, Callable[[list[Asked]], tuple[Any, list[Asked], Setting]]]] = [
    ("model.name was oracle and is another", lambda a: (Oracle(name="another"), a, Setting())),
    ("images was", lambda a: (Oracle(), other(a, digest="0" * 32), Setting())),
    ("questions was", lambda a: (Oracle(), other(a, question="What?"), Setting())),
    ("answers was", lambda a: (Oracle(), other(a, answers=("x",)), Setting())),
    ("tiers was", lambda a: (Oracle(), other(a, tier="low"), Setting())),
    ("samples was 24 and is 23", lambda a: (Oracle(), a[1:], Setting())),
    ("metric was relaxed and is anls", lambda a: (Oracle(), a, Setting(metric="anls"))),
    ("mechanism was resolution and is deletion, selector", lambda a: (Oracle(), a, Setting("deletion"))),
]


@pytest.mark.parametrize(("says", "change"), MIXES)
def test_another_experiment_is_refused_and_what_differs_is_named(
    says: str, change: Any, asked: list[Asked], tmp_path: Path
) -> None:
    log = tmp_path / "log.jsonl"
    go(Oracle(), asked, log)
    before = log.read_bytes(), (tmp_path / "log.jsonl.meta.json").read_bytes()
    model, others, setting = change(asked)
    with pytest.raises(BadInput, match=f"belongs to another experiment: .*{says}"):
        go(model, others, log, setting=setting)
    assert model.batches == []
    assert before == (log.read_bytes(), (tmp_path / "log.jsonl.meta.json").read_bytes())


def test_two_selectors_are_two_experiments(asked: list[Asked], tmp_path: Path) -> None:
    go(Oracle(), asked, tmp_path / "log.jsonl", setting=Setting("deletion", "random"))
    with pytest.raises(BadInput, match="selector was random and is redundancy"):
        go(Oracle(), asked, tmp_path / "log.jsonl", setting=Setting("deletion"))


def test_the_readable_parts_may_be_lost(asked: list[Asked], tmp_path: Path) -> None:
    log, meta = tmp_path / "log.jsonl", tmp_path / "log.jsonl.meta.json"
    go(Oracle(), asked, log)
    parts = json.loads(meta.read_text())
    meta.unlink()
    assert go(Oracle(), asked, log).answered == 0
    assert json.loads(meta.read_text()) == parts
    meta.unlink()
    with pytest.raises(BadInput, match="what differs is not known without log.jsonl.meta.json"):
        go(Oracle(name="another"), asked, log)


def test_a_budget_above_native_is_refused_before_anything_is_answered(asked: list[Asked], tmp_path: Path) -> None:
    page(1, 280, 280).save(tmp_path / "small.png")
    small = replace(asked[7], size=(280, 280), digest=digest((tmp_path / "small.png").read_bytes()))
    model, log = Oracle(), tmp_path / "log.jsonl"
    with pytest.raises(LedgerBreach, match="sample 'p1q3': a budget of 304 exceeds the image's 100 native tokens"):
        go(model, [*asked[:7], small, *asked[8:]], log)
    with pytest.raises(
        LedgerBreach, match="sample 'p0q0'.*24 of 24 samples are too small.; give budgets of at most 972"
    ):
        go(model, asked, log, (32, 999))
    with pytest.raises(BadInput, match="at least one visual token, not 0"):
        go(model, asked, log, (0, 32))
    with pytest.raises(InfeasibleBudget, match="sample 'p0q0'.*smallest feasible budget"):
        go(model, asked, log, (1, 32))
    with pytest.raises(BadInput, match="sample 'p0q0'.*metric vqa"):
        go(model, asked, log, setting=Setting(metric="vqa"))
    assert not model.batches
    assert not log.exists()


def test_an_image_that_goes_away_or_changes_stops_the_run_by_name(asked: list[Asked], tmp_path: Path) -> None:
    victim, log = tmp_path / "page3.png", tmp_path / "log.jsonl"
    kept = victim.read_bytes()

    class Vandal(Oracle):
        put: bytes | None = None

        def answer(self, requests: Sequence[Request]) -> list[Answer]:
            if len(self.batches) == 1:
                victim.unlink() if self.put is None else victim.write_bytes(self.put)
            return super().answer(requests)

    with pytest.raises(UnreadableImage, match=r"sample 'p3q0': no image can be read at .*page3.png"):
        go(Vandal(), asked, log)
    logged = len(read_outcomes(log))
    assert logged == 24, "the block before is safe, and of the one with the image nothing was counted"
    victim.write_bytes(kept)
    vandal = Vandal()
    vandal.put = (tmp_path / "page4.png").read_bytes()
    with pytest.raises(UnreadableImage, match="sample 'p3q0': its image changed since the run began"):
        go(vandal, asked, tmp_path / "other.jsonl")
    victim.write_bytes(kept)
    assert go(Oracle(), asked, log).answered == 72 - logged


def test_an_image_that_cannot_be_decoded_is_named(asked: list[Asked], tmp_path: Path) -> None:
    from stakes.vision.decode import open_image

    class Decoder(Oracle):
        def _answer(self, request: Request) -> Answer:
            open_image(request.image)
            return super()._answer(request)

    data = (tmp_path / "page1.png").read_bytes()[:600]
    torn = [replace(one, digest="torn", load=lambda: data) if one.document == "page1" else one for one in asked]
    with pytest.raises(UnreadableImage, match="sample 'p1q0': the image cannot be decoded"):
        go(Decoder(), torn, tmp_path / "log.jsonl")


LIES: list[dict[str, Any]] = [
    {"realised_tokens": 999},
    {"realised_tokens": 0},
    {"budget": 31},
    {"native_tokens": 20},
]


@pytest.mark.parametrize("lie", LIES)
def test_an_answer_that_spent_something_else_is_not_logged(
    lie: dict[str, Any], asked: list[Asked], tmp_path: Path
) -> None:
    class Liar(Oracle):
        def _answer(self, request: Request) -> Answer:
            return replace(super()._answer(request), **lie)

    with pytest.raises(LedgerBreach, match="sample 'p0q0'"):
        go(Liar(), asked, tmp_path / "log.jsonl")
    assert read_outcomes(tmp_path / "log.jsonl") == []


def test_deletion_is_exact_and_every_request_has_its_answer(asked: list[Asked], tmp_path: Path) -> None:
    class Short(Oracle):
        def _answer(self, request: Request) -> Answer:
            return replace(super()._answer(request), realised_tokens=(request.budget or 0) - 1)

    class Mute(Oracle):
        def answer(self, requests: Sequence[Request]) -> list[Answer]:
            return super().answer(requests)[1:]

    with pytest.raises(LedgerBreach, match="31 tokens were realised"):
        go(Short(), asked, tmp_path / "log.jsonl", setting=Setting("deletion"))
    with pytest.raises(LedgerBreach, match="7 answers to 8 requests"):
        go(Mute(), asked, tmp_path / "log.jsonl")


def test_one_process_writes_a_log_at_a_time(asked: list[Asked], tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    with OutcomeLog(log), pytest.raises(BadInput, match="another process is writing"):
        go(Oracle(), asked, log)
    assert go(Oracle(), asked, log).answered == 72


FULL_DISK = """
import resource, sys
from pathlib import Path
from tests.evaluation.oracle import Oracle, write_samples
from stakes.errors import StakesError
from stakes.evaluation.asked import ask
from stakes.evaluation.fingerprint import Setting
from stakes.evaluation.runner import run
folder = Path(sys.argv[1])
asked = ask(write_samples(folder, pages=6), folder)
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
try:
    run(Oracle(), asked, [[b] * len(asked) for b in (32, 96, 304)], Setting(), folder / "log.jsonl", batch_size=8)
except StakesError as error:
    print(error)
"""


def test_a_full_disk_is_named_and_loses_nothing_that_was_answered(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FULL_DISK, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
    assert "log.jsonl cannot be written (File too large); what it holds is safe" in done.stdout
    log = tmp_path / "log.jsonl"
    logged = read_outcomes(log)
    assert log.read_bytes().endswith(b"\n"), "the batch that did not fit was taken back"
    assert 8 <= len(logged) < 72
    assert len(logged) % 8 == 0
    asked = ask(write_samples(tmp_path, pages=6), tmp_path)
    assert go(Oracle(), asked, log).answered == 72 - len(logged)
    go(Oracle(), asked, tmp_path / "calm.jsonl")
    assert facts(log) == facts(tmp_path / "calm.jsonl")


def test_a_place_that_cannot_be_written_is_named(asked: list[Asked], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StakesError, match="cannot be opened for writing"):
        go(Oracle(), asked, tmp_path / "file" / "log.jsonl")


def test_synthetic_pages_are_drawn_again_when_their_turn_comes() -> None:
    asked = ask_pages("shapes", "calibration", per_tier=3)
    assert [one.tier for one in asked].count("high") == 3
    assert len({one.id for one in asked}) == len(asked) == 6
    for one in asked:
        image: Any = one.load()
        assert (digest(image.tobytes()), image.size) == (one.digest, one.size)


def test_what_cannot_be_asked_is_named(tmp_path: Path) -> None:
    samples = write_samples(tmp_path, pages=1)
    with pytest.raises(BadInput, match="sample 'p0q1' has no tier; label it"):
        ask([samples[0], replace(samples[1], tier=None)], tmp_path)
    with pytest.raises(UnreadableImage, match="sample 'p0q0': no image can be read at .*gone.png"):
        ask([replace(samples[0], image="gone.png")], tmp_path)
    with pytest.raises(BadInput, match="two samples are called 'p0q0'"):
        go(Oracle(), ask([samples[0], samples[0]], tmp_path), tmp_path / "log.jsonl")
    assert asdict(Setting("deletion")) == {"mechanism": "deletion", "selector": "redundancy", "metric": "relaxed"}
    wrong: list[tuple[Any, Any, str, str]] = [
        ("zero-mask", None, "relaxed", "resolution or deletion"),
        ("resolution", None, "bleu", "metric 'bleu'"),
        ("resolution", "random", "relaxed", "deletion with it"),
        ("deletion", "magic", "relaxed", "no selector is called 'magic'"),
    ]
    for mechanism, selector, metric, says in wrong:
        with pytest.raises(BadInput, match=says):
            Setting(mechanism, selector, metric)
