"""An explicit-state model of the ledger's protocol: every interleaving of a few processes, crashes and lost writes.

The model runs the real code, ``exchange`` for the ledger and ``Hand`` for a process, and adds what happens around it:

* A request is executed, or lost, or arrives after its sender gave up or died. A reply arrives later, or is lost.
* A process may crash at any time and starts anew. What it had in hand is lost; what it spent stays spent.
* One tick is the time in which writes can be lost. A failover goes back to the state before any of the writes since the
  last tick; those that it keeps may still be lost by the next failover. Clocks of processes are read in ticks, too.
* The ledger may forget any process at any time, as it does when a clock jumps.

``spent`` is what all images took beyond their means. ``model_search`` looks at every world that can be reached.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from stakes.gateway.ledger.protocol import Hand, exchange

Sums = tuple[int, int] | tuple[()]  # cumulative withdrawals and deposits of one process; empty where it is not known
Report = tuple[int, int, int]  # both, and what it asks for


class Process(NamedTuple):
    """A process, and what the ledger knew of it after each write of ``World.nets``.

    ``reply``: (known, withdrawn, before), executed and not received; ``late``: whether a tick has passed since.
    """

    known: tuple[Sums, ...]
    registered: bool = False
    hand: Hand = Hand()
    unbroken: bool = False
    reply: tuple[bool, int, int] | tuple[()] = ()
    late: bool = False


class Left(NamedTuple):
    """How often each of these may still happen."""

    saves: int = 0
    crashes: int = 0
    failovers: int = 0
    forgotten: int = 0
    late: int = 0


class World(NamedTuple):
    """``nets``: all tokens withdrawn less those deposited, after each write since the last tick, the newest last.

    ``late``: a request without a sender, of a process by its number, or (-1) of a ``former`` name without a process.
    """

    nets: tuple[int, ...]
    processes: tuple[Process, ...]
    former: tuple[Sums, ...]
    spent: int
    left: Left
    late: tuple[int, Report] | None = None


class Rules(NamedTuple):
    """The protocol as a process follows it; the tests break one rule at a time."""

    burst: int
    wait: int = 1  # ticks until a lease is used
    restart_wait: bool = True  # after a failed exchange
    notice_loss: bool = True  # that the ledger knows less than it acknowledged
    writes: int = 3  # at most between two ticks, while a failover may lose them


@cache
def execute(net: int, known: Sums, report: Report | None, burst: int) -> tuple[int, Sums, Any]:
    """One call of the real ``exchange``: net, the sums of the process and (known, withdrawn, before) after it.

    ``report``: None to register.
    """
    zero = {"held": 0, "tiers": {}, "settled": [0, 0, 0]}
    sums: dict[str, Any] = {"withdrawn": net, "deposited": 0, "held": 0}
    state: dict[str, Any] = {"ledger": "l", "all": dict(sums), "processes": {}}
    state["accounts"] = {"": sums | {"weights": {}, "planned": 0, "taken": 0}}
    if known:
        own = {"withdrawn": known[0], "deposited": known[1]} | zero
        state["processes"]["p"] = {"at": 0, "accounts": {"": own}}
    message: dict[str, Any] = {"process": "p", "new": report is None, "ends": False, "ledger": "l", "burst": burst}
    message |= {"memory": 2000, "silent_s": 60, "accounts": []}
    if report is not None:
        said = {"name": "", "limit": -1, "withdrawn": report[0], "deposited": report[1], "ask": report[2]}
        message["accounts"] = [said | zero | {"prior": {}, "tokens": 0}]
    answer = exchange(state, message, 0.0)
    accounts = state["processes"].get("p", {}).get("accounts")
    mine = accounts and accounts[""]
    after: Sums = () if accounts is None else (mine["withdrawn"], mine["deposited"]) if mine else (0, 0)
    reply = (answer["known"], after[0] if after else 0, answer["accounts"][0]["before"] if mine and report else 0)
    return state["all"]["withdrawn"] - state["all"]["deposited"], after, reply


def steps(world: World, rules: Rules) -> Iterator[tuple[str, World]]:
    """Everything that can happen next."""
    for number in range(len(world.processes)):
        yield from _process_steps(world, number, rules)
    if world.late is not None:
        number, report = world.late
        yield f"late request of {number}", _executed(world._replace(late=None), number, report, rules)[0]
    left = world.left
    if left.failovers:
        fewer = left._replace(failovers=left.failovers - 1)
        for end in range(1, len(world.nets)):
            yield "failover", with_writes(world._replace(left=fewer), slice(end))
    if left.forgotten:
        fewer = left._replace(forgotten=left.forgotten - 1)
        for number, process in enumerate(world.processes):
            if process.known[-1]:
                yield f"forget {number}", _written(world._replace(left=fewer), number, world.nets[-1], ())
    older = with_writes(world, slice(-1, None))
    yield "tick", older._replace(processes=tuple(map(_aged, older.processes)))


def _process_steps(world: World, number: int, rules: Rules) -> Iterator[tuple[str, World]]:
    process, left = world.processes[number], world.left
    hand = process.hand
    if hand.tokens > 0:
        yield f"{number} spends", _set(world, number, process._replace(hand=hand.add(-1)), spent=world.spent + 1)
    if left.saves:
        saved, fewer = process._replace(hand=hand.add(1)), left._replace(saves=left.saves - 1)
        yield f"{number} saves", _set(world, number, saved, spent=world.spent - 1, left=fewer)
    if left.crashes:
        fewer = left._replace(crashes=left.crashes - 1)
        yield f"{number} crashes", _restarted(world, number, Hand(), left=fewer)
    if process.reply:
        yield f"{number} gives up", _set(world, number, _aged_back(process)._replace(unbroken=False, reply=()))
        yield f"{number} receives", _received(world, number, rules)
    elif not process.registered:
        after, _ = _executed(world, number, None, rules)
        named = after.processes[number]._replace(registered=True, unbroken=True)
        yield f"{number} registers", _set(after, number, named)
    else:
        for changed in (hand, hand.put_back(1)) if hand.tokens > 0 else (hand,):
            sender = process._replace(hand=changed)
            report = changed.usable, changed.deposited, int(changed is hand)
            after, reply = _executed(world, number, report, rules)
            yield (
                f"{number} sends {report}",
                _set(after, number, sender._replace(known=after.processes[number].known, reply=reply)),
            )
            broken = sender._replace(unbroken=False)
            yield f"{number} sends {report} in vain", _set(world, number, broken)
            if world.late is None and left.late:
                fewer = left._replace(late=left.late - 1)
                yield f"{number} sends {report} late", _set(world, number, broken, late=(number, report), left=fewer)


def _executed(world: World, number: int, report: Report | None, rules: Rules) -> tuple[World, Any]:
    """The world after the ledger executed a request of a process, or of the former name (-1); the reply."""
    known = world.former[-1] if number < 0 else world.processes[number].known[-1]
    net, sums, reply = execute(world.nets[-1], known, report, rules.burst)
    return _written(world, number, net, sums), reply


def _written(world: World, number: int, net: int, sums: Sums) -> World:
    """The world after one more write, which changes what is known of one process or of the former name."""
    processes = [
        process._replace(known=(*process.known, sums if n == number else process.known[-1]))
        for n, process in enumerate(world.processes)
    ]
    former = (*world.former, sums if number < 0 else world.former[-1])
    return world._replace(nets=(*world.nets, net), processes=tuple(processes), former=former)


def with_writes(world: World, part: slice) -> World:
    """The world with only these of its writes."""
    processes = tuple(process._replace(known=process.known[part]) for process in world.processes)
    return world._replace(nets=world.nets[part], processes=processes, former=world.former[part])


def _received(world: World, number: int, rules: Rules) -> World:
    process = world.processes[number]
    assert process.reply
    known, withdrawn, before = process.reply
    if not known:
        return _restarted(world, number, process.hand.renamed())
    if not rules.notice_loss:
        before = max(before, process.hand.acknowledged)
    unbroken = process.unbroken or not rules.restart_wait
    # Times count from the sending of this exchange.
    hand = process.hand.learn(withdrawn, before, 0, int(process.late), rules.wait, unbroken)
    return _set(world, number, _aged_back(process._replace(hand=hand))._replace(unbroken=True, reply=()))


def _aged(process: Process) -> Process:
    """One tick later; while a reply is on its way, times count from the sending."""
    if process.reply:
        return process._replace(late=True)
    pending = tuple((total, -1) for total, _ in process.hand.pending)
    return process._replace(hand=process.hand._replace(pending=pending)) if pending else process


def _aged_back(process: Process) -> Process:
    """Times count from now again."""
    if not process.late:
        return process
    pending = tuple((total, max(-1, at - 1)) for total, at in process.hand.pending)
    return process._replace(hand=process.hand._replace(pending=pending), late=False)


def _restarted(world: World, number: int, hand: Hand, **changes: Any) -> World:
    """A process without a name. Its old one is the former name while a late request of it is on its way."""
    known, late, former = world.processes[number].known, world.late, world.former
    if late is not None and late[0] == number:
        late, former = (-1, late[1]), known
    unknown = Process(((),) * len(known), hand=hand)
    return _set(world._replace(late=late, former=former), number, unknown, **changes)


def _set(world: World, number: int, process: Process, **changes: Any) -> World:
    return world._replace(processes=_with(world.processes, number, process), **changes)


def _with(values: tuple[Any, ...], number: int, value: Any) -> tuple[Any, ...]:
    return (*values[:number], value, *values[number + 1 :])
