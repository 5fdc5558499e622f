"""Torch started by the command line lets its threads sleep while they wait; what a person has set is left alone."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="threads are torch's")
CODE = """
import contextlib
from stakes.cli import main
with contextlib.suppress(SystemExit):
    main(["explain", "What is the total?"])
import torch
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks GNU's OpenMP, which Linux builds of torch carry")
@pytest.mark.parametrize(("given", "found"), [(None, "0"), ("ACTIVE", "30000000000")])
def test_waiting_threads_sleep_unless_set_otherwise(given: str | None, found: str) -> None:
    clean = {key: value for key, value in os.environ.items() if key != "OMP_WAIT_POLICY"}
    policy = {} if given is None else {"OMP_WAIT_POLICY": given}
    run = subprocess.run(
        [sys.executable, "-c", CODE],
        env={**clean, **policy, "OMP_DISPLAY_ENV": "verbose"},  # OpenMP says on stderr what it goes by
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert f"GOMP_SPINCOUNT = '{found}'" in run.stderr  # how often a thread looks again before it sleeps
