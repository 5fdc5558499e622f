"""A ledger in a real Redis: its script is the protocol, and what it promises holds over restarts and failovers."""

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.gateway.ledger.servers import Server, free_port, needs_redis, redis_server, relay
from tests.gateway.upstream import until

from stakes.errors import BadInput
from stakes.gateway.ledger.checks import check_redis
from stakes.gateway.ledger.protocol import LedgerUnreachable, exchange
from stakes.gateway.ledger.redis import RedisAddress, RedisStore
from stakes.gateway.ledger.shared import SharedLedger

pytestmark = needs_redis
REPLICA = ("--save", "", "--repl-diskless-sync-delay", "0")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with redis_server(tmp_path_factory.mktemp("redis")) as one:
        yield one


_COUNT = st.integers(0, 900)
_ACCOUNT = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["", "team-a"]), "limit": st.sampled_from([-1, 300]), "withdrawn": _COUNT,
        "deposited": _COUNT, "held": _COUNT, "ask": _COUNT, "tokens": st.just(60800.0),
        "prior": st.just({"high": 100.0, "low": 100.0}), "settled": st.lists(_COUNT, min_size=3, max_size=3),
        "tiers": st.dictionaries(st.sampled_from(["high", "low", "other"]), _COUNT),
    }
)  # fmt: skip
_SILENT = st.sampled_from([60, 60, -1])  # -1 forgets all others at once
_REPORT = st.fixed_dictionaries(
    {
        "process": st.sampled_from(["p", "q"]), "new": st.booleans(), "ends": st.sampled_from([False] * 5 + [True]),
        "ledger": st.sampled_from(["one", "two"]), "burst": st.sampled_from([1000, 2000]), "memory": st.just(2000),
        "silent_s": _SILENT, "accounts": st.lists(_ACCOUNT, max_size=2, unique_by=lambda one: one["name"]),
    }
)  # fmt: skip


