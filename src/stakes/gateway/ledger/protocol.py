"""The protocol by which many processes keep one hard total: leases of credit, reported in cumulative numbers.

A ledger holds, for each account, two sums over all processes that ever drew on it: tokens withdrawn and deposited.

    credit = burst + deposited - withdrawn                    an account with a share has its own limit beside it

A process takes a lease (``ask``), spends from it without asking anybody (``Hand``), and puts back what it saves. An
image brings its own mean, so only what goes beyond the mean comes from the lease. One call, ``exchange``, does
everything:

1. The process reports its *cumulative* withdrawals and deposits. The ledger keeps the larger of its own number and the
   reported one, so a report that is lost, repeated or late changes nothing.
2. The ledger grants ``min(ask, credit)`` and adds it to the process's withdrawals. It replies with that sum, so a lost
   reply loses nothing either: the next one says the same.
3. A lease is used only when it can no longer be lost. Redis acknowledges before a write is on disk or on a replica, and
   a failover loses the last ``loss_s`` seconds of writes. So the process waits: what was acknowledged at ``t`` is
   usable when another exchange, sent at ``t + loss_s`` or later, still finds it. A file is synced first, so there
   ``loss_s`` is 0.
4. If an exchange fails, or the ledger turns out to know less than it acknowledged (another server after a failover, an
   older state after a restart), the wait begins anew for all that is not usable yet.
5. A process registers under a random name of its own and withdraws nothing in that call. A name that the ledger does
   not know is never created by a report: the process registers under a new name, with its sums at zero. So nothing is
   entered twice. What it has in hand was withdrawn under the old name and stays paid for.
6. A process that is silent for long is forgotten, live or not. Its sums remain: what it did not put back counts as
   spent.

Guarantee: over the whole fleet the first ``n`` images take at most ``mean n + burst`` tokens, for every ``n``, with
processes killed and restarted at any time, messages lost, repeated or late, and servers that restart or fail over.

Proof. Let ``used`` be what a process's images took beyond their means; ``Hand`` and ``Allowance`` keep it at most
``usable - deposited - in hand``. By 3 and 4, every state that the ledger can come back to has ``withdrawn >= usable``
for every process, and, as a process deposits before it reports, ``deposited`` at most what that process gave up. So the
sum of ``used`` is at most ``withdrawn - deposited`` of that state, and by 2 that is at most ``burst``. Savings count
only after their images were sent, so the same holds for every prefix. Clocks decide when a process is forgotten, which
is safe at any time, and how long 3 waits, where each process measures its own monotonic clock.

Conditions: a restart or a failover loses at most the last ``loss_s`` seconds of writes, and loses no write that is
older than one it keeps; there is one server that takes writes at a time. ``tests/gateway/ledger/test_model.py``
searches all states of three processes. ``exchange.lua`` is the same function inside Redis; a test compares the two.
"""

from typing import Any, NamedTuple

from stakes.errors import StakesError

SCHEMA = 2
_SUMS = ("withdrawn", "deposited", "held")


class LedgerUnreachable(StakesError):
    """An exchange failed; whether the ledger saw it is not known."""


class Hand(NamedTuple):
    """What one process holds of one account. ``pending``: (withdrawals in total, when acknowledged), not usable yet."""

    tokens: int = 0
    usable: int = 0  # withdrawn and usable, ever
    deposited: int = 0  # ever
    pending: tuple[tuple[int, float], ...] = ()

    @property
    def acknowledged(self) -> int:
        """Withdrawals in total that the ledger has confirmed."""
        return self.pending[-1][0] if self.pending else self.usable

    def add(self, tokens: int) -> "Hand":
        """The hand after tokens were saved, or taken for an image (below 0)."""
        return self._replace(tokens=self.tokens + tokens)

    def put_back(self, tokens: int) -> "Hand":
        """The hand after tokens were given up for the ledger, which learns of them with the next report."""
        return self._replace(tokens=self.tokens - tokens, deposited=self.deposited + tokens)

    def overdraw(self, tokens: int) -> "Hand":
        """The hand after tokens were taken that nobody granted; the next report enters them."""
        return self._replace(tokens=self.tokens + tokens, usable=self.usable + tokens)

    def learn(self, withdrawn: int, before: int, sent: float, received: float, loss_s: float, unbroken: bool) -> "Hand":
        """The hand after a reply: the process's withdrawals now and ``before`` this exchange.

        ``unbroken``: whether the exchange before this one succeeded, too.
        """
        pending = self.pending if unbroken and before >= self.acknowledged else ()
        if loss_s == 0:
            mature, pending = max(self.usable, withdrawn), ()
        else:
            mature = max([self.usable, *(total for total, at in pending if sent - at >= loss_s)])
            pending = tuple((total, at) for total, at in pending if total > mature)
            if withdrawn > (pending[-1][0] if pending else mature):
                pending = (*pending, (withdrawn, received))
        return Hand(self.tokens + mature - self.usable, mature, self.deposited, pending)

    def renamed(self) -> "Hand":
        """The hand under a new name: its sums begin at zero, what is in hand stays."""
        return Hand(tokens=self.tokens)


