"""Which policy is served right now? The file's latest good one: a changed file is checked first, a bad one is not used.

served = Served.start(lambda: Policy.load(path), (path,), check)
await served.watch(seconds=1, tell=print)         # for as long as the gateway runs
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from stakes.budgets.policy import Policy
from stakes.errors import StakesError
from stakes.gateway.controller import Controller
from stakes.gateway.logs import Log
from stakes.signals import Signal

Check = Callable[[Policy], None]
Stamp = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class Rules:
    """A policy and the controller that keeps its total; a request holds on to the pair that it began with."""

    policy: Policy
    controller: Controller

    @classmethod
    def of(cls, policy: Policy, after: "Rules | None" = None) -> "Rules":
        """The rules of a policy; the total of the ones before goes on, so that swapping files gives nothing away."""
        return cls(policy, Controller.from_policy(policy, after=after.controller if after else None))


@dataclass
class Served:
    """The rules in force; ``source`` builds the policy from ``files``, ``check`` refuses what cannot be served."""

    rules: Rules
    source: Callable[[], Policy]
    files: tuple[Path, ...] = ()
    check: Check = lambda _: None
    _stamp: Stamp = field(default=(), init=False)

    @classmethod
    def start(cls, source: Callable[[], Policy], files: tuple[Path, ...], check: Check) -> "Served":
        """Load for the first time; a bad policy is an error here."""
        stamp = _stamp_of(files)
        policy = source()
        check(policy)
        served = cls(Rules.of(policy), source, files, check)
        served._stamp = stamp
        return served

    def look(self) -> str | None:
        """Reload if a file changed: "loaded", "same" budgets, or why it is not used; None where nothing changed."""
        stamp = _stamp_of(self.files)
        if stamp == self._stamp:
            return None
        self._stamp = stamp
        try:
            policy = self.source()
            self.check(policy)
            if _same_budgets(policy, self.rules.policy):  # the running total goes on
                self.rules = Rules(policy, self.rules.controller)
                return "same"
            self.rules = Rules.of(policy, after=self.rules)
        except StakesError as error:
            return str(error)
        except Exception as error:  # a file may hold anything: nesting without end, numbers beyond every float
            kind, said = type(error).__name__, f": {error}" if str(error) else ""
            return f"the policy could not be read: {kind}{said}; correct {', '.join(map(str, self.files))}"
        return "loaded"

    async def watch(self, seconds: float, tell: Callable[[str], None]) -> None:
        """Look every so often until cancelled; ``tell`` hears what came of it, and may fail."""
        while True:
            await asyncio.sleep(seconds)
            try:
                result = await asyncio.to_thread(self.look)
                if result is not None:
                    tell(result)
            except Exception as error:
                files = ", ".join(map(str, self.files))
                Log().say("a reload failed; its files are still watched", logging.ERROR, failure=error, files=files)


def with_signal(policy: Policy, signal: Signal | None) -> Policy:
    """The policy reading its tiers with another signal than its own, if one is given."""
    if signal is not None:
        policy.use(signal)
    return policy


def _same_budgets(one: Policy, other: Policy) -> bool:
    """Whether the controller would do the same under both; the signal is nothing to it."""
    apart = {"signal", "fingerprint", "estimator", "documents"}
    return one.model_dump(exclude=apart) == other.model_dump(exclude=apart)


def _stamp_of(files: tuple[Path, ...]) -> Stamp:
    """What changes when a file does: also by a rename in its place."""
    stamps = []
    for path in files:
        try:
            about = path.stat()
            stamps.append((about.st_mtime_ns, about.st_size, about.st_ino))
        except OSError:
            stamps.append((0, 0, 0))
    return tuple(stamps)
