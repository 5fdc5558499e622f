"""What does an answer cost against tokens, questions and images? Ladders over a model, selectors, the size search.

The model is the embedded reader, which answers in as many tokens as it needs; pages are synthetic and scaled up so that
no budget exceeds them. Selectors choose among random features with a quarter of blank paper, keeping a quarter.
"""

from __future__ import annotations

from functools import cached_property, partial
from statistics import median
from typing import Any

import torch
from benchmarks.growth_ladder import Ladder, Work, exponent, geometric, judged
from benchmarks.latency_floors import Rates, decoder, encoder
from PIL import Image

from stakes import models
from stakes.data import synthetic as pages
from stakes.data.synthetic.page import Page
from stakes.models import Request
from stakes.models.local.image_cache import EncodedCache
from stakes.vision.image.grid_sizes import best_grid
from stakes.vision.image.resize import fitted_size
from stakes.vision.selectors import make
from stakes.vision.selectors.base import Scene
from stakes.vision.selectors.layers import LayerView

WIDTH, HEADS, TEXT = 256, 4, 32  # of a feature; of a decoder layer; tokens of text after the image
SHARE = 4  # a quarter is kept
STAGES = {"answer": "operations of both", "encoder": "operations: attention 2, the rest 1", "prefill": "the same"}
SELECTORS = (  # name, most tokens, exponent, why; quick ones go on until no cache holds their features
    ("random", 65_536, 1, "sorts: n log n"),
    ("saliency", 65_536, 1, "sorts: n log n"),
    ("visionzip", 8192, 2, "each token against a share of all"),
    ("redundancy", 4096, 2, "each kept token against all"),
    ("redundancy:seed=nearest", 4096, 2, "each token against all"),
    ("cdpruner", 8192, 3, "k steps over k rows of n"),
    ("divprune", 4096, 2, "each kept token against all"),
    ("fastervlm", 65_536, 1, "sorts: n log n"),
    ("vispruner", 2048, 3, "rounds over pairs of what is left"),
    ("holov", 65_536, 1, "sorts: n log n"),
    ("prumerge", 8192, 2, "each kept token against all"),
    ("mmtok", 2048, 3, "k steps over n rows of n"),
    ("dart", 65_536, 1, "a few pivots against all"),
    ("fastv", 65_536, 1, "one row of attention"),
    ("fastv:rows=mean", 8192, 2, "all rows of attention"),
    ("pyramiddrop", 65_536, 1, "one row of attention"),
    ("sparsevlm", 8192, 2, "clusters a share of all: pairs"),
)
BEYOND = (4800, 16_384)  # tokens: redundancy no longer keeps the matrix of distances, and makes each row anew


