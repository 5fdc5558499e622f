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
from stakes.gateway.ledger.file import FileStore
from stakes.gateway.ledger.shared import SharedLedger

WITHDRAW = """
import sys; from pathlib import Path
from stakes.gateway.ledger.file import FileStore; from stakes.gateway.ledger.shared import SharedLedger
ledger = SharedLedger(FileStore(Path(sys.argv[1])), 1_000_000, background=False)
while True:
    print(ledger.common.withdraw(7), flush=True)
    ledger.exchange()
"""


def ledger(path: Path, burst: int = 1000) -> SharedLedger:
    return SharedLedger(FileStore(path), burst, background=False)


def net(path: Path) -> int:
    """Tokens that were withdrawn and not deposited again."""
    sums = json.loads(path.read_text())["all"]
    return int(sums["withdrawn"] - sums["deposited"])


def test_what_was_taken_stays_taken(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "ledger.json"
    first = ledger(path)
    assert first.common.withdraw(200) == 200
    first.close()
    assert net(path) == 200
    assert ledger(path).common.credit == 800
    assert ledger(path, burst=1500).common.credit == 1300


def test_a_killed_process_granted_nothing_that_is_not_in_the_file(tmp_path: Path) -> None:
    path, dice, granted = tmp_path / "ledger.json", Random(3), 0
    for _ in range(4):
        with subprocess.Popen([sys.executable, "-c", WITHDRAW, path], stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            granted += int(child.stdout.readline())
            sleep(dice.uniform(0.0, 0.2))
            os.kill(child.pid, signal.SIGKILL)
            granted += sum(int(line) for line in child.stdout.read().split())
        assert 0 < granted <= net(path)


def test_threads_share_one_credit(tmp_path: Path) -> None:
    ledgers, taken = [ledger(tmp_path / "ledger.json", 500) for _ in range(3)], list[int]()

    def draw(one: SharedLedger) -> None:
        for _ in range(40):
            taken.append(one.common.withdraw(9))
            one.exchange()

    threads = [Thread(target=draw, args=[one]) for one in ledgers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 300 < sum(taken) <= 500


def test_a_thread_exchanges_while_there_is_traffic(tmp_path: Path) -> None:
    path = tmp_path / "ledger.json"
    one = SharedLedger(FileStore(path), 1000)
    taken = 0
    for _ in range(200):
        taken += one.common.withdraw(30)
        sleep(0.01)
        if taken >= 900:
            break
    assert taken >= 900  # more than the first lease
    one.close()
    assert net(path) == taken


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"schema": 2, "all": {}}', '{"schema": 3}'])
def test_another_file_is_not_overwritten(tmp_path: Path, text: str) -> None:
    path = tmp_path / "notes.json"
    path.write_text(text)
    with pytest.raises(BadInput, match="is not a ledger; name another file, or remove it to begin a new total"):
        ledger(path)
    assert path.read_text() == text


def test_a_file_that_is_damaged_later_cuts_the_process_off(tmp_path: Path) -> None:
    path = tmp_path / "ledger.json"
    one = SharedLedger(FileStore(path), 1000)
    path.write_text("{}")
    for _ in range(100):
        one.common.withdraw(1)
        sleep(0.02)
        if not one.reachable:
            break
    assert not one.reachable
    assert path.read_text() == "{}"
    one._ended.set()
