"""The two main paths are short: how many files of the package run, counted with ``sys.setprofile``.

python -m pytest tests/test_path_length.py -rP      # prints the files
"""

import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import httpx
from tests.evaluation.oracle import Oracle, write_samples
from tests.gateway.gateways import ask, gateway, policy
from tests.gateway.upstream import serving

import stakes
from stakes.calibration.calibrate import CalibrationOptions, calibrate
from stakes.signals import RequestSignal, to_dict

PACKAGE = str(Path(stakes.__file__).parent)
# What the paths take when nothing is cached yet: run alone, not after other tests.
MOST_FILES_OF_CALIBRATE = 64
MOST_FILES_OF_A_REQUEST = 35


def is_import(frame: FrameType | None) -> bool:
    """Whether this call is made by a module of the package that is being imported."""
    while frame is not None and not (
        frame.f_code.co_name == "<module>" and frame.f_code.co_filename.startswith(PACKAGE)
    ):
        frame = frame.f_back
    return frame is not None


@contextmanager
def profiled() -> Iterator[set[str]]:
    """The files of the package whose functions are called, in this thread and in those that start within the block.

    What runs while a module is imported does not count, nor do comprehensions and lambdas.
    """
    files: set[str] = set()

    def profile(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE) and not code.co_name.startswith("<"):
            name = code.co_filename[len(PACKAGE) + 1 :]
            if name not in files and not is_import(frame):
                files.add(name)

    before = sys.getprofile()
    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        yield files
    finally:
        sys.setprofile(before)
        threading.setprofile(before)


def test_calibrate_passes_through_few_files(tmp_path: Path) -> None:
    fields = ("id", "image", "question", "answers", "tier", "document")
    samples = [{name: getattr(one, name) for name in fields} for one in write_samples(tmp_path, pages=8)[:30]]
    questions = tmp_path / "questions.jsonl"
    questions.write_text("".join(json.dumps(sample) + "\n" for sample in samples))
    with profiled() as files:
        options = CalibrationOptions(grid=(32, 96, 304, 576))
        found = calibrate(questions, Oracle(), costs={"high": 5.0, "low": 1.0}, mean_budget=304, options=options)
        found.policy.save(tmp_path / "policy.json")
    print(*sorted(files), sep="\n")
    assert json.loads((tmp_path / "policy.json").read_text())["tiers"]["high"]["budget"] > 304
    assert len(files) <= MOST_FILES_OF_CALIBRATE, sorted(files)


def test_an_image_request_passes_through_few_files() -> None:
    usage = {"prompt_tokens": 300, "prompt_tokens_details": {"multimodal_tokens": {"image": 252}}}
    reply = json.dumps({"choices": [{"index": 0, "message": {"content": "42"}}], "usage": usage}).encode()
    rules = policy(signal=to_dict(RequestSignal()))
    with (
        profiled() as files,
        serving(lambda _, wire: wire.reply(reply)) as upstream,
        gateway(upstream.url, rules) as front,
    ):
        time.sleep(0.2)  # the start is not part of the path
        files.clear()
        answer = httpx.post(f"{front.base_url}/chat/completions", json=ask(), trust_env=False, timeout=20)
        front.settle()
        seen = sorted(files)
    print(*seen, sep="\n")
    assert answer.headers["x-stakes-outcome"] == "fitted"
    assert "budgets/controller.py" in seen
    assert len(seen) <= MOST_FILES_OF_A_REQUEST, seen
