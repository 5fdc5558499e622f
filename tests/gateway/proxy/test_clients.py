"""Keys have names and limits: requests and visual tokens per minute, and a share that keeps others' budgets."""

import logging
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.gateway.gateways import HIGH, Gateway, ask, blank, gateway, policy
from tests.gateway.upstream import Upstream

from stakes import BadInput
from stakes.budgets.allowance import MemoryLedger
from stakes.gateway.accounts import Accounts, LocalLedger, ShareLedger
from stakes.gateway.monitoring.logs import LOGGER
from stakes.gateway.proxy.clients import Authenticator, Client, ClientKey, Rate
from stakes.gateway.proxy.errors import Refused
from stakes.gateway.reload import Rules

A, B = "alpha-key-1", "beta-key-22"


def post(http: httpx.Client, front: Gateway, key: str, body: Any = None, **headers: str) -> httpx.Response:
    sent = {"authorization": f"Bearer {key}", **headers}
    return http.post(f"{front.base_url}/chat/completions", json=body or ask(), headers=sent)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("team-a 2f7c51d0", ("team-a", None, None, None)),
        ("team-a 2f7c51d0 rpm=60 tpm=1000 share=0.25", ("team-a", 60, 1000, 0.25)),
        ("team-a 2f7c51d0== share=1  # of the accounting team", ("team-a", None, None, 1.0)),
        ("2f7c51d0=abc=", ("key-", None, None, None)),
    ],
)
def test_a_line_is_a_key_with_a_name_and_limits(line: str, expected: tuple[Any, ...]) -> None:
    key = ClientKey.parse(line)
    assert (key.name[: len(expected[0])], key.rpm, key.tpm, key.share) == expected


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (("short",), "at least 8 printable"),
        (("a b s3cret-key-1",), "a line of keys is a key, or a name and a key"),
        (("rpm=60",), "a line of keys is a key, or a name and a key"),
        (("team/a s3cret-key-1",), "a key's name is letters"),
        (("a s3cret-key-1 rpm=0",), "rpm of the key 'a' is a whole number above 0, not '0'"),
        (("a s3cret-key-1 tpm=many",), "tpm of the key 'a' is a whole number above 0"),
        (("a s3cret-key-1 share=1.5",), "share of the key 'a' is a number above 0 and at most 1"),
        (("a s3cret-key-1 share=0.0",), "share of the key 'a'"),
        (("a s3cret-key-1", "a s3cret-key-2"), "two lines of keys have the same name"),
        (("a s3cret-key-1", "b s3cret-key-1"), "two lines of keys have the same key"),
    ],
)
def test_a_bad_line_is_refused_without_repeating_the_key(lines: tuple[str, ...], message: str) -> None:
    with pytest.raises(BadInput) as caught:
        Authenticator(lines, None)
    assert message in str(caught.value)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"authorization": f"Bearer {A}"}, 200),
        ({"x-api-key": A}, 200),
        ({"api-key": A}, 200),
        ({"api-key": A, "authorization": "Bearer of-another-service"}, 200),
        ({"x-api-key": "wrong-key-1"}, 401),
        ({"x-api-key": f"Bearer {A}"}, 401),
        ({"authorization": A}, 401),
        ({"authorization": f"Basic {A}"}, 401),
        ({}, 401),
    ],
)
def test_a_key_is_taken_from_three_headers_and_never_passed_on(
    upstream: Upstream, http: httpx.Client, headers: dict[str, str], status: int
) -> None:
    with gateway(upstream.url, client_keys=(f"team-a {A}",), upstream_key="sk-upstream") as front:
        assert http.post(f"{front.base_url}/chat/completions", json={}, headers=headers).status_code == status
        assert http.get(f"{front.address}/metrics", headers=headers).status_code == status
        assert http.get(f"{front.address}/stakes/state", headers=headers).status_code == status
    for seen in upstream.seen:
        assert seen.header("authorization") == "Bearer sk-upstream"
        assert A not in str(seen.headers)


