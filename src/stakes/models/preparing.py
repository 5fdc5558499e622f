"""What does the language model read for one request? The image's features in a prompt, with the tokens deleted."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from stakes.errors import BadInput, LedgerBreach
from stakes.models.base import Request
from stakes.models.clock import Clock
from stakes.models.encoding import encode_once, selector_of
from stakes.models.images import Encoded, Opened, open_once
from stakes.models.prefix import chosen
from stakes.vision.deletion import Prompt, Selection, zero_mask
from stakes.vision.selectors.base import Scene, check_budget
from stakes.vision.selectors.layers import LayerSelector
from stakes.vision.upload import upload

if TYPE_CHECKING:
    from stakes.models.local import LocalVLM


TOGETHER = 32  # requests; until their prompts are made, the features of all their images are held


@dataclass
class Job:
    """One request on its way: the prompt in front of the language model, and what was spent on it."""

    request: Request
    ids: Tensor  # [T] of the unpruned prompt, on the host
    prompt: Prompt
    native: int
    encoder_tokens: int
    inside: LayerSelector | None
    realised: int
    prefix: Hashable  # equal where the prompts are equal up to their last visual token; None: shared with nobody
    spent: dict[str, float]


@dataclass
class Draft:
    """One request with all decided and nothing asked of the accelerator yet.

    ``ids``: [T] of the unpruned prompt, its N image tokens from column ``at`` on. ``selection``: which of them stay.
    """

    request: Request
    ids: Tensor
    at: int
    encoded: Encoded
    native: int
    inside: LayerSelector | None
    selection: Selection | None
    realised: int
    prefix: Hashable
    clock: Clock

    @property
    def text(self) -> Tensor:
        """[T - N] ids of the words around the image."""
        return torch.cat((self.ids[: self.at], self.ids[self.at + len(self.encoded.features) :]))

    @property
    def indices(self) -> Tensor:
        """[k] which image tokens the prompt shows, on the host."""
        selection = self.selection
        if selection is None or self.request.mechanism == "zero-mask":
            return torch.arange(len(self.encoded.features))
        return selection.indices


def prepare(vlm: LocalVLM, requests: Sequence[Request], opened: dict[Hashable, Opened]) -> list[Job]:
    """Images and questions to the prompts that the language model will read, tokens deleted.

    ``opened``: images of this call, fitted and named already, so that each is so once. What the accelerator has to know
    of ``TOGETHER`` requests goes there at once: the ids of their words, and the indices of the tokens that stay.
    """
    jobs: list[Job] = []
    for start in range(0, len(requests), TOGETHER):
        drafts = [_draft(vlm, request, opened) for request in requests[start : start + TOGETHER]]
        clock = Clock(vlm.device)
        with clock("host"):
            prompts = _prompts(vlm, drafts)
        share = clock.spent["host"] / len(drafts)
        jobs += [_job(draft, prompt, share) for draft, prompt in zip(drafts, prompts, strict=True)]
    return jobs


def _job(draft: Draft, prompt: Prompt, host: float) -> Job:
    """``host``: milliseconds that the prompt took."""
    count = len(draft.encoded.features)
    spent = {**draft.clock.spent, "host": draft.clock.spent["host"] + host}
    return Job(draft.request, draft.ids, prompt, draft.native, count, draft.inside, draft.realised, draft.prefix, spent)


def _draft(vlm: LocalVLM, request: Request, opened: dict[Hashable, Opened]) -> Draft:
    clock = Clock(vlm.device)
    with clock("host", wait=False):
        fitted, image, key, _ = open_once(request, vlm.family, opened)
    selector = selector_of(request)
    encoded = encode_once(vlm, image, key, selector, clock)
    count = len(encoded.features)
    if fitted is not None and count != fitted.tokens:
        raise LedgerBreach(f"an image fitted to {fitted.tokens} tokens at {image.size} took {count} in {vlm.family}")
    with clock("host", wait=False):
        ids = vlm.processor.ids(request.question, count)
        before = tuple(takewhile(lambda one: one != vlm.processor.image_token_id, ids.tolist()))
    inside = selection = None
    realised = count
    kept: Hashable = "all"
    if selector is not None and request.budget is not None:
        check_budget(request.budget, count)
        _check_attention(vlm)
        if isinstance(selector, LayerSelector):
            if request.mechanism != "deletion":
                raise BadInput(f"selector {selector.name!r} drops inside the model; {request.mechanism} cannot use it")
            inside, realised = selector, selector.left(count, request.budget, vlm.depth)
        elif selector.merges and request.mechanism == "zero-mask":
            raise BadInput(f"zero-mask keeps every token as it is, so {selector.name!r} must run with merge=False")
        else:
            scene = Scene(
                features=encoded.features,
                question=None if selector.per_image else question_embeds(vlm, request.question),
                sample=request.sample if request.sample is not None else f"{key[0]}:{request.question}",
                received=encoded.received,
                keys=encoded.keys,
                rankings=encoded.rankings,
            )
            with clock("selector", wait=selector not in encoded.rankings):
                selection = selector.select(scene, request.budget)
            if selection.merge is not None and request.mechanism == "zero-mask":
                raise BadInput(f"zero-mask keeps every token as it is, and {selector.name!r} merged some: use deletion")
            kept, realised = (request.mechanism, chosen(selector, selection)), len(selection.indices)
    native = count if fitted is None else fitted.native
    prefix = None if inside is not None or vlm.slides else (key, before, kept)
    return Draft(request, ids, len(before), encoded, native, inside, selection, realised, prefix, clock)


def _prompts(vlm: LocalVLM, drafts: Sequence[Draft]) -> list[Prompt]:
    """The prompts of several requests; their words are embedded together, and the kept features gathered one by one."""
    device = vlm.device
    texts = [draft.text for draft in drafts]
    words = vlm.model.get_input_embeddings()(upload(torch.cat(texts), device))
    kept = [draft.indices for draft in drafts]
    there = torch.split(upload(torch.cat(kept), device), [len(one) for one in kept])
    found = []
    for draft, own, indices, on_device in zip(
        drafts, torch.split(words, [len(text) for text in texts]), kept, there, strict=True
    ):
        prompt = _prompt(vlm, draft, own, indices, on_device)
        if draft.selection is not None and draft.request.mechanism == "zero-mask":
            prompt = zero_mask(prompt, draft.selection)
        elif draft.selection is not None:
            _check_deletion(draft, prompt)
        found.append(prompt)
    return found


def _prompt(vlm: LocalVLM, draft: Draft, words: Tensor, indices: Tensor, on_device: Tensor) -> Prompt:
    """One prompt of its [T - N, D] words and the [k] image tokens that it shows: the whole one after ``delete``."""
    at, count = draft.at, len(draft.encoded.features)
    selection = draft.selection
    whole = len(indices) == count and (selection is None or selection.merge is None)

    def shown(values: Tensor) -> Tensor:
        if whole:
            return values
        return values[on_device] if selection is None or selection.merge is None else selection.apply(values)

    seen = shown(draft.encoded.features.to(words.dtype))
    positions = vlm.positions(draft.ids, draft.encoded)  # on the host: a GPU would be asked a dozen times
    columns = torch.cat((torch.arange(at), at + indices, torch.arange(at + count, len(draft.ids))))
    return Prompt(
        embeds=torch.cat((words[:at], seen, words[at:])),
        positions=positions[:, columns],
        visual=torch.arange(at, at + len(indices)),
        next_position=int(positions.max()) + 1,
        deepstack=tuple(shown(level) for level in draft.encoded.deepstack),
    )


def _check_deletion(draft: Draft, prompt: Prompt) -> None:
    gone = len(draft.encoded.features) - prompt.tokens
    if prompt.tokens != draft.request.budget or len(draft.ids) - len(prompt.embeds) != gone:
        raise LedgerBreach(f"deletion left {prompt.tokens} visual tokens for a budget of {draft.request.budget}")


def question_embeds(vlm: LocalVLM, question: str) -> Tensor:
    """[T, D] embeddings of the question alone, which some selectors look at."""
    found: Tensor = vlm.model.get_input_embeddings()(upload(vlm.processor.question_ids(question), vlm.device))
    return found


def _check_attention(vlm: LocalVLM) -> None:
    if vlm.slides:
        raise BadInput(
            "this checkpoint attends in sliding windows, where deleting a token moves the window; use resolution"
        )
