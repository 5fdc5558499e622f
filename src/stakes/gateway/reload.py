"""Keeps the served policy up to date: a changed file is checked first, and a bad one is not used.

served = Served(lambda: Policy.load(path), (path,), check)
await served.watch(seconds=1, report=print)         # for as long as the gateway runs
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from stakes.budgets.controller import Controller
from stakes.budgets.controller_path import certified_budgets
from stakes.budgets.digests import edited_parts
from stakes.budgets.options.burst import check_burst
from stakes.budgets.policy import Policy
from stakes.errors import StakesError
from stakes.gateway.accounts import Accounts, CommonLedger, LocalLedger, merge_controllers
from stakes.gateway.monitoring.logs import Log
from stakes.gateway.proxy.clients import Client
from stakes.gateway.sizes import SizeMemory
from stakes.vision.geometry import family as named_family
from stakes.vision.geometry.ladder import ladder
from stakes.vision.geometry.tiles import AnyRes

A4 = (1654, 2339)  # pixels at 200 dpi
LEGIBILITY = (
    "LEGIBILITY, not a VLM's error: this policy was measured by what an OCR engine can still read, and no model "
    "answered; calibrate with the model that is served"
)

UNCOVERED = {
    "read": "tiers as read by the signal; misreading not covered",
    "named": "tiers named by the client; the signal's reading not covered",
}
"""By how a certificate got its tiers (``tiers``), what it does not cover."""
ADVICE = {
    "read": "a question read as a cheaper tier counts at that tier's cost; label the samples and calibrate again",
    "named": "name tiers in the header x-stakes-tier, or calibrate with the signal that reads the requests",
}


@dataclass(frozen=True)
class Rules:
    """A policy, the controller that keeps its total and the sizes it granted; a request uses those it began with."""

    policy: Policy
    controller: Controller
    accounts: Accounts
    sizes: SizeMemory = field(default_factory=SizeMemory)

    @classmethod
    def of(
        cls,
        policy: Policy,
        after: "Rules | None" = None,
        ledger: Callable[[int], CommonLedger] = LocalLedger,
        burst: int | None = None,
    ) -> "Rules":
        """The rules of a policy; they continue the total of ``after``, so that swapping files saves no tokens."""
        made: list[CommonLedger] = []

        def make(burst: int) -> CommonLedger:
            made.append(ledger(burst))
            return made[0]

        check_burst(policy, burst)
        controller = Controller.from_policy(policy, burst, after=after.controller if after else None, ledger=make)
        common = after.accounts.ledger if after else made[0]
        return cls(policy, controller, Accounts(policy, common, after.accounts if after else None))

    def account(self, client: Client) -> Controller:
        """The controller that a client's images are paid from: its own, if its key has a share."""
        share = client.key.share
        return self.controller if share is None else self.accounts.of(client.name, share)

    def close(self) -> None:
        """Return to the ledger what is in hand, at the end of the process."""
        for controller in (*self.accounts.all(), self.controller):
            controller.close()
        self.accounts.ledger.close()

    def state(self) -> dict[str, float]:
        """The controller's state, with the images and tokens of all accounts."""
        states = [controller.state() for controller in (self.controller, *self.accounts.all())]
        return merge_controllers(states) | self.accounts.ledger.state()


