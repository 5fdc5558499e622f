"""How does an image go to a server? As PNG in a data URL, fitted to its budget, made once for all who ask about it."""

from __future__ import annotations

import base64
import io
import time
from dataclasses import dataclass

from PIL.Image import Resampling

from stakes.models.base import Request
from stakes.vision.decode import open_image
from stakes.vision.geometry import accepted_size, count_tokens
from stakes.vision.resize import fit


@dataclass(frozen=True)
class Sent:
    """An image as it goes out: its data URL, the tokens that it will take, those that it would take, milliseconds."""

    url: str
    tokens: int
    native: int
    ms: float


def send_once(request: Request, family: str, made: dict[tuple[int, int | None], Sent]) -> tuple[Sent, bool]:
    """The request's image, and whether it was made now; ``made``: those of this call, by image and budget."""
    key = (id(request.image), request.budget)
    if key in made:
        return made[key], False
    began = time.perf_counter()
    if request.budget is None:
        image = open_image(request.image)
        size = accepted_size(family, *image.size)
        image = image if size == image.size else image.resize(size, Resampling.LANCZOS)
        tokens = native = count_tokens(family, *size)
    else:
        fitted = fit(request.image, request.budget, family)
        image, tokens, native = fitted.image, fitted.tokens, fitted.native
    data = io.BytesIO()
    image.save(data, "PNG", compress_level=1)  # as small as the default's on real pages, in a third of its time
    url = f"data:image/png;base64,{base64.b64encode(data.getvalue()).decode('ascii')}"
    made[key] = Sent(url, tokens, native, 1000 * (time.perf_counter() - began))
    return made[key], True