def exchange(state: dict[str, Any], report: dict[str, Any], now: float) -> dict[str, Any]:
    """Enter one process's report into the ledger's ``state`` (empty at first), and reply. ``now``: in seconds."""
    if not state:
        state |= {"schema": SCHEMA, "ledger": report["ledger"], "all": dict.fromkeys(_SUMS, 0)}
        state |= {"accounts": {}, "processes": {}}
    processes, name = state["processes"], report["process"]
    for other in [one for one, about in processes.items() if about["at"] < now - report["silent_s"] and one != name]:
        _forget(state, other)
    if report["new"]:
        processes.setdefault(name, {"at": now, "accounts": {}})
    mine = processes.get(name)
    reply = {"ledger": state["ledger"], "known": mine is not None, "processes": len(processes), "accounts": []}
    if mine is None:
        return reply
    mine["at"] = now
    before = [_enter(state, mine, said, report["memory"]) for said in report["accounts"]]
    for said, withdrawn in zip(report["accounts"], before, strict=True):
        reply["accounts"].append(_grant(state, mine, said, report["burst"], withdrawn))
    if report["ends"]:
        _forget(state, name)
    return reply


def _enter(state: dict[str, Any], mine: dict[str, Any], said: dict[str, Any], memory: int) -> int:
    """Enter what a process reports of one account; returns the withdrawals that were known before."""
    fresh = {"weights": {}, "planned": said["tokens"], "taken": said["tokens"]}
    account = state["accounts"].setdefault(said["name"], dict.fromkeys(_SUMS, 0) | fresh)
    own = mine["accounts"].setdefault(said["name"], dict.fromkeys(_SUMS, 0) | {"tiers": {}, "settled": [0, 0, 0]})
    before: int = own["withdrawn"]
    for key in _SUMS:
        more = said[key] - own[key]
        if key != "held":  # cumulative: an older report changes nothing
            more = max(0, more)
        for sums in (own, account, state["all"]):
            sums[key] += more
    _enter_traffic(account, own, said, memory)
    return before


def _enter_traffic(account: dict[str, Any], own: dict[str, Any], said: dict[str, Any], memory: int) -> None:
    """Add the images since the last report to the account's statistics, and forget older ones."""
    weights = account["weights"]
    for tier, weight in said["prior"].items():
        weights.setdefault(tier, weight)
    more = {tier: max(0, count - own["tiers"].get(tier, 0)) for tier, count in said["tiers"].items()}
    decay = (1 - 1 / memory) ** sum(more.values())
    for tier in weights:
        weights[tier] = weights[tier] * decay + more.get(tier, 0)
    for tier, count in more.items():
        own["tiers"][tier] = own["tiers"].get(tier, 0) + count
    images, planned, taken = (max(0, new - old) for new, old in zip(said["settled"], own["settled"], strict=True))
    decay = (1 - 1 / memory) ** images
    account["planned"] = account["planned"] * decay + planned
    account["taken"] = account["taken"] * decay + taken
    own["settled"] = [max(pair) for pair in zip(said["settled"], own["settled"], strict=True)]


def _grant(
    state: dict[str, Any], mine: dict[str, Any], said: dict[str, Any], burst: int, before: int
) -> dict[str, Any]:
    """Grant what was asked for as far as there is credit; ``limit``: of the account itself, below 0 for none."""
    account, own, total = state["accounts"][said["name"]], mine["accounts"][said["name"]], state["all"]
    credit = burst + total["deposited"] - total["withdrawn"]
    if said["limit"] >= 0:
        credit = min(credit, said["limit"] + account["deposited"] - account["withdrawn"])
    granted = max(0, min(said["ask"], credit))
    for sums in (own, account, total):
        sums["withdrawn"] += granted
        sums["held"] += granted
    return {
        "name": said["name"], "before": before, "withdrawn": own["withdrawn"], "credit": credit - granted,
        "others": account["held"] - own["held"], "weights": dict(account["weights"]), "planned": account["planned"],
        "taken": account["taken"],
    }  # fmt: skip


def _forget(state: dict[str, Any], name: str) -> None:
    """Drop a process; its withdrawals and deposits stay in the sums, what it held is held no more."""
    for account, own in state["processes"].pop(name)["accounts"].items():
        for sums in (state["accounts"][account], state["all"]):
            sums["held"] -= own["held"]