class Answers:
    """The embedded reader and large pages with many questions; neither is made before it is asked for."""

    def __init__(self, device: str) -> None:
        self.device = device

    @cached_property
    def model(self) -> Any:
        """The reader."""
        return models.load("embedded", device=self.device)

    @cached_property
    def drawn(self) -> list[Page]:
        """Pages as they are drawn."""
        return [pages.draw("forms", seed, "test") for seed in range(32)]

    @cached_property
    def pages(self) -> list[Image.Image]:
        """The same, scaled so that no budget exceeds them."""
        return [page.image.resize((28 * 60, 28 * 80)) for page in self.drawn]

    @cached_property
    def questions(self) -> list[str]:
        """All that is asked of them."""
        return [question.text for page in self.drawn for question in page.questions]

    def ask(self, requests: list[Request]) -> Work:
        """One ``answer`` with nothing remembered."""

        def work() -> Any:
            self.model.cache = EncodedCache()
            return self.model.answer(requests)

        return work

    def tokens(self, budget: int) -> Work:
        """One question of one page at this budget."""
        return self.ask([Request(self.pages[0], self.questions[0], budget)])

    def batch(self, size: int) -> Work:
        """So many questions of one page."""
        return self.ask([Request(self.pages[0], question, 304) for question in self.questions[:size]])

    def images(self, size: int) -> Work:
        """One question of each of so many pages."""
        return self.ask([Request(page, self.questions[0], 304) for page in self.pages[:size]])

    def must(self, stage: str, sizes: list[int]) -> float:
        """The exponent of the operations that a stage takes over these budgets; of the answer, of both stages."""
        unlimited, points = Rates(bytes=1e30, operations=1.0), []
        for size in sizes:
            fitted = fitted_size(*self.pages[0].size, size)
            grid = (1, fitted.height // 14, fitted.width // 14)
            length = len(self.model.processor.ids(self.questions[0], fitted.tokens))
            spent = {"encoder": encoder(self.model.model, unlimited, [grid])}
            spent["prefill"] = decoder(self.model.model, unlimited, [length], 1)[0]
            points.append((size, spent["encoder"] + spent["prefill"] if stage == "answer" else spent[stage]))
        return exponent(points).value

    def stages(self, sizes: list[int], repeats: int) -> list[dict[str, Any]]:
        """Encoder and prefill apart, against tokens: wall time, as the model itself counts it."""
        points: dict[str, list[tuple[int, float]]] = {"encoder": [], "prefill": []}
        for size in sizes:
            work = self.tokens(size)
            work()
            runs = [work()[0].timings for _ in range(repeats)]  # type: ignore[index]
            for stage, found in points.items():
                found.append((size, median(run[stage] for run in runs)))
        return [
            judged(f"answer: {stage}", "tokens", found, self.must(stage, sizes), STAGES[stage])
            for stage, found in points.items()
        ]


def scene(tokens: int, device: str) -> Scene:
    """Features of a page: near one another, a quarter of them blank paper."""
    dice = torch.Generator().manual_seed(0)
    features = torch.randn(tokens, WIDTH, generator=dice) + 2 * torch.randn(1, WIDTH, generator=dice)
    features[::4] = features[0].clone()
    looks, keys = torch.rand(tokens, generator=dice), torch.randn(tokens, 80, generator=dice)
    question = torch.randn(20, WIDTH, generator=dice)
    return Scene(features.to(device), question.to(device), "a page", looks.to(device), keys.to(device))


def view(tokens: int, device: str) -> LayerView:
    """The same within a decoder of random layers, text behind the image."""
    from transformers import Qwen2Config
    from transformers.models.qwen2.modeling_qwen2 import Qwen2DecoderLayer

    config: Any = Qwen2Config(
        hidden_size=WIDTH, num_attention_heads=HEADS, num_key_value_heads=HEADS, intermediate_size=WIDTH
    )
    layer = Qwen2DecoderLayer(config, 0).to(device).eval()
    dice = torch.Generator().manual_seed(0)
    hidden = torch.randn(tokens + TEXT, WIDTH, generator=dice).to(device)
    turn = torch.rand(tokens + TEXT, WIDTH // HEADS, generator=dice).to(device)
    every = torch.arange(tokens + TEXT, device=device)
    return LayerView(1, [layer, layer], hidden, hidden, turn, turn, every[:tokens], every, hidden, torch.nn.Identity())


def selection(name: str, device: str, tokens: int) -> Work:
    """Choosing a quarter, nothing remembered."""
    selector: Any = make(name)
    if hasattr(selector, "stages"):
        seen = view(tokens, device)
        return lambda: selector.select(seen, tokens // SHARE)
    looked = scene(tokens, device)

    def work() -> None:
        looked.rankings.clear()
        selector.select(looked, tokens // SHARE)

    return work


def steps(last: int, quick: bool) -> list[int]:
    """From 256 tokens on; a quick look ends at 1,024."""
    return geometric(256, 1024 if quick else last, 5 if quick else 9)


def ladders(quick: bool, device: str, answers: Answers) -> list[Ladder]:
    """All of them; ``quick`` ends each early."""
    tokens = geometric(64, 1024 if quick else 4096, 5 if quick else 9)
    together = geometric(1, 8 if quick else 32, 4 if quick else 8)
    searched = geometric(16, 1024 if quick else 8192, 5 if quick else 10)
    return [
        Ladder("answer", "tokens", tokens, answers.tokens, partial(answers.must, "answer", tokens), STAGES["answer"]),
        Ladder("answer: questions of one page", "a batch of", together, answers.batch, 1, "a prompt each"),
        Ladder("answer: images, a question each", "a batch of", together, answers.images, 1, "a page each"),
        *(
            Ladder(f"selector: {name}", "tokens", steps(last, quick), partial(selection, name, device), must, why)
            for name, last, must, why in SELECTORS
        ),
        Ladder("selector: redundancy, rows anew", "tokens", geometric(*BEYOND, 5)[: 3 if quick else 5],
               partial(selection, "redundancy", device), 2, "each kept token against all"),
        Ladder("search for a size", "budget", searched,
               lambda b: lambda: best_grid(7000, 9000, b), 0.5, "walks along one side of the grid"),
    ]  # fmt: skip
