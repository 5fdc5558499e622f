"""One question about many pages under one cap: spread evenly, shared by content, or two passes.

    python benchmarks/many_pages.py --out docs/results/many-pages.json

100 documents of 2 to 20 synthetic test pages, of which one has the answer; the others are of other kinds, lack the
field that is asked for, or are blank. Every way may spend the cap on a document and no more:

    equal     the same budget for each page, within its native tokens
    content   budgets in proportion to ``density(patch_features)`` of each page
    two-pass  half of the cap evenly; then the rest on the page whose answer is surest

The embedded reader reads one image at a time, so each page is asked, and the answer with the highest confidence counts.
A model that reads all pages in one context compares them in another way; this measures budgets, not such models. It
takes 5 minutes of one CPU at a cap of 1024, and 13 at 4096.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.machine import about

from stakes.calibration.arms import content, density, patch_features
from stakes.commands.output import as_markdown
from stakes.data.synthetic import Page, Question, draw
from stakes.evaluation.grading import grade, is_correct
from stakes.evaluation.statistics import discordant
from stakes.models import load
from stakes.models.base import VLM, Request

FLOOR = 16  # the reader's smallest image
FIRST = 0.5  # of the cap, in the first of two passes
FEWEST, MOST = 2, 20
ANSWER = ("forms", "receipts", "infographics", "charts")
OTHERS = (*ANSWER, *ANSWER, "signs", "shapes", "blank")
BATCH = 16


@dataclass(frozen=True)
class Document:
    """Pages, a question, and which page has the answer."""

    pages: Sequence[Image.Image]
    question: Question
    at: int

    @property
    def native(self) -> list[int]:
        """Tokens of each page at its own size; all sides are multiples of 28."""
        return [max(FLOOR, page.width * page.height // 784) for page in self.pages]


@dataclass(frozen=True)
class Result:
    """How one document was answered: right or not, tokens spent, and whether the chosen page was that of the answer."""

    right: bool
    tokens: int
    found: bool


def documents(count: int) -> list[Document]:
    """Documents of 2 to 20 pages, each length equally often; alike in every run."""
    made = []
    for number in range(count):
        dice = random.Random(number)
        family = ANSWER[number % len(ANSWER)]
        page = draw(family, 5000 + number, "test")
        question = dice.choice(page.questions)
        length = FEWEST + number * (MOST - FEWEST + 1) // count
        others = [_other(dice, question) for _ in range(length - 1)]
        at = dice.randrange(length)
        made.append(Document([*others[:at], page.image, *others[at:]], question, at))
    return made


def _other(dice: random.Random, question: Question) -> Image.Image:
    """A page that does not answer the question."""
    while True:
        family = dice.choice(OTHERS)
        if family == "blank":
            return Image.new("RGB", (672, 868), "white")
        page: Page = draw(family, dice.randrange(10_000, 1_000_000), "test")
        if all(one.field != question.field and one.text != question.text for one in page.questions):
            return page.image


def shared(document: Document, weights: Sequence[float], total: int) -> Sequence[int]:
    """A total in proportion to weights, between the floor and native tokens."""
    return content(weights, min(total, sum(document.native)), native=document.native, floor=FLOOR)


def read(model: VLM, document: Document, budgets: Sequence[int]) -> tuple[list[str], list[float], int]:
    """The answer of each page, how sure it is, and the tokens of all."""
    requests = [
        Request(*one) for one in zip(document.pages, [document.question.text] * len(budgets), budgets, strict=True)
    ]
    answers = [one for i in range(0, len(requests), BATCH) for one in model.answer(requests[i : i + BATCH])]
    sure = [one.confidence or 0.0 for one in answers]
    return [one.text for one in answers], sure, sum(one.realised_tokens for one in answers)


def one_pass(model: VLM, document: Document, weights: Sequence[float], cap: int) -> Result:
    """All pages once."""
    texts, sure, tokens = read(model, document, shared(document, weights, cap))
    best = sure.index(max(sure))
    return Result(_right(texts[best], document), tokens, best == document.at)


def equal(model: VLM, document: Document, cap: int) -> Result:
    """The same budget for each page."""
    return one_pass(model, document, [1.0] * len(document.pages), cap)


def by_content(model: VLM, document: Document, cap: int) -> Result:
    """More for pages that hold more."""
    return one_pass(model, document, [density(patch_features(page)) for page in document.pages], cap)


def two_pass(model: VLM, document: Document, cap: int) -> Result:
    """Few tokens to find the page, and the rest to read it."""
    first = shared(document, [1.0] * len(document.pages), max(int(FIRST * cap), FLOOR * len(document.pages)))
    _, sure, spent = read(model, document, first)
    best = sure.index(max(sure))
    page = Document([document.pages[best]], document.question, 0)
    texts, _, tokens = read(model, page, [min(cap - spent, page.native[0])])
    return Result(_right(texts[0], document), spent + tokens, best == document.at)


def _right(text: str, document: Document) -> bool:
    return is_correct(grade(text, document.question.answers, "value"))


WAYS: dict[str, Callable[[VLM, Document, int], Result]] = {
    "equal": equal,
    "content": by_content,
    "two-pass": two_pass,
}


def tables(results: dict[int, dict[str, list[Result]]], lengths: Sequence[int]) -> dict[str, dict[str, list[Any]]]:
    """Errors and tokens of each way, by cap and by length; and each pair of ways by McNemar's test."""
    rows, pairs = [], []
    for cap, ways in results.items():
        for label, kept in (("2-20", range(FEWEST, MOST + 1)), ("2-7", range(2, 8)), ("8-20", range(8, MOST + 1))):
            chosen = [i for i, length in enumerate(lengths) if length in kept]
            for way, found in ways.items():
                part = [found[i] for i in chosen]
                wrong, size = sum(not one.right for one in part), len(part)
                tokens, at = sum(one.tokens for one in part) / size, sum(one.found for one in part) / size
                rows.append([cap, label, way, size, wrong / size, round(tokens), at])
        for before, after in (("equal", "content"), ("equal", "two-pass"), ("content", "two-pass")):
            test = discordant([one.right for one in ways[before]], [one.right for one in ways[after]])
            pairs.append([cap, f"{before} to {after}", test.b, test.c, round(test.p, 4)])
    ways_columns = ["cap", "pages", "way", "documents", "error", "tokens", "page found"]
    return {
        "many-pages": {"columns": ways_columns, "rows": rows},
        "many-pages-tests": {"columns": ["cap", "comparison", "wins", "losses", "p (McNemar)"], "rows": pairs},
    }


def main() -> None:
    """Measure, print the tables, and write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=100)
    parser.add_argument("--caps", type=int, nargs="+", default=[1024, 4096], help="tokens for all pages of a document")
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    model, made = load(given.model), documents(given.documents)
    results: dict[int, dict[str, list[Result]]] = {}
    for cap in given.caps:
        results[cap] = {}
        for name, way in WAYS.items():
            began = time.process_time()
            results[cap][name] = [way(model, document, cap) for document in made]
            if (over := max(one.tokens for one in results[cap][name])) > cap:
                raise SystemExit(f"{name} spent {over} tokens of {cap}")
            print(f"{name} at {cap}: {time.process_time() - began:.0f} s", file=sys.stderr, flush=True)
    tabled = tables(results, [len(document.pages) for document in made])
    for table in tabled.values():
        print(as_markdown(table["columns"], table["rows"]))
    if given.out is not None:
        record = {"floor": FLOOR, "first": FIRST, "about": about("torch", "transformers"), "tables": tabled}
        given.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
