"""What was decided about one request? Its tier, budgets and tokens: for the headers, the metrics and the log.

``outcome`` is text, fitted, observed, bypassed, grounding or uncompressed; the last three are outside the cap.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from stakes.gateway.controller import Grant
from stakes.gateway.header_text import plain
from stakes.gateway.read_request import Api
from stakes.gateway.reload import Rules

APART = ("bypassed", "grounding", "uncompressed")


@dataclass(frozen=True)
class Pair:
    """An image before and after, for the live page; ``seen_url`` is None where the model saw the original."""

    format: str
    original: bytes
    seen_url: str | None


@dataclass
class Plan:
    """One image request on its way.

    ``natives``, ``budgets``, ``predicted`` and ``scales``: one entry for each image that was measured. ``unmeasured``:
    images that went by unseen (remote, uploaded files). ``expected``: what the server should count for all images,
    None where some were not measured. ``left_out``: the first images, where the server says that it did not read them.
    ``body``: what is sent instead, None where it is sent as it came.
    """

    api: Api
    rules: Rules
    tier: str = ""
    why: str = ""
    outcome: str = "text"
    body: bytes | None = None
    natives: Sequence[int] = ()
    budgets: Sequence[int] = ()
    predicted: Sequence[int] = ()
    scales: Sequence[tuple[float, float]] = ()
    unmeasured: int = 0
    left_out: int = 0
    fetched: bool = False  # whether an image came from another host
    grant: Grant | None = None
    fit_s: float = 0.0
    model: str = ""
    question: str = field(default="", repr=False)
    pairs: list[Pair] = field(default_factory=list, repr=False)  # empty unless the page keeps images

    @property
    def images(self) -> int:
        """How many images the request has, seen or not."""
        return len(self.natives) + self.unmeasured

    @property
    def expected(self) -> int | None:
        """Tokens that the server should count for the images."""
        if self.unmeasured or not self.natives:
            return None
        return sum((self.predicted if self.outcome == "fitted" else self.natives)[self.left_out :])

    def settle(self) -> None:
        """The images were read by the model: their tokens are spent."""
        if self.grant is not None:
            self.rules.controller.settle(self.grant, sum(self.predicted))
            self.grant = None

    def cancel(self) -> None:
        """No model read them: the grant goes back."""
        if self.grant is not None:
            self.rules.controller.cancel(self.grant)
            self.grant = None

    def headers(self, mode: str) -> list[tuple[bytes, bytes]]:
        """What the client is told; several images' numbers stand with commas between."""
        said = {
            "tier": self.tier,
            "why": self.why,
            "budget": ",".join(map(str, self.budgets)),
            "native-tokens": ",".join(map(str, self.natives)),
            "predicted-tokens": ",".join(map(str, self.predicted)),
            "scale": ",".join(f"{x:.4f}x{y:.4f}" for x, y in self.scales),
            "policy": self.rules.policy.fingerprint,
            "mode": mode,
            "outcome": self.outcome,
        }
        return [(f"x-stakes-{name}".encode(), plain(text)) for name, text in said.items() if text]
