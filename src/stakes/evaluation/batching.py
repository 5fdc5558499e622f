"""Plan batches up front and answer them: each image read once per batch, one request per (sample, budget).

The plan depends only on the order of the samples, their images, the budgets and the batch size, so that a resumed run
redoes a partial batch whole:

* a block is as many whole images as fill one batch with their questions, so an image's questions stay together;
* within a block every assignment is answered in turn. An assignment gives each sample one budget: one point of the grid
  when calibrating, one arm when comparing. So deletion encodes an image once for all its budgets, resizing once per
  size, and a batch holds prompts of about one length.

The batches of an assignment do not depend on the others: a grid that grows later leaves the old batches as they were.

    >>> plan_batches(["a", "a", "b"], [[32, 32, 32], [64, 64, 64]], 2)
    [((0, 32), (1, 32)), ((0, 64), (1, 64)), ((2, 32),), ((2, 64),)]

``answer_locally`` answers the plan with one model in this process; ``ray`` reaches workers on many machines. Both go
through ``answer_batch``, so that an answer or an error is the same from either.
"""

from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import pairwise, zip_longest
from typing import Any

from stakes.data.sample import Sample
from stakes.errors import BadInput, LedgerBreach, StakesError, UnreadableImage
from stakes.evaluation.fingerprint import Setting
from stakes.models.base import VLM, Answer, Request

BATCH = 32

IndexedBudget = tuple[int, int]  # (index of the sample, budget)
Batch = tuple[IndexedBudget, ...]
SamplesByIndex = Mapping[int, Sample] | Sequence[Sample]  # all samples, or those that a worker was sent
BatchAnswerer = Callable[[Sequence[Sample], Sequence[Batch], Setting], Generator[tuple[Batch, list[Answer]]]]
"""Answers batches, each whole, in whatever order they are ready; one answer for each pair."""


def plan_batches(
    images: Sequence[str],
    assignments: Sequence[Sequence[int]],
    size: int = BATCH,
    only: Collection[IndexedBudget] | None = None,
) -> list[Batch]:
    """Every (sample, budget) of every assignment exactly once; ``images`` names each sample's image.

    ``only``: these pairs and no others, planned as if no other samples existed.

    >>> plan_batches(["a", "b", "c"], [[32, 32, 32], [64, 64, 64]], 2, {(0, 32), (2, 32), (2, 64)})
    [((0, 32), (2, 32)), ((2, 64),)]
    """
    if size < 1:
        raise BadInput(f"a batch holds at least one question, not {size}")
    for budgets in assignments:
        if len(budgets) != len(images):
            raise BadInput(f"an assignment gives each of {len(images)} samples a budget, not {len(budgets)}")
    included = [
        i for i in range(len(images)) if only is None or any((i, budgets[i]) in only for budgets in assignments)
    ]
    batches: list[Batch] = []
    for block in _blocks(images, included, size):
        planned: set[IndexedBudget] = set()
        for budgets in assignments:
            pairs = [(i, budgets[i]) for i in block if (i, budgets[i]) not in planned]
            planned.update(pairs)
            for at in range(0, len(pairs), size):
                batch = tuple(pair for pair in pairs[at : at + size] if only is None or pair in only)
                if batch:
                    batches.append(batch)
    return batches


def _blocks(images: Sequence[str], included: Sequence[int], size: int) -> Iterator[list[int]]:
    """Indices of the samples, image by image in the order of first appearance, cut where a batch is full."""
    by_image: dict[str, list[int]] = {}
    for index in included:
        by_image.setdefault(images[index], []).append(index)
    block: list[int] = []
    for questions in by_image.values():
        if block and len(block) + len(questions) > size:
            yield block
            block = []
        block = block + questions
    if block:
        yield block


