"""A run answers everything once, goes on where it stopped, and never mixes two experiments."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from tests.evaluation.oracle import Oracle, difficulty, page, write_samples
from tests.evaluation.runs import GRID, facts, go

from stakes.data.sample import Sample
from stakes.errors import BadInput, InfeasibleBudget, LedgerBreach, UnreadableImage
from stakes.evaluation.fingerprint import Setting
from stakes.evaluation.outcome_log import read_outcomes
from stakes.evaluation.samples import digest, draw_samples, prepare_samples
from stakes.models.base import Answer, Request


def test_every_pair_is_answered_once_graded_and_logged(samples: list[Sample], tmp_path: Path) -> None:
    model, log = Oracle(), tmp_path / "log.jsonl"
    ran = go(model, samples, log)
    assert len(read_outcomes(log)) == ran.answered == 24 * 3
    assert sorted(map(repr, read_outcomes(log))) == sorted(map(repr, ran.outcomes.values()))
    assert list(ran.outcomes) == [(one.id, budget) for one in samples for budget in GRID]
    right = 0
    for one in samples:
        for budget in GRID:
            outcome = ran.outcomes[one.id, budget]
            reads = outcome.realised >= difficulty(Path(tmp_path, f"{one.document}.png").read_bytes(), one.question)
            assert (outcome.correct, outcome.score) == (reads, float(reads))
            assert (outcome.native, outcome.realised <= budget, outcome.run) == (972, True, ran.fingerprint.run)
            right += reads
    assert 5 < right < 67, "a test on answers that are all right or all wrong says nothing"


def test_a_finished_run_asks_nothing_and_an_image_is_read_once_a_block(samples: list[Sample], tmp_path: Path) -> None:
    log, reads = tmp_path / "log.jsonl", list[str]()

    def counted(one: Sample) -> Sample:
        def load() -> Any:
            reads.append(one.digest)
            return one.load()

        return replace(one, load=load)

    watched = [counted(one) for one in samples]
    go(Oracle(), watched, log)
    assert len(reads) == 6
    again = Oracle()
    ran = go(again, watched, log)
    assert (ran.answered, again.batches, len(reads), len(ran.outcomes)) == (0, [], 6, 72)


def test_a_log_cut_anywhere_resumes_to_the_same_outcomes_and_redoes_the_cut_batch_whole(
    samples: list[Sample], tmp_path: Path
) -> None:
    log = tmp_path / "log.jsonl"
    first = Oracle()
    go(first, samples, log)
    whole, wanted = log.read_bytes(), facts(log)
    lines = [at + 1 for at, byte in enumerate(whole) if byte == 10]
    partial = 0
    for cut in range(0, len(whole), 997):
        log.write_bytes(whole[:cut])
        kept = sum(end <= cut for end in lines)
        again = Oracle()
        ran = go(again, samples, log)
        assert (ran.answered, ran.changed) == (72 - kept, 0)
        assert facts(log) == wanted
        assert again.batches == first.batches[kept // 8 :], "whole batches, the very ones of the first run"
        partial += kept % 8 > 0
    assert partial > 5


def test_the_first_answer_counts_and_changed_answers_are_counted(samples: list[Sample], tmp_path: Path) -> None:
    class Moody(Oracle):
        def _answer(self, request: Request) -> Answer:
            return replace(super()._answer(request), text=f"mood {len(self.batches)} {self.seconds}")

    log = tmp_path / "log.jsonl"
    go(Moody(), samples, log)
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines[:5]))
    ran = go(Moody(seconds=0.001), samples, log)
    assert (ran.changed, ran.answered) == (5, 67)
    assert log.read_bytes().splitlines(keepends=True)[:5] == lines[:5]


def test_a_grid_that_grows_asks_only_what_is_new(samples: list[Sample], tmp_path: Path) -> None:
    log, model = tmp_path / "log.jsonl", Oracle()
    go(Oracle(), samples, log)
    ran = go(model, samples, log, (32, 64, 304))
    assert {request.budget for batch in model.batches for request in batch} == {64}
    assert ran.answered == 24
    assert {budget for _, budget in ran.outcomes} == {32, 64, 304}


def other(samples: list[Sample], **change: Any) -> list[Sample]:
    return [replace(samples[0], **change), *samples[1:]]


MIXES: list[tuple[str, Callable[[list[Sample]], tuple[Any, list[Sample], Setting]]]] = [
    (
        "belongs to another experiment: model.name was oracle and is another; give --log",
        lambda a: (Oracle(name="another"), a, Setting()),
    ),
    (
        r"other images, or with whole images where margins are cut off now \(--no-trim\); give",
        lambda a: (Oracle(), other(a, digest="0" * 32), Setting()),
    ),
    (
        "holds answers to 24 other questions than these 24; give --log another name, or delete it",
        lambda a: (Oracle(), other(a, question="What?"), Setting()),
    ),
    ("to these questions with other answers; give", lambda a: (Oracle(), other(a, answers=("x",)), Setting())),
    ("holds answers to 24 other questions than these 23; give", lambda a: (Oracle(), a[1:], Setting())),
    ("belongs to another experiment: metric was value and is anls", lambda a: (Oracle(), a, Setting(metric="anls"))),
    ("mechanism was resolution and is deletion, selector", lambda a: (Oracle(), a, Setting("deletion"))),
]


@pytest.mark.parametrize(("says", "change"), MIXES)
def test_another_experiment_is_refused_and_what_differs_is_named(
    says: str, change: Any, samples: list[Sample], tmp_path: Path
) -> None:
    log = tmp_path / "log.jsonl"
    go(Oracle(), samples, log)
    before = log.read_bytes(), (tmp_path / "log.jsonl.meta.json").read_bytes()
    model, others, setting = change(samples)
    with pytest.raises(BadInput, match=f"log.jsonl .*{says}"):
        go(model, others, log, setting=setting)
    assert model.batches == []
    assert before == (log.read_bytes(), (tmp_path / "log.jsonl.meta.json").read_bytes())


def test_other_tiers_keep_every_answer_and_come_to_what_a_fresh_run_gives(
    samples: list[Sample], tmp_path: Path
) -> None:
    """Whole, cut short, and back again: the log is the one that a run with those tiers writes."""
    swapped = [replace(one, tier="low" if one.tier == "high" else "high") for one in samples]
    fresh = go(Oracle(), swapped, tmp_path / "fresh.jsonl")
    log = tmp_path / "log.jsonl"
    go(Oracle(), samples, log)
    whole = facts(log)
    model = Oracle()
    ran = go(model, swapped, log)
    assert (model.batches, ran.answered, ran.retiered, ran.fingerprint) == ([], 0, 24, fresh.fingerprint)
    assert facts(log) == facts(tmp_path / "fresh.jsonl")
    assert go(Oracle(), samples, log).retiered == 24
    assert facts(log) == whole
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:29]))
    assert (ran := go(Oracle(), swapped, log)).answered == 72 - 29
    assert facts(log) == facts(tmp_path / "fresh.jsonl")
    assert (ran.retiered, go(Oracle(), swapped, log).retiered) == (len({o.sample for o in read_outcomes(log)[:29]}), 0)


def test_two_selectors_are_two_experiments(samples: list[Sample], tmp_path: Path) -> None:
    go(Oracle(), samples, tmp_path / "log.jsonl", setting=Setting("deletion", "random"))
    with pytest.raises(BadInput, match="selector was random and is redundancy"):
        go(Oracle(), samples, tmp_path / "log.jsonl", setting=Setting("deletion"))


def test_the_readable_parts_may_be_lost(samples: list[Sample], tmp_path: Path) -> None:
    log, meta = tmp_path / "log.jsonl", tmp_path / "log.jsonl.meta.json"
    go(Oracle(), samples, log)
    parts = json.loads(meta.read_text())
    meta.unlink()
    assert go(Oracle(), samples, log).answered == 0
    assert json.loads(meta.read_text()) == parts
    meta.unlink()
    with pytest.raises(BadInput, match="what differs is not known without log.jsonl.meta.json"):
        go(Oracle(name="another"), samples, log)


def test_a_budget_above_native_is_refused_before_anything_is_answered(samples: list[Sample], tmp_path: Path) -> None:
    page(1, 280, 280).save(tmp_path / "small.png")
    small = replace(samples[7], size=(280, 280), digest=digest((tmp_path / "small.png").read_bytes()))
    model, log = Oracle(), tmp_path / "log.jsonl"
    with pytest.raises(LedgerBreach, match="sample 'p1q3': a budget of 304 exceeds the image's 100 native tokens"):
        go(model, [*samples[:7], small, *samples[8:]], log)
    with pytest.raises(
        LedgerBreach, match="sample 'p0q0'.*24 of 24 samples are too small.; give budgets of at most 972"
    ):
        go(model, samples, log, (32, 999))
    with pytest.raises(BadInput, match="at least one visual token, not 0"):
        go(model, samples, log, (0, 32))
    with pytest.raises(InfeasibleBudget, match="sample 'p0q0'.*smallest feasible budget"):
        go(model, samples, log, (1, 32))
    with pytest.raises(BadInput, match="sample 'p0q0'.*metric vqa"):
        go(model, samples, log, setting=Setting(metric="vqa"))
    assert not model.batches
    assert not log.exists()


def test_synthetic_pages_are_drawn_again_when_their_turn_comes() -> None:
    samples = draw_samples("shapes", "calibration", per_tier=3)
    assert [one.tier for one in samples].count("high") == 3
    assert len({one.id for one in samples}) == len(samples) == 6
    for one in samples:
        image: Any = one.load()
        assert (digest(image.tobytes()), image.size) == (one.digest, one.size)


def test_what_cannot_be_asked_is_named(tmp_path: Path) -> None:
    samples = write_samples(tmp_path, pages=1)
    with pytest.raises(BadInput, match="sample 'p0q1' has no tier; label it"):
        prepare_samples([samples[0], replace(samples[1], tier="")], tmp_path)
    with pytest.raises(UnreadableImage, match="sample 'p0q0': no image can be read at .*gone.png"):
        prepare_samples([replace(samples[0], image="gone.png")], tmp_path)
    with pytest.raises(BadInput, match="two samples are called 'p0q0'"):
        go(Oracle(), prepare_samples([samples[0], samples[0]], tmp_path), tmp_path / "log.jsonl")
    made = asdict(Setting("deletion"))
    assert made == {"mechanism": "deletion", "selector": "redundancy", "metric": "value", "zero_mask": False}
    wrong: list[tuple[Any, Any, str, str]] = [
        ("zero-mask", None, "relaxed", "resolution or deletion"),
        ("resolution", None, "bleu", "metric 'bleu'"),
        ("resolution", "random", "relaxed", "deletion with it"),
        ("deletion", "magic", "relaxed", "no selector is called 'magic'"),
    ]
    for mechanism, selector, metric, says in wrong:
        with pytest.raises(BadInput, match=says):
            Setting(mechanism, selector, metric)
