"""What goes wrong in a run is named, and nothing that was answered is lost or made up."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.evaluation.oracle import Oracle, write_samples
from tests.evaluation.runs import facts, go

from stakes.data.sample import Sample
from stakes.errors import BadInput, LedgerBreach, StakesError, UnreadableImage
from stakes.evaluation.fingerprint import Setting
from stakes.evaluation.outcome_log import OutcomeLog, read_outcomes
from stakes.evaluation.samples import prepare_samples
from stakes.models.base import Answer, Request

ROOT = Path(__file__).parents[2]


def test_an_image_that_goes_away_or_changes_stops_the_run_by_name(samples: list[Sample], tmp_path: Path) -> None:
    victim, log = tmp_path / "page3.png", tmp_path / "log.jsonl"
    kept = victim.read_bytes()

    class Vandal(Oracle):
        put: bytes | None = None

        def answer(self, requests: Sequence[Request]) -> list[Answer]:
            if len(self.batches) == 1:
                victim.unlink() if self.put is None else victim.write_bytes(self.put)
            return super().answer(requests)

    with pytest.raises(UnreadableImage, match=r"sample 'p3q0': no image can be read at .*page3.png"):
        go(Vandal(), samples, log)
    logged = len(read_outcomes(log))
    assert logged == 24, "the block before is safe, and of the one with the image nothing was counted"
    victim.write_bytes(kept)
    vandal = Vandal()
    vandal.put = (tmp_path / "page4.png").read_bytes()
    with pytest.raises(UnreadableImage, match="sample 'p3q0': its image changed since the run began"):
        go(vandal, samples, tmp_path / "other.jsonl")
    victim.write_bytes(kept)
    assert go(Oracle(), samples, log).answered == 72 - logged


def test_an_image_that_cannot_be_decoded_is_named(samples: list[Sample], tmp_path: Path) -> None:
    from stakes.vision.image.decode import open_image

    class Decoder(Oracle):
        def _answer(self, request: Request) -> Answer:
            open_image(request.image)
            return super()._answer(request)

    data = (tmp_path / "page1.png").read_bytes()[:600]
    torn = [replace(one, digest="torn", load=lambda: data) if one.document == "page1" else one for one in samples]
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
    lie: dict[str, Any], samples: list[Sample], tmp_path: Path
) -> None:
    class Liar(Oracle):
        def _answer(self, request: Request) -> Answer:
            return replace(super()._answer(request), **lie)

    with pytest.raises(LedgerBreach, match="sample 'p0q0'"):
        go(Liar(), samples, tmp_path / "log.jsonl")
    assert read_outcomes(tmp_path / "log.jsonl") == []


def test_deletion_is_exact_and_every_request_has_its_answer(samples: list[Sample], tmp_path: Path) -> None:
    class Short(Oracle):
        def _answer(self, request: Request) -> Answer:
            return replace(super()._answer(request), realised_tokens=(request.budget or 0) - 1)

    class Mute(Oracle):
        def answer(self, requests: Sequence[Request]) -> list[Answer]:
            return super().answer(requests)[1:]

    with pytest.raises(LedgerBreach, match="31 tokens were realised"):
        go(Short(), samples, tmp_path / "log.jsonl", setting=Setting("deletion"))
    with pytest.raises(LedgerBreach, match="7 answers to 8 requests"):
        go(Mute(), samples, tmp_path / "log.jsonl")


def test_one_process_writes_a_log_at_a_time(samples: list[Sample], tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    with OutcomeLog(log), pytest.raises(BadInput, match="another process is writing"):
        go(Oracle(), samples, log)
    assert go(Oracle(), samples, log).answered == 72


FULL_DISK = """
import resource, sys
from pathlib import Path
from tests.evaluation.oracle import Oracle, write_samples
from stakes.errors import StakesError
from stakes.evaluation.samples import prepare_samples
from stakes.evaluation.fingerprint import Setting
from stakes.evaluation.runner import RunOptions, run
folder = Path(sys.argv[1])
samples = prepare_samples(write_samples(folder, pages=6), folder)
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
try:
    run(Oracle(), samples, [[b] * len(samples) for b in (32, 96, 304)], Setting(), folder / "log.jsonl",
        RunOptions(batch_size=8))
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
    samples = prepare_samples(write_samples(tmp_path, pages=6), tmp_path)
    assert go(Oracle(), samples, log).answered == 72 - len(logged)
    go(Oracle(), samples, tmp_path / "calm.jsonl")
    assert facts(log) == facts(tmp_path / "calm.jsonl")


def test_a_place_that_cannot_be_written_is_named(samples: list[Sample], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StakesError, match="cannot be opened for writing"):
        go(Oracle(), samples, tmp_path / "file" / "log.jsonl")