def chunk_batches(images: Sequence[str], batches: Sequence[Batch], least: int) -> list[list[Batch]]:
    """Batches that share images, in the order of the plan, as chunks for workers; at least ``least`` if possible.

    A worker that takes a whole chunk encodes an image once for all its budgets. Chunks are cut further where there are
    too few to keep all workers busy.

    >>> chunk_batches("ab", [((0, 32),), ((0, 64),), ((1, 32),), ((1, 64),)], 2)
    [[((0, 32),), ((0, 64),)], [((1, 32),), ((1, 64),)]]
    """
    blocks: list[list[Batch]] = []
    current: set[str] = set()
    for batch in batches:
        seen = {images[i] for i, _ in batch}
        if current.isdisjoint(seen):
            blocks.append([])
            current = set()
        blocks[-1].append(batch)
        current |= seen
    pieces = -(-least // max(len(blocks), 1))
    chunks: list[list[Batch]] = []
    for block in blocks:
        parts = min(pieces, len(block))
        bounds = [len(block) * k // parts for k in range(parts + 1)]
        chunks.extend(block[start:end] for start, end in pairwise(bounds))
    return chunks


def answer_locally(
    model: VLM, samples: Sequence[Sample], batches: Sequence[Batch], setting: Setting
) -> Generator[tuple[Batch, list[Answer]]]:
    """Each batch with its answers by one model in this process, once the batch before has been dealt with."""
    with closing(read_ahead(model, samples, batches, setting, BatchImages())) as read:
        for batch, requests in read:
            if answers_independently(model):
                yield from _answer_each(model, samples, batch, requests)
            else:
                yield batch, answer_batch(model, samples, batch, requests)


def answers_independently(model: Any) -> bool:
    """Whether an answer does not depend on its batch, as behind a server: each is then logged as soon as it comes."""
    return callable(getattr(model, "answer_each", None))


class BatchImages:
    """The images of the current batch; those shared with the batch before are not read again."""

    def __init__(self) -> None:
        self.held: dict[str, Any] = {}

    def of(self, samples: SamplesByIndex, batch: Batch) -> list[Any]:
        """One image for each pair."""
        needed: dict[str, Sample] = {}
        for i, _ in batch:
            needed.setdefault(samples[i].digest, samples[i])
        self.held = {
            digest: self.held[digest] if digest in self.held else sample.load() for digest, sample in needed.items()
        }
        return [self.held[samples[i].digest] for i, _ in batch]


def read_ahead(
    model: Any, samples: SamplesByIndex, batches: Sequence[Batch], setting: Setting, images: BatchImages
) -> Generator[tuple[Batch, list[Request]]]:
    """Each batch with its requests; while the caller answers one, a thread reads the images of the next.

    A model with ``open_ahead`` also begins to prepare them. An error about an image is raised at its own batch.
    """

    def read(batch: Batch) -> list[Request]:
        requests = [
            Request(image, samples[i].asked, budget, setting.requested, setting.selector, samples[i].id)
            for (i, budget), image in zip(batch, images.of(samples, batch), strict=True)
        ]
        if callable(open_ahead := getattr(model, "open_ahead", None)):
            open_ahead(requests)
        return requests

    with ThreadPoolExecutor(1, thread_name_prefix="stakes-next-batch") as reader:
        following = [reader.submit(read, batch) for batch in batches[:1]]
        for batch, after in zip_longest(batches, batches[1:]):
            requests = following.pop().result()
            if after is not None:
                following.append(reader.submit(read, after))
            yield batch, requests


def answer_batch(model: VLM, samples: SamplesByIndex, batch: Batch, requests: Sequence[Request]) -> list[Answer]:
    """One answer for each pair; an error names the sample whose image is at fault, or the whole batch."""
    try:
        answers = model.answer(requests)
    except StakesError as error:
        raise type(error)(f"{_at_fault(samples, batch, requests)}: {error}") from error
    if len(answers) != len(requests):
        raise LedgerBreach(f"the model gave {len(answers)} answers to {len(requests)} requests")
    return answers


def _answer_each(
    model: Any, samples: SamplesByIndex, batch: Batch, requests: Sequence[Request]
) -> Generator[tuple[Batch, list[Answer]]]:
    """Each pair by itself, in the order that answers arrive; an error comes after the answers that came before it."""
    try:
        for at, answer in model.answer_each(requests):
            yield (batch[at],), [answer]
    except StakesError as error:
        raise type(error)(f"{_at_fault(samples, batch, requests)}: {error}") from error


def _at_fault(samples: SamplesByIndex, batch: Batch, requests: Sequence[Request]) -> str:
    """The sample whose image cannot be decoded, or else all samples of the batch."""
    from stakes.vision.image.decode import open_image

    ids = [samples[i].id for i, _ in batch]
    for name, request in zip(ids, requests, strict=True):
        try:
            open_image(request.image)
        except UnreadableImage:
            return f"sample {name!r}"
    return f"sample {ids[0]!r}" if len(ids) == 1 else f"samples {ids[0]!r} to {ids[-1]!r}"
