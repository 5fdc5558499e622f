"""What does the language model read for one request? The image's features in a prompt, with the tokens deleted."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from stakes.errors import BadInput, LedgerBreach
from stakes.models.base import DEFAULT_SELECTOR, Request
from stakes.models.local.image_cache import Encoded, Opened, by_area, let_go, open_all, open_once
from stakes.models.local.memory import image_that_fits, out_of_memory
from stakes.models.local.prefix import chosen
from stakes.models.local.timing import Clock
from stakes.vision.deletion.exact import Prompt, Selection, upload, zero_mask
from stakes.vision.selectors import make
from stakes.vision.selectors.base import Scene, Selector, check_budget
from stakes.vision.selectors.layers import LayerSelector

if TYPE_CHECKING:
    from stakes.models.local.vlm import LocalVLM


# When is an image encoded? Once, when it is first asked about; on the fast path, the new ones of a call together.


def selector_of(request: Request) -> Any:
    """Who chooses the tokens that stay; None where nothing is deleted."""
    return make(request.selector or DEFAULT_SELECTOR) if request.mechanism != "resolution" else None


def _listens(selector: Any) -> bool:
    return isinstance(selector, Selector) and selector.needs_encoder_attention


def encode_once(vlm: LocalVLM, image: Any, key: tuple[Any, ...], selector: Any, clock: Clock) -> Encoded:
    """An image's features: those kept under its name, with the attention that the selector wants, or new ones."""
    attention = _listens(selector)
    found = vlm.cache.get(key, attention=attention)
    if found is None:
        doing = f"encoding an image of {image.width}x{image.height} pixels"
        with clock("encoder"), out_of_memory(doing, lambda: image_that_fits(vlm, image)):
            found = vlm.encode(image, exact=key[2], attention=attention)
        vlm.cache.put(key, found)
    return found


def encode_ahead(vlm: LocalVLM, requests: Sequence[Request], opened: dict[Hashable, Opened]) -> dict[str, float]:
    """Encode the new images of a call together; milliseconds by stage. Those that want attention come later."""
    clock = Clock(vlm.device)
    _encode_new(vlm, requests, opened, clock)
    let_go(opened)
    with clock("selector"), suppress(torch.OutOfMemoryError):  # what does not fit together is ranked one by one
        _rank_ahead(vlm, requests, opened)
    return dict(clock.spent)


def _encode_new(vlm: LocalVLM, requests: Sequence[Request], opened: dict[Hashable, Opened], clock: Clock) -> None:
    new: dict[Hashable, Opened] = {}
    with clock("host", wait=False):
        for request, found in zip(requests, open_all(requests, vlm.family, opened), strict=True):
            selector = selector_of(request)
            if not _listens(selector) and vlm.cache.get(found.key, attention=False) is None:
                new[found.key] = found
    held = 0
    with clock("encoder"), suppress(torch.OutOfMemoryError):  # what does not fit together is encoded one by one
        for lot in by_area(list(new.values())):  # in the order in which they will be asked for
            if 2 * held > vlm.cache.limit:  # more would push out what nobody has asked about yet
                break
            lot.sort(key=lambda found: found.key[1])  # pages of one size stand together
            encoded = vlm.encode_many(
                [found.image for found in lot], [found.key[2] for found in lot], [found.pixels for found in lot]
            )
            for found, one in zip(lot, encoded, strict=True):
                vlm.cache.put(found.key, one)
                held += one.bytes


def _rank_ahead(vlm: LocalVLM, requests: Sequence[Request], opened: dict[Hashable, Opened]) -> None:
    """Rank the tokens of a call's images together, for selectors that look at nothing else."""
    asked: dict[Selector, dict[Hashable, tuple[Scene, int]]] = {}
    for request in requests:
        selector = selector_of(request) if request.mechanism == "deletion" else None
        if not isinstance(selector, Selector) or not selector.together or request.budget is None:
            continue
        key = open_once(request, vlm.family, opened).key
        encoded = vlm.cache.get(key, attention=False)
        if encoded is None or request.budget > len(encoded.features):
            continue
        scenes = asked.setdefault(selector, {})
        most = max(request.budget, scenes[key][1] if key in scenes else 0)
        scenes[key] = (Scene(encoded.features, rankings=encoded.rankings), most)
    for selector, scenes in asked.items():
        new = [(scene, most) for scene, most in scenes.values() if len(scene.rankings.get(selector, ())) < most]
        if new:
            selector.rank_ahead([scene for scene, _ in new], [most for _, most in new])


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
