"""What does an image cost on its way to the model? Ladders over pixels, images of a call or a request, and PDF pages.

Pages are synthetic. Escalation is a second fit of the same images to a larger budget, as the gateway does it; the
deletion actuator writes the budgets of a request for vLLM's plugin, which needs no vLLM. PDF pages are drawn in a child
process; what is counted is this process's part (asking for each page and receiving it).
"""

from __future__ import annotations

import io
from functools import cache, partial
from typing import Any

from benchmarks.growth_ladder import Ladder, Work, geometric
from PIL import Image

from stakes.data import synthetic
from stakes.gateway.pdf.renderer import PdfRenderer
from stakes.gateway.proxy.actuators import apply
from stakes.gateway.proxy.images import data_url, fit_image, measure_bytes
from stakes.gateway.proxy.request import dump_images, read_call
from stakes.gateway.settings import Limits
from stakes.models import Request
from stakes.models.local.ahead import ImagesAhead
from stakes.vision.image.resize import fit

FAMILY = "qwen2.5-vl"


@cache
def page(kilopixels: int, kind: str, seed: int = 0) -> bytes:
    """A page of so many thousand pixels as a file."""
    side = int((1000 * kilopixels / 12) ** 0.5)
    out = io.BytesIO()
    drawn = synthetic.draw("forms", seed, "test").image.convert("RGB")
    drawn.resize((3 * side, 4 * side), Image.Resampling.BICUBIC).save(out, kind)
    return out.getvalue()


def _fit(kind: str, trim: bool, kilopixels: int) -> Work:
    data = page(kilopixels, kind)
    return lambda: fit(data, 304, trim=trim)


def _ahead(images: int) -> Work:
    requests = [Request(page(400, "PNG", seed % 4), "?", 100 + seed) for seed in range(images)]

    def work() -> None:
        ahead = ImagesAhead()
        ahead.start(requests, FAMILY)
        assert len(ahead.take(requests)[0]) == images

    return work


def _call(images: int) -> tuple[Any, list[Any]]:
    """A request with so many images, and the images measured."""
    files = [page(400, "PNG", seed % 4) for seed in range(images)]
    parts = [{"type": "image_url", "image_url": {"url": data_url(data, "png")}} for data in files]
    call = read_call("chat", {"messages": [{"role": "user", "content": [*parts, {"type": "text", "text": "?"}]}]})
    return call, [measure_bytes(data, FAMILY, Limits()) for data in files]


def _attempts(budgets: tuple[int, ...], images: int) -> Work:
    """Fit a request's images to each budget in turn, and write its body."""
    call, measured = _call(images)

    def work() -> None:
        for budget in budgets:
            for ref, image in zip(call.images, measured, strict=True):
                ref.url = fit_image(image, budget, FAMILY, "png").url or ""
            dump_images(call.record, call.images)

    return work


def _deletion(images: int) -> Work:
    call, measured = _call(images)

    def work() -> None:
        apply("vllm-deletion", FAMILY, call, call.images, measured, [100] * images, "redundancy")
        call.record.pop("mm_processor_kwargs")

    return work


def _pdf(pages: int) -> Work:
    out = io.BytesIO()
    drawn = [synthetic.draw("forms", seed % 4, "test").image.convert("RGB") for seed in range(pages)]
    drawn[0].save(out, "PDF", save_all=True, append_images=drawn[1:])
    data, renderer = out.getvalue(), PdfRenderer(Limits(images=pages))

    def work() -> None:
        for one in renderer.pages(data, "a.pdf", pages):
            one.draw(420, 560)

    return work


def ladders(quick: bool) -> list[Ladder]:
    """All of them; ``quick`` ends each early."""
    pixels = geometric(400, 3200 if quick else 24_000, 4 if quick else 7)
    images = geometric(1, 8 if quick else 64, 4 if quick else 7)
    fits = [("PNG", False), ("JPEG", False), ("PNG", True)]
    return [
        *(
            Ladder(f"fit: {kind}{', trimmed' if trim else ''}", "thousand pixels", pixels,
                   partial(_fit, kind, trim), 1, "reads each once")
            for kind, trim in fits
        ),
        Ladder("images opened ahead", "images", images, _ahead, 1, "a fit each"),
        Ladder("gateway: one attempt", "images", images, partial(_attempts, (64,)), 1, "a fit each"),
        Ladder("gateway: escalation", "images", images, partial(_attempts, (64, 304)), 1, "two fits each"),
        Ladder("gateway: deletion", "images", images, _deletion, 1, "a budget each"),
        Ladder("gateway: pages of a PDF", "images", images, _pdf, 1, "a page each, received"),
    ]  # fmt: skip