@dataclass
class Served:
    """The rules in force; ``source`` builds the policy from ``files``, ``check`` refuses what cannot be served.

    A bad policy is an error here, and later a reload that is not used.
    """

    source: Callable[[], Policy]
    files: tuple[Path, ...] = ()
    check: Callable[[Policy], None] = lambda _: None
    ledger: Callable[[int], CommonLedger] = LocalLedger
    burst: int | None = None
    rules: Rules = field(init=False)
    _stamp: tuple[tuple[int, int, int], ...] = field(init=False)

    def __post_init__(self) -> None:
        self._stamp = tuple(map(file_stamp, self.files))
        policy = self.source()
        self.check(policy)
        self.rules = Rules.of(policy, ledger=self.ledger, burst=self.burst)

    def reload_if_changed(self, force: bool = False) -> str | None:
        """Reload if a file changed: "loaded", "same" budgets, or why it is not used; None where nothing changed."""
        stamp = tuple(map(file_stamp, self.files))
        if stamp == self._stamp and not force:
            return None
        self._stamp = stamp
        try:
            policy = self.source()
            self.check(policy)
            if _same_budgets(policy, self.rules.policy):  # the controller's state continues
                self.rules = replace(self.rules, policy=policy)
                return "same"
            self.rules = Rules.of(policy, after=self.rules, burst=self.burst)
        except StakesError as error:
            return str(error)
        except Exception as error:  # a file may hold anything: endless nesting, numbers that overflow
            reason = type(error).__name__ + (f": {error}" if str(error) else "")
            return f"the policy could not be read: {reason}; correct {', '.join(map(str, self.files))}"
        return "loaded"

    async def watch(self, seconds: float, report: Callable[[str], None]) -> None:
        """Check the files every ``seconds`` until cancelled; ``report`` gets the result of each reload."""
        while True:
            await asyncio.sleep(seconds)
            try:
                result = await asyncio.to_thread(self.reload_if_changed)
                if result is not None:
                    report(result)
            except Exception as error:
                files = ", ".join(map(str, self.files))
                Log().write("a reload failed; its files are still watched", logging.ERROR, failure=error, files=files)


def _same_budgets(one: Policy, other: Policy) -> bool:
    """Whether the controller would do the same under both; it does not use the signal."""
    unused = {"model", "metric", "signal", "fingerprint", "estimator", "documents"}
    same = one.model_dump(exclude=unused) == other.model_dump(exclude=unused)
    return same and certified_budgets(one) == certified_budgets(other)  # another signal may end a certificate


def file_stamp(path: Path) -> tuple[int, int, int]:
    """Time, size and inode of a file; the inode changes when a file is replaced by a rename."""
    try:
        stat = path.stat()
    except OSError:
        return 0, 0, 0
    return stat.st_mtime_ns, stat.st_size, stat.st_ino


def policy_warnings(policy: Policy) -> list[str]:
    """What is weaker about this policy than it looks, for the start, the log, ``doctor`` and the dashboard."""
    warnings = [LEGIBILITY] if policy.basis == "legibility" else []
    warnings += certificate_warnings(policy)
    if isinstance(named_family(policy.family).formula, AnyRes):  # reads every image once whole and again in tiles
        least = ladder(*A4, policy.family)[0].tokens
        short = ", ".join(f"{tier} {budget}" for tier, budget in policy.budgets.items() if budget < least)
        if short:
            warnings.append(
                f"BUDGETS TOO LOW: an A4 page takes at least {least} tokens in {policy.family}, so that requests with "
                f"the budgets {short} are refused; give {least} or more"
            )
    return warnings


def certificate_warnings(policy: Policy) -> list[str]:
    """What the policy's certificate does not guarantee; empty without one."""
    certificate = policy.certificate
    if certificate is None:
        return []
    if edited := edited_parts(policy):
        what = f"other {' and other '.join(edited)} than this policy has"
        if "budgets" in edited:
            what = f"budgets {certificate.get('budgets')}, the policy's are {policy.budgets}"
        return [f"NOT CERTIFIED: the certificate is for {what}; it guarantees nothing; calibrate again with --certify"]
    warnings = []
    if "digest" not in certificate:
        warnings.append(
            "CERTIFICATE OF AN OLDER VERSION: only its budgets are checked, and edits of costs, mean, signal, curves "
            "or bounds are not detected; calibrate again with --certify"
        )
    tiers = certificate.get("tiers", "read")
    if tiers in UNCOVERED:
        warnings.append(f"CERTIFICATE: {certificate.get('covers', UNCOVERED[tiers])}; {ADVICE[tiers]}")
    return warnings