def test_the_log_names_the_key_and_never_shows_it(
    upstream: Upstream, http: httpx.Client, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, LOGGER), gateway(upstream.url, client_keys=(f"team-a {A}", B)) as front:
        post(http, front, A)
        post(http, front, B)
        post(http, front, A, ask("?", "data:nonsense"))
        post(http, front, "wrong-key-1")
        front.settle()
    fields = [one.fields for one in caplog.records if one.name == LOGGER]  # type: ignore[attr-defined]
    named = ClientKey.parse(B).name
    assert [one["client"] for one in fields] == ["team-a", named, "team-a", None]
    assert not any(key in caplog.text + str(fields) for key in (A, B))


def test_requests_per_minute_are_limited_by_key(upstream: Upstream, http: httpx.Client) -> None:
    with gateway(upstream.url, client_keys=(f"a {A} rpm=3", f"b {B}")) as front:
        statuses = [post(http, front, A, {"messages": []}).status_code for _ in range(5)]
        assert statuses == [200, 200, 200, 429, 429]
        reply = post(http, front, A, {"messages": []})
        assert reply.json()["error"]["code"] == "request_limit"
        assert 1 <= int(reply.headers["retry-after"]) <= 20
        assert all(post(http, front, B, {"messages": []}).status_code == 200 for _ in range(10))
        assert front.metric("rejects_total", reason="request_limit") == 3


def test_tokens_per_minute_are_limited_by_key(upstream: Upstream, http: httpx.Client) -> None:
    with gateway(upstream.url, client_keys=(f"a {A} tpm=600", f"b {B}")) as front:
        replies = [post(http, front, A) for _ in range(4)]
        assert [one.status_code for one in replies] == [200, 200, 429, 429]
        assert replies[-1].json()["error"]["code"] == "token_limit"
        assert front.state()["images_outstanding"] == 0
        assert front.state()["tokens_spent"] == sum(
            int(one.headers["x-stakes-predicted-tokens"]) for one in replies[:2]
        )
        bypassed = post(http, front, A, **{"x-stakes-bypass": "1"})  # native tokens count too
        assert bypassed.status_code == 429
        assert post(http, front, A, {"messages": []}).status_code == 200  # text takes none
        assert post(http, front, B).status_code == 200


def test_tokens_of_a_refused_request_are_given_back(upstream: Upstream, http: httpx.Client) -> None:
    upstream.script = lambda _, wire: wire.reply(b"{}", 429)
    with gateway(upstream.url, client_keys=(f"a {A} tpm=300",)) as front:
        assert [post(http, front, A).json() for _ in range(4)] == [{}] * 4  # the upstream's refusals, not the gateway's


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@given(st.integers(1, 500), st.lists(st.tuples(st.floats(0, 90), st.integers(1, 900)), max_size=60))
def test_no_minute_has_more_than_two_minutes_worth(limit: int, asked: list[tuple[float, int]]) -> None:
    """A bucket of a minute's worth: over any time t, at most (1 + t) minutes' worth, and one request beyond it."""
    clock = Clock()
    rate, taken = Rate(limit, clock), []
    for pause, amount in asked:
        clock.now += pause
        wait = rate.take(amount)
        if wait == 0:
            taken.append((clock.now, amount))
        else:
            clock.now += wait + 1e-6
            assert rate.take(amount) == 0  # after the stated time it is there
            taken.append((clock.now, amount))
    for i, (begin, _) in enumerate(taken):
        for j in range(i, len(taken)):
            total = sum(amount for _, amount in taken[i:j])
            assert total <= limit * (1 + (taken[j][0] - begin) / 60) + max(0, taken[j - 1][1] - limit) + 1e-3


def flood(http: httpx.Client, front: Gateway, key: str, number: int) -> list[int]:
    """Predicted tokens of so many requests, each about a page of its own, that name the most expensive tier."""
    replies = [post(http, front, key, ask("?", blank(n)), **{"x-stakes-tier": "high"}) for n in range(number)]
    return [int(one.headers["x-stakes-predicted-tokens"]) for one in replies]


