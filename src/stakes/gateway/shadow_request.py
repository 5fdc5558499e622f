"""How is a request asked again? As it came, at native size, not streamed, and leaving nothing at the upstream."""

from dataclasses import dataclass

from yarl import URL

from stakes.gateway.answers import answer_text
from stakes.gateway.body import unpack
from stakes.gateway.plan import Plan
from stakes.gateway.read_request import dump, parse
from stakes.gateway.refusal import Refused
from stakes.gateway.usage import Tap


@dataclass(frozen=True)
class Came:
    """A request as it came, to be asked again."""

    url: URL
    headers: list[tuple[bytes, bytes]]
    body: bytes
    encoding: bytes


def again(plan: Plan, tap: Tap, came: Came, most: int) -> tuple[bytes, str] | None:
    """(the request at native size and not streamed, the words of the client's answer), None where they cannot be had.

    Reading a large body takes milliseconds: this runs in a thread.
    """
    whole = tap.whole()
    first = None if whole is None else answer_text(plan.api, whole, tap.streamed)
    if first is None:
        return None
    try:
        record = parse(unpack(came.body, came.encoding, most))
    except Refused:
        return None
    if record.get("n") not in (None, 1) or any(record.get(name) for name in ("tools", "background", "temperature")):
        return None
    for name in ("stream", "stream_options"):
        record.pop(name, None)
    if plan.api == "responses":
        record["store"] = False  # it is nobody's conversation
    return dump(record), first
