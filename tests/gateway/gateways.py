"""A real gateway on a real port for one test, and the images and requests that tests send."""

import base64
import io
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw
from tests.gateway.upstream import until

from stakes import Policy
from stakes.budgets.policy import TierPlan
from stakes.gateway.app import check_policy, create_app
from stakes.gateway.proxy.http_limits import server_options
from stakes.gateway.reload import Served
from stakes.gateway.run import running
from stakes.gateway.settings import Settings

HIGH, LOW = 256, 64


def policy(**more: Any) -> Policy:
    tiers = {"high": TierPlan(cost=5, budget=HIGH), "low": TierPlan(cost=1, budget=LOW)}
    record = {"mean_budget": HIGH, "floor": 16, "tiers": tiers, "fingerprint": "f1nger", **more}
    return Policy.model_validate(record)


def calibrated(errors: float = 0.05, **more: Any) -> Policy:
    """A policy with curves (errors of 5 % at both ends, 300 questions a tier) and a disagreement of 0.16."""
    record = policy(**more).model_dump(by_alias=True)
    for plan in record["tiers"].values():
        plan["curve"] = {"budgets": (plan["budget"], 1024), "errors": (errors, errors), "counts": (300, 300)}
        plan["disagreement"] = 0.16
    return Policy.model_validate(record)


@dataclass
class Gateway:
    """``address``: its root; ``app``: the app, for its metrics; ``served``: its rules."""

    address: str
    app: Any
    served: Served

    @property
    def base_url(self) -> str:
        return f"{self.address}/v1"

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def settle(self) -> None:
        """Wait until no request is in flight: a client has the last byte before the gateway has counted it.

        Half a second at most: a test may hold a request open on purpose.
        """
        until(lambda: self.app.state.metrics.registry.get_sample_value("stakes_requests_in_flight") == 0, 0.5)

    def metric(self, name: str, /, **labels: str) -> float:
        if name != "requests_in_flight":
            self.settle()
        return self.app.state.metrics.registry.get_sample_value(f"stakes_{name}", labels or None) or 0.0

    def state(self) -> dict[str, float]:
        self.settle()
        return self.served.rules.controller.state()


RUNNING: list[Gateway] = []


@contextmanager
def gateway(
    upstream: str,
    rules: Policy | None = None,
    *,
    source: Callable[[], Policy] | None = None,
    files: tuple[Path, ...] = (),
    drain_s: float = 5.0,
    **knobs: Any,
) -> Iterator[Gateway]:
    settings = Settings(**{"upstream": upstream, "probe": False, "watch_s": 0.05, **knobs})
    made = rules or policy()
    served = Served(source or (lambda: made), files, lambda one: check_policy(one, settings))
    app = create_app(settings, served)
    state = {"drain": app.state.drain, "tls": app.state.tls}
    with running(app, **state, **server_options(settings.limits, drain_s)) as address:
        one = Gateway(address, app, served)
        RUNNING.append(one)
        try:
            yield one
        finally:
            RUNNING.remove(one)


def page(width: int = 840, height: int = 1176) -> Image.Image:
    """A page with lines on it: 30 x 42 = 1260 native tokens of Qwen2.5-VL."""
    image = Image.new("RGB", (width, height), "white")
    draw = ImageDraw.Draw(image)
    for row in range(10, height - 10, 30):
        draw.text((10, row), f"Row {row} of the page: {row * 7919}", fill="black")
    return image


def encoded(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def url_of(data: bytes, mime: str = "image/png") -> str:
    return f"data:{mime};base64,{base64.b64encode(data).decode()}"


PAGE = url_of(encoded(page()))


def blank(number: int) -> str:
    """A page without text, quickly made, that differs from those of other numbers; 20 x 30 = 600 native tokens."""
    return url_of(encoded(Image.new("RGB", (560, 840), (number // 256, number % 256, 255))))


def image_part(url: str = PAGE) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


def text_part(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def ask(question: str = "What is the total?", *urls: str, **more: Any) -> dict[str, Any]:
    """A chat request about images."""
    parts = [*(image_part(url) for url in urls or (PAGE,)), text_part(question)]
    return {"model": "tiny", "messages": [{"role": "user", "content": parts}], **more}


def dumped(record: Any) -> bytes:
    return json.dumps(record).encode()
