"""Searches every world of ``model`` that can be reached, for one in which more was spent than there was.

    python -m tests.gateway.ledger.model_search       # wider bounds than the test's: an hour

Of the cumulative numbers of a process only differences matter, so they are counted from the smallest one that is about;
processes are alike, so they are sorted.
"""

from functools import cache

from tests.gateway.ledger.model import Left, Process, Rules, Sums, World, steps, with_writes

from stakes.gateway.ledger.protocol import Hand


def normalized(world: World) -> World:
    """The same world in its simplest form: processes in order, numbers from the smallest one."""
    if not world.left.failovers:  # nothing goes back any more
        world = with_writes(world, slice(-1, None))
    else:
        world = _without_repetitions(world)
    simple = [_relative(process) for process in world.processes]
    order = sorted(range(len(simple)), key=lambda n: simple[n])
    late = world.late
    former: tuple[Sums, ...] = ((),) * len(world.nets)
    if late is not None:
        number, (withdrawn, deposited, ask) = late
        if number < 0:
            former, less = _relative_sums(world.former)
        else:
            number, less = order.index(number), simple[number][1]
        late = number, (max(0, withdrawn - less[0]), max(0, deposited - less[1]), ask)
    return World(world.nets, tuple(simple[n][0] for n in order), former, world.spent, world.left, late)


def _without_repetitions(world: World) -> World:
    """Without writes that changed nothing."""
    columns = list(zip(world.nets, world.former, *(process.known for process in world.processes), strict=True))
    kept = [n for n, column in enumerate(columns) if n == 0 or column != columns[n - 1]]
    if len(kept) == len(columns):
        return world
    processes = tuple(one._replace(known=tuple(one.known[n] for n in kept)) for one in world.processes)
    former = tuple(world.former[n] for n in kept)
    return world._replace(nets=tuple(world.nets[n] for n in kept), processes=processes, former=former)


@cache
def _relative(process: Process) -> tuple[Process, tuple[int, int]]:
    """The process with its numbers from the smallest one; what they were lowered by."""
    hand, reply = process.hand, process.reply
    withdrawn = [hand.usable, *(one[0] for one in process.known if one), *(reply[1:] if reply and reply[0] else ())]
    less = min(withdrawn), min([hand.deposited, *(one[1] for one in process.known if one)])
    known = tuple((one[0] - less[0], one[1] - less[1]) if one else () for one in process.known)
    pending = tuple((total - less[0], at) for total, at in hand.pending)
    hand = Hand(hand.tokens, hand.usable - less[0], hand.deposited - less[1], pending)
    if reply and reply[0]:
        reply = (True, reply[1] - less[0], reply[2] - less[0])
    return process._replace(known=known, hand=hand, reply=reply), less


@cache
def _relative_sums(known: tuple[Sums, ...]) -> tuple[tuple[Sums, ...], tuple[int, int]]:
    less = min((one[0] for one in known if one), default=0), min((one[1] for one in known if one), default=0)
    return tuple((one[0] - less[0], one[1] - less[1]) if one else () for one in known), less


def search(rules: Rules, processes: int, left: Left, most: int = 10**8) -> tuple[int, list[str]]:
    """(states, the shortest way to a state in which more than the burst was spent; empty where there is none)."""
    first = World((0,), (Process(((0, 0),), registered=True, unbroken=True),) * processes, ((),), 0, left)
    came: dict[World, tuple[World, str] | None] = {first: None}
    level = [first]
    while level:
        following = []
        for world in level:
            for what, after in steps(world, rules):
                after = normalized(after)
                if after in came or len(after.nets) > rules.writes + 1:
                    continue
                came[after] = (world, what)
                if after.spent > rules.burst:
                    return len(came), _way(came, after)
                following.append(after)
        if len(came) > most:
            raise RuntimeError(f"more than {most} states")
        level = following
    return len(came), []


def _way(came: dict[World, tuple[World, str] | None], world: World) -> list[str]:
    way: list[str] = []
    while (before := came[world]) is not None:
        world, what = before
        way.append(what)
    return way[::-1]


if __name__ == "__main__":
    for processes, left in (
        (3, Left(crashes=1, failovers=1, forgotten=1)), (3, Left(saves=1, crashes=1, failovers=1)),
        (3, Left(crashes=1, failovers=2)), (3, Left(crashes=1, failovers=1, late=1)),
        (2, Left(saves=1, crashes=1, failovers=1, forgotten=1, late=1)),
    ):  # fmt: skip
        print(processes, left, *search(Rules(1), processes, left), flush=True)