def same(one: Any, other: Any) -> bool:
    """Equal, up to the 14 digits that Lua writes."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other or (isinstance(one, float) and abs(one - other) <= 1e-9 * abs(one)))


@given(st.lists(_REPORT, max_size=12))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_script_does_what_the_protocol_says(server: Server, reports: list[dict[str, Any]]) -> None:
    server.client.flushall()
    store, state = RedisStore(server.url), dict[str, Any]()
    for report in reports:
        assert same(store.exchange(report), json.loads(json.dumps(exchange(state, report, 0.0))))
    kept = server.client.hgetall(RedisAddress.parse(server.url).keys[0])
    assert same({name: json.loads(kept[f"a:{name}"]) for name in state.get("accounts", {})}, state.get("accounts", {}))
    store.close()


AOF = ("--appendonly", "yes", "--appendfsync", "everysec", "--save", "")


def drawn(*ledgers: SharedLedger, seconds: float) -> int:
    """Take tokens for some seconds; how many there were."""
    ends, taken = time.monotonic() + seconds, 0
    while time.monotonic() < ends:
        taken += sum(ledger.common.withdraw(20) for ledger in ledgers)
        time.sleep(0.01)
    return taken


def kill(ledger: SharedLedger) -> None:
    """End a process as ``kill -9`` does: nothing is put back."""
    ledger._ended.set()
    ledger._wake.set()


def ledger_at(server: Server, burst: int, loss_s: float = 0.3) -> SharedLedger:
    return SharedLedger(RedisStore(server.url, loss_s), burst)


def test_processes_draw_on_one_credit_until_it_is_used(server: Server) -> None:
    server.client.flushall()
    ledgers = [ledger_at(server, 2000) for _ in range(3)]
    taken = 0
    ends = time.monotonic() + 8
    while taken < 1900 and time.monotonic() < ends:
        taken += sum(one.common.withdraw(15) for one in ledgers)
        time.sleep(0.01)
    assert 1900 <= taken <= 2000
    for one in ledgers:
        one.close()
    sums = json.loads(server.client.hget(RedisAddress.parse(server.url).keys[0], "all") or "{}")
    assert sums["withdrawn"] - sums["deposited"] == taken
    assert sums["held"] == 0


def test_a_restart_that_loses_the_last_second_grants_nothing_twice(tmp_path: Path) -> None:
    """The append-only file is synced every second; after a power failure its end is missing."""
    with redis_server(tmp_path / "data", *AOF) as server:
        ledgers = [ledger_at(server, 3000, loss_s=1.5) for _ in range(2)]
        time.sleep(2)
        taken = 0
        for _ in range(2):
            (log,) = (tmp_path / "data" / "appendonlydir").glob("*.incr.aof")
            size = log.stat().st_size
            taken += drawn(*ledgers, seconds=0.7)
            kill(ledgers.pop())  # nobody will tell the server what it had taken
            server.kill()
            assert log.stat().st_size > size
            os.truncate(log, size)
            taken += drawn(*ledgers, seconds=0.3)
            assert not all(one.reachable for one in ledgers)
            server.start()
            ledgers.append(ledger_at(server, 3000, loss_s=1.5))
            taken += drawn(*ledgers, seconds=2.2)
            assert all(one.reachable for one in ledgers)
        assert 1000 < taken <= 3000
        assert sum(one.state()["ledger_lost"] for one in ledgers) == 0
        for one in ledgers:
            one.close()


def test_a_failover_that_loses_the_last_writes_mints_nothing(tmp_path: Path) -> None:
    """A replica that lags is promoted: leases that it never heard of were not used yet."""
    front = free_port()
    with redis_server(tmp_path / "a") as first, redis_server(tmp_path / "b", *REPLICA) as second, relay(front) as to:
        to.port = first.port
        second.client.replicaof("127.0.0.1", first.port)
        assert until(lambda: second.client.info("replication")["master_link_status"] == "up", 10)
        ledgers = [SharedLedger(RedisStore(f"redis://127.0.0.1:{front}/0", 1.5), 3000) for _ in range(2)]
        time.sleep(2)
        second.client.replicaof("NO", "ONE")  # it hears no more: what follows is lost
        taken = drawn(*ledgers, seconds=1.2)
        kill(ledgers.pop())  # nobody will tell the new server what it had taken
        to.port = second.port
        to.drop()
        taken += drawn(*ledgers, seconds=4)
        assert 1000 < taken <= 3000
        assert all(one.reachable for one in ledgers)
        for one in ledgers:
            one.close()


def test_a_server_that_does_not_answer_delays_nobody(server: Server) -> None:
    server.client.flushall()
    ledger = ledger_at(server, 2000)
    drawn(ledger, seconds=1.0)
    assert server.process is not None
    server.process.send_signal(signal.SIGSTOP)
    try:
        slowest = 0.0
        for _ in range(100):
            began = time.perf_counter()
            ledger.common.withdraw(1)
            slowest = max(slowest, time.perf_counter() - began)
            time.sleep(0.015)
        assert slowest < 0.25
        assert not ledger.reachable
    finally:
        server.process.send_signal(signal.SIGCONT)
    assert until(lambda: ledger.exchange(), 5)
    ledger.close()


def test_sentinels_lead_to_the_server_that_takes_writes(tmp_path: Path) -> None:
    config = tmp_path / "sentinel.conf"
    with redis_server(tmp_path / "a") as first, redis_server(tmp_path / "b", *REPLICA) as second:
        second.client.replicaof("127.0.0.1", first.port)
        assert until(lambda: second.client.info("replication")["master_link_status"] == "up", 10)
        config.write_text(f"sentinel monitor fleet 127.0.0.1 {first.port} 1\n")
        with redis_server(tmp_path / "s", "--sentinel", file=config) as sentinel:
            assert until(lambda: bool(sentinel.client.execute_command("SENTINEL", "REPLICAS", "fleet")), 15)
            url = f"redis+sentinel://127.0.0.1:{sentinel.port}/fleet?ledger=invoices"
            ledger = SharedLedger(RedisStore(url, 0.2), 1000)
            assert drawn(ledger, seconds=1.0) > 0
            sentinel.client.execute_command("SENTINEL", "FAILOVER", "fleet")
            assert until(lambda: second.client.info("replication")["role"] == "master", 20)
            assert until(lambda: bool(ledger.exchange()), 10)
            assert second.client.exists("stakes:{invoices}")
            ledger.close()


def test_a_cluster_addressed_as_a_server_is_refused(tmp_path: Path) -> None:
    bus = str(free_port())  # by default the port plus 10,000, which may be above 65,535
    with redis_server(tmp_path / "c", "--cluster-enabled", "yes", "--cluster-port", bus) as server:
        with pytest.raises(BadInput, match="a node of a Redis cluster, addressed as a single server"):
            RedisStore(server.url)
        (row,) = check_redis(server.url, 2.0)
        assert row.state == "bad"


@pytest.mark.parametrize(
    ("settings", "state", "found"),
    [
        ({}, {"ledger persistence": "bad"}, "a restart forgets the whole total, which is granted anew"),
        ({"save": "60 1"}, {"ledger persistence": "bad"}, "what was written since the last snapshot"),
        ({"appendonly": "yes"}, {}, "for which leases wait (2 s)"),
        ({"appendonly": "yes", "appendfsync": "always"}, {}, "synced before every reply"),
        ({"appendonly": "yes", "appendfsync": "no"}, {"ledger persistence": "bad"}, "loses half a minute"),
        (
            {"appendonly": "yes", "maxmemory": "100mb", "maxmemory-policy": "allkeys-lru"},
            {"ledger eviction": "bad"}, "may drop the ledger",
        ),
    ],
)  # fmt: skip
def test_doctor_refuses_or_explains(
    server: Server, settings: dict[str, str], state: dict[str, str], found: str
) -> None:
    before = server.client.config_get("*")
    for name, value in settings.items():
        server.client.config_set(name, value)
    try:
        rows = check_redis(server.url, 2.0)
    finally:
        for name in settings:
            server.client.config_set(name, before[name])
    assert {row.name: row.state for row in rows if row.state != "good"} == state
    assert found in " ".join(row.found for row in rows)


def test_replicas_need_a_server_that_stops_without_them(tmp_path: Path, server: Server) -> None:
    with redis_server(tmp_path / "b", *REPLICA) as replica:
        replica.client.replicaof("127.0.0.1", server.port)
        assert until(lambda: server.client.info("replication")["connected_slaves"] == 1, 10)
        (row,) = check_redis(replica.url, 2.0)
        assert "is a replica" in row.found
        assert check_redis(server.url, 2.0)[-1].state == "warning"
        server.client.config_set("min-replicas-to-write", 1)
        server.client.config_set("min-replicas-max-lag", 1)
        assert "serve --ledger-loss 3" in check_redis(server.url, 2.0)[-1].advice
        assert check_redis(server.url, 3.0)[-1].state == "good"
        server.client.config_set("min-replicas-to-write", 0)


def test_a_wrong_address_is_an_error_and_never_shows_its_password() -> None:
    for text, message in (
        ("http://host", "a ledger is a file, or an address such as redis://host:6379/0"),
        ("redis+sentinel://a,b", "give the name of the master after the sentinels"),
        ("redis://host?ledger=a/b", "the name of a ledger is letters"),
    ):
        with pytest.raises(BadInput, match=message):
            RedisAddress.parse(text)
    address = RedisAddress.parse("rediss://:s3cret@host:6380/2?ledger=x")
    assert (address.shown, address.name, "s3cret" in address.url) == ("rediss://host:6380/2?ledger=x", "x", True)
    with pytest.raises(LedgerUnreachable) as error:
        RedisStore(f"redis://:s3cret@127.0.0.1:{free_port()}").exchange({})
    assert "s3cret" not in str(error.value)
