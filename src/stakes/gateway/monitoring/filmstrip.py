"""A filmstrip for the dashboard: where an answer is printed, as the page looks at each measured budget.

    POST /stakes/filmstrip   {"image": "data:image/png;base64,…", "answer": "12.40", "budget": 304}
    {"frames": [{"budget": 64, "image": "data:image/webp;base64,…", "read": "12.4", "legible": false}, …], "places": 1}

The browser sends the image that the user chose and the answer that it got, and gets the crops back. Nothing is kept:
not the image, not the answer, not what OCR read. OCR finds the place and reads it at each budget; no model is asked and
no token is spent. One strip is made at a time, because OCR takes a core for seconds.
"""

import asyncio
import base64
import binascii
import re
from collections.abc import Sequence
from functools import cached_property
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request as HttpRequest

from stakes.data.sample import Sample
from stakes.data.trim import has_size, trim_sample
from stakes.errors import StakesError, UnreadableImage
from stakes.gateway.proxy.actuators import trim_above
from stakes.gateway.proxy.checks import parse_within
from stakes.gateway.proxy.errors import Refused
from stakes.gateway.proxy.http_limits import read_body
from stakes.gateway.reload import Served
from stakes.gateway.settings import Settings
from stakes.models.base import Request
from stakes.report.filmstrip import Place, seen
from stakes.report.gallery import data_url
from stakes.signals import Prompt
from stakes.vision.geometry import count_tokens
from stakes.vision.image.decode import open_image
from stakes.vision.image.resize import fit

if TYPE_CHECKING:
    from PIL.Image import Image

    from stakes.budgets.policy import Policy
    from stakes.legibility.model import Legibility

FRAMES, CROP = 7, 240
MOST_PIXELS = 25_000_000  # of the page: an A4 page at 400 dpi has 15 million
VALUE = re.compile(r"[\w$€£¥]*\d[\w.,:/-]*\w|\d")  # a number, date or identifier within a sentence


class FilmstripBody(BaseModel):
    """What the browser sends."""

    model_config = ConfigDict(extra="forbid", strict=True)
    image: str
    answer: str = Field(min_length=1, max_length=2000)
    budget: int | None = Field(default=None, ge=1)


class Filmstrips:
    """Makes filmstrips of images that are sent for it; keeps nothing."""

    def __init__(self, settings: Settings, served: Served) -> None:
        self.settings, self.served, self._busy = settings, served, asyncio.Lock()

    @property
    def available(self) -> bool:
        """Whether a strip can be made: OCR is installed, and budgets change the pixels."""
        return find_spec("rapidocr") is not None and self.served.rules.policy.mechanism == "resolution"

    async def answer(self, request: HttpRequest) -> dict[str, Any]:
        """The frames for the body of a request."""
        limits = self.settings.limits
        if not self.available:
            raise Refused(
                501, "no_filmstrip", "a filmstrip needs OCR on the gateway (stakes[ocr]) and a resizing policy"
            )
        if request.headers.get("content-type", "").partition(";")[0] != "application/json":
            raise Refused(415, "bad_filmstrip", "send the image and the answer as application/json")
        if self._busy.locked():
            raise Refused(503, "busy", "another filmstrip is being made; try again in a moment", retry_after=2)
        async with self._busy:
            stated = request.headers.get("content-length", "").encode() or None
            text = await read_body(request.receive, stated, limits.body_bytes, limits.body_s, lambda _: None)
            try:
                body = FilmstripBody.model_validate(parse_within(text, limits))
            except ValidationError as error:
                first = error.errors()[0]
                where = ".".join(map(str, first["loc"])) or "the body"
                raise Refused(400, "bad_filmstrip", f"{where}: {first['msg']}") from None
            return await asyncio.to_thread(self._make, body)

    @cached_property
    def _ocr(self) -> "Legibility":
        from stakes.legibility.model import Legibility

        return Legibility(self.served.rules.policy.family, threads=1, keep=False)

    def _make(self, body: FilmstripBody) -> dict[str, Any]:
        most = min(self.settings.limits.pixels, MOST_PIXELS)
        try:
            image = open_image(base64.b64decode(body.image.partition(",")[2], validate=True), max_pixels=most)
            return self._strip(image, body)
        except (UnreadableImage, binascii.Error):
            message = f"the image cannot be read, or has more than {most / 1e6:g} megapixels"
            raise Refused(422, "unreadable_image", message) from None
        except StakesError as error:
            raise Refused(422, "bad_filmstrip", str(error)) from None
        finally:
            self._ocr.forget()

    def _strip(self, page: "Image", body: FilmstripBody) -> dict[str, Any]:
        policy, ocr = self.served.rules.policy, self._ocr
        budgets = _budgets(sorted(_measured(policy)), body.budget)
        sample = Sample("live", "", spellings(body.answer), load=lambda: page, digest="live")
        if least := trim_above(policy, self.settings, Prompt("")):
            sample = trim_sample(
                sample,
                lambda x, y: count_tokens(policy.family, x, y) >= least and has_size(x, y, min(budgets), policy.family),
            )
        image = open_image(sample.load())
        if ocr.locate([sample]):
            raise Refused(422, "not_printed", "the answer is not printed on the page in these words")
        places = ocr.locations["live"]
        window = Place.around(places[0].boxes).window(image.size)
        readings = ocr.answer([Request(image, "", budget=budget, sample="live") for budget in budgets])
        frames = [
            {
                "budget": budget,
                "image": data_url(seen(fit(image, budget, policy.family), window, CROP), lossless=True),
                "read": reading.text,
                "legible": not reading.truncated,
                "chosen": budget == body.budget,
            }
            for budget, reading in zip(budgets, readings, strict=True)
        ]
        return {"frames": frames, "places": len(places)}


def spellings(answer: str) -> tuple[str, ...]:
    """What to look for on the page: the answer, and the numbers, dates and identifiers in it.

    >>> spellings("The total is $12.40.")
    ('The total is $12.40.', '$12.40')
    """
    return tuple(dict.fromkeys([answer.strip(), *VALUE.findall(answer)]))


def _measured(policy: "Policy") -> set[int]:
    """The budgets that the policy was calibrated at; without curves, those that it gives."""
    grid = {budget for plan in policy.tiers.values() if plan.curve is not None for budget in plan.curve.budgets}
    return grid or set(policy.budgets.values())


def _budgets(grid: Sequence[int], chosen: int | None) -> list[int]:
    """At most ``FRAMES`` budgets, spread over the grid, with the one that was granted."""
    own = [] if chosen is None else [chosen]
    count = min(len(grid), FRAMES - len(own))
    spread = [grid[round(i * (len(grid) - 1) / max(1, count - 1))] for i in range(count)]
    return sorted({*spread, *own})
