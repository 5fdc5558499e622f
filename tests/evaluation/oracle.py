"""A model whose answers are known beforehand: it reads a question if the budget reaches that question's difficulty.

The right answer is the question's last word, and the difficulty a hash of image and question, so that it is a
deterministic function of pixels, words and budget like any other reader, and costs nothing.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from PIL import Image

from stakes.data.sample import Sample
from stakes.models.base import Answer, Request
from stakes.vision.geometry import count_tokens
from stakes.vision.image.decode import probe
from stakes.vision.image.resize import fitted_size


@dataclass
class Oracle:
    family: str = "qwen2.5-vl"
    name: str = "oracle"
    seconds: float = 0.0  # per batch, so that there is something to interrupt
    batches: list[list[Request]] = field(default_factory=list)

    def identity(self) -> dict[str, str]:
        return {"name": self.name}

    def answer(self, requests: Sequence[Request]) -> list[Answer]:
        self.batches.append(list(requests))
        time.sleep(self.seconds)
        return [self._answer(request) for request in requests]

    def _answer(self, request: Request) -> Answer:
        data = request.image if isinstance(request.image, bytes) else request.image.tobytes()
        size = request.image.size if isinstance(request.image, Image.Image) else probe(data)[1:]
        native = count_tokens(self.family, *size)
        budget = request.budget or native
        spent = budget
        if request.mechanism == "resolution":
            spent = fitted_size(*size, budget, self.family).tokens
        read = spent >= difficulty(data, request.question)
        text = request.question.split()[-1].rstrip("?") if read else "unreadable"
        return Answer(text, native, request.budget, spent, False, {"prefill": 1.0})


def difficulty(image: bytes, question: str) -> int:
    """1 to 600 tokens; a question for an amount is harder."""
    seed = hashlib.blake2b(image + question.encode(), digest_size=4).digest()
    drawn = int.from_bytes(seed, "big") / 2**32
    return 1 + int(599 * (drawn**0.5 if "total" in question else drawn))


def page(number: int, width: int = 1008, height: int = 756) -> Image.Image:
    return Image.new("L", (width, height), number % 256)


def write_samples(folder: Path, pages: int, per_page: int = 2) -> list[Sample]:
    """Samples with their images on disk: on each page half of the questions are for a total, which is high-cost."""
    samples = []
    for number in range(pages):
        page(number).save(folder / f"page{number}.png", compress_level=1)
        for k in range(2 * per_page):
            high_cost = k % 2 == 0
            what = "total" if high_cost else "title"
            samples.append(
                Sample(
                    id=f"p{number}q{k}",
                    image=f"page{number}.png",
                    question=f"What {what} is given for word{number}x{k}?",
                    answers=(f"word{number}x{k}",),
                    tier="high" if high_cost else "low",
                    document=f"page{number}",
                )
            )
    return samples
