"""Which policy is served right now? The file's latest good one: a changed file is checked first, a bad one is not used.

served = Served.start(lambda: Policy.load(path), (path,), check)
await served.watch(seconds=1, tell=print)         # for as long as the gateway runs
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from stakes.budgets.controller import Controller
from stakes.budgets.controller_path import kept
from stakes.budgets.policy import Policy
from stakes.errors import StakesError
from stakes.gateway.monitoring.logs import Log
from stakes.signals import Signal
from stakes.vision.geometry import family as named_family
from stakes.vision.geometry.anyres import AnyRes
from stakes.vision.geometry.ladder import ladder

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


# What should whoever runs a policy know before trusting it? Sentences for the start, the log, doctor and the page.
#
# for sentence in cautions(policy):
#     print(f"warning: {sentence}")


A4 = (1654, 2339)  # pixels at 200 dpi
LEGIBILITY = (
    "LEGIBILITY, not a VLM's error: this policy was measured by what an OCR engine can still read, and no model "
    "answered; calibrate with the model that is served"
)


def cautions(policy: Policy) -> list[str]:
    """Whatever about this policy is weaker than it looks; empty where its curves are answers and pages can take it."""
    read = [LEGIBILITY] if policy.basis == "legibility" else []
    return [*read, *_of_other_budgets(policy), *_below_the_lowest_rung(policy)]


def _of_other_budgets(policy: Policy) -> list[str]:
    """A certificate beside budgets that it does not speak of."""
    if policy.certificate is None or kept(policy) is not None:
        return []
    return [
        f"NOT CERTIFIED: the certificate is of budgets {policy.certificate.get('budgets')}, the policy's are "
        f"{policy.budgets}; nothing of it is kept; calibrate again with --certify"
    ]


def _below_the_lowest_rung(policy: Policy) -> list[str]:
    """Budgets that AnyRes, which reads every image once whole and again in tiles, reaches with hardly any image."""
    if not isinstance(named_family(policy.family).formula, AnyRes):
        return []
    least = ladder(*A4, policy.family)[0].tokens
    short = ", ".join(f"{tier} {budget}" for tier, budget in policy.budgets.items() if budget < least)
    if not short:
        return []
    return [
        f"NO RUNG SO LOW: a page of A4 takes {least} tokens or more in {policy.family}, which the budgets {short} do "
        f"not pay, so that its requests are refused; give {least} or more"
    ]
