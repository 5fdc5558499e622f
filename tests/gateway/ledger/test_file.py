"""A ledger in a file keeps its total over restarts, kills and several processes."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from random import Random
from threading import Thread
from time import sleep

import pytest

from stakes.errors import BadInput
from stakes.gateway.ledger.file import FileLedger

WITHDRAW = """
import sys; from pathlib import Path; from stakes.gateway.ledger.file import FileLedger
ledger = FileLedger(Path(sys.argv[1]), 1_000_000)
while True:
    print(ledger.withdraw(7), flush=True)
"""


def test_what_was_withdrawn_stays_withdrawn(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "ledger.json"
    ledger = FileLedger(path, burst=1000)
    assert ledger.withdraw(700) == 700
    ledger.deposit(50)
    again = FileLedger(path, burst=1000)
    assert again.credit == 350
    assert again.withdraw(400) == 350
    assert again.withdraw(1) == 0
    assert FileLedger(path, burst=1500).credit == 500


def test_a_killed_process_granted_nothing_that_is_not_in_the_file(tmp_path: Path) -> None:
    path, dice, granted = tmp_path / "ledger.json", Random(3), 0
    for _ in range(4):
        with subprocess.Popen([sys.executable, "-c", WITHDRAW, path], stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            granted += int(child.stdout.readline())
            sleep(dice.uniform(0.0, 0.2))
            os.kill(child.pid, signal.SIGKILL)
            granted += sum(int(line) for line in child.stdout.read().split())
        spent = json.loads(path.read_text())["withdrawn"]
        assert granted <= spent <= granted + 7 * 4  # at most one withdrawal of each was on its way


def test_threads_and_processes_share_one_credit(tmp_path: Path) -> None:
    path = tmp_path / "ledger.json"
    ledgers = [FileLedger(path, burst=500) for _ in range(3)]
    taken: list[int] = []
    threads = [Thread(target=lambda one=one: taken.extend(one.withdraw(7) for _ in range(40))) for one in ledgers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(taken) == 500


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"schema": 1, "withdrawn": -1, "deposited": 0}', '{"schema": 2}'])
def test_another_file_is_not_overwritten(tmp_path: Path, text: str) -> None:
    path = tmp_path / "notes.json"
    path.write_text(text)
    with pytest.raises(BadInput, match="is not a ledger; name another file, or remove it to begin a new total"):
        FileLedger(path, burst=10)
    assert path.read_text() == text