def test_a_client_that_names_high_cannot_drain_the_others(upstream: Upstream, http: httpx.Client) -> None:
    rules = policy(mean_budget=100, burst=2000)
    with gateway(upstream.url, rules, client_keys=(f"b {B}",)) as front:
        alone = flood(http, front, B, 20)
        assert max(alone) > 200
    with gateway(upstream.url, rules, client_keys=(f"a {A} share=0.25", f"b {B}")) as front:
        first = flood(http, front, A, 60)
        assert max(first) > 200
        for n in range(1, 61):
            assert sum(first[:n]) <= 100 * n + 500  # its share of the burst
        others = flood(http, front, B, 20)
        assert sum(others) > 0.8 * sum(alone), (others, alone)
        state = front.served.rules.state()
        assert (state["images"], state["tokens_spent"]) == (80, sum(first) + sum(others))
        assert state["tokens_spent"] <= 100 * 80 + 2000
        assert state["mean"] == pytest.approx(state["tokens_spent"] / 80)
    with gateway(upstream.url, rules, client_keys=(f"a {A}", f"b {B}")) as front:  # without a share it can
        flood(http, front, A, 60)
        drained = flood(http, front, B, 20)
        assert sum(drained) < 0.75 * sum(alone)  # 2156 tokens; 2620 above, and 3084 alone


def test_processes_that_share_a_ledger_share_the_limits_of_a_key() -> None:
    now, processes = [0.0], [4]
    rates = [Rate(60, lambda: now[0], lambda: processes[0]) for _ in range(4)]
    taken = sum(one.take(1) == 0 for one in rates for _ in range(60))
    assert taken == 60
    now[0] = 60.0
    processes[0] = 1  # the others ended
    assert sum(rates[0].take(1) == 0 for _ in range(100)) == 60


def test_a_share_continues_over_a_new_policy() -> None:
    ledger = LocalLedger(1000)
    accounts = Accounts(policy(mean_budget=100), ledger)
    one = accounts.of("a", 0.5)
    one.settle(one.grant("high", [1260]), HIGH)
    spent = one.state()["tokens_spent"]
    after = Accounts(policy(mean_budget=100, fingerprint="second"), ledger, accounts)
    assert after.of("a", 0.5).state()["tokens_spent"] == spent == HIGH


@given(
    st.integers(0, 3000),
    st.lists(st.floats(0.01, 1), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 3), st.integers(-400, 400)), max_size=60),
)
def test_shares_never_take_more_than_their_part_nor_all_more_than_the_burst(
    burst: int, shares: list[float], steps: list[tuple[int, int]]
) -> None:
    common = MemoryLedger(burst)
    parts = [ShareLedger(common, share) for share in shares]
    held = [0] * len(parts)
    for index, tokens in steps:
        part = index % len(parts)
        if tokens >= 0:
            held[part] += parts[part].withdraw(tokens)
        else:
            back = min(held[part], -tokens)
            parts[part].deposit(back)
            held[part] -= back
        assert held[part] <= int(shares[part] * burst)
        assert sum(held) <= burst
        assert common.credit == burst - sum(held)


@given(
    st.integers(0, 2000),
    st.lists(st.tuples(st.integers(0, 2), st.booleans(), st.lists(st.integers(1, 1260), min_size=1, max_size=3))),
)
def test_the_total_holds_over_all_accounts(burst: int, asked: list[tuple[int, bool, list[int]]]) -> None:
    rules, shares = Rules.of(policy(mean_budget=100, burst=burst)), (None, 0.25, 0.6)
    clients = [Client(ClientKey(f"c{n}", b"", share=share)) for n, share in enumerate(shares)]
    total = [0, 0]
    each = [[0, 0] for _ in shares]
    for who, high, natives in asked:
        controller = rules.account(clients[who])
        grant = controller.grant("high" if high else "low", natives)
        controller.settle(grant, sum(grant.budgets))
        for sums in (total, each[who]):
            sums[0] += len(natives)
            sums[1] += sum(grant.budgets)
        assert total[1] <= 100 * total[0] + burst
        share = shares[who]
        assert share is None or each[who][1] <= 100 * each[who][0] + int(share * burst)
    assert rules.state()["tokens_spent"] == total[1]


def test_a_changed_key_keeps_its_limit_only_if_that_is_the_same() -> None:
    keys = Authenticator((f"a {A} rpm=1", f"b {B} rpm=1"), None)

    def client(key: str) -> Client:
        found = keys.check({b"x-api-key": key.encode()})
        assert found is not None
        return found

    client(A).admit()
    client(B).admit()
    keys.replace((f"a {A} rpm=1", f"b {B} rpm=9"), None)
    with pytest.raises(Refused):
        client(A).admit()
    client(B).admit()
