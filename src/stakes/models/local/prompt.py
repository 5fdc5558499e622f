"""Build the prompts of requests: encode the images, select tokens, and place the kept features between the words."""

from collections.abc import Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from stakes.errors import BadInput, LedgerBreach
from stakes.models.base import DEFAULT_SELECTOR, Request
from stakes.models.local.attention import attention_rule
from stakes.models.local.image_cache import Encoded, OpenedImages, chunks_by_area, drop_pixels, open_all, open_once
from stakes.models.local.prefix import selection_key
from stakes.models.local.resources import Clock, explain_out_of_memory, image_that_fits
from stakes.vision.deletion.exact import PromptTensors, Selection, splice, upload, zero_mask
from stakes.vision.selectors import make
from stakes.vision.selectors.base import Scene, Selector, check_budget
from stakes.vision.selectors.layers import LayerSelector

if TYPE_CHECKING:
    from stakes.models.local.vlm import LocalVLM

CHUNK = 32  # requests that are prepared together; the features of all their images are held until then


@dataclass
class Job:
    """One request on its way to an answer.

    ``ids``: [T] of the unpruned prompt, on the host. ``inside``: the selector that drops inside the language model.
    ``prefix``: equal where prompts are equal up to their last visual token; None: not shared. ``spent``: ms by stage.
    ``markers``: tokens that count for the image beside its features, and stay; among ``native`` and ``realised``.
    """

    request: Request
    ids: Tensor
    native: int
    encoder_tokens: int
    inside: LayerSelector | None
    realised: int
    prefix: Hashable
    spent: dict[str, float]
    markers: int = 0
    prompt: PromptTensors = field(init=False)

    @property
    def feature_budget(self) -> int | None:
        """The budget without the markers: how many features it pays for."""
        return None if self.request.budget is None else self.request.budget - self.markers


@dataclass
class Draft:
    """A job whose prompt is not built yet: ``visual`` [T] bool, the columns of N features; ``selection`` keeps some."""

    job: Job
    visual: Tensor
    encoded: Encoded
    selection: Selection | None

    @property
    def text(self) -> Tensor:
        """[T - N] ids of the words around the features, markers included."""
        return self.job.ids[~self.visual]

    @property
    def indices(self) -> Tensor:
        """[k] indices of the image tokens in the prompt, on the host."""
        if self.selection is None or self.job.request.mechanism == "zero-mask":
            return torch.arange(len(self.encoded.features))
        return self.selection.indices


def encode_ahead(vlm: "LocalVLM", requests: Sequence[Request], opened: OpenedImages) -> dict[str, float]:
    """Encode and rank the new images of a call together (fast path); returns milliseconds by stage.

    Images whose selector needs encoder attention are encoded later, one by one.
    """
    clock = Clock(vlm.device)
    _encode_new(vlm, requests, opened, clock)
    drop_pixels(opened)
    with clock("selector"), suppress(torch.OutOfMemoryError):  # what does not fit together is ranked one by one
        _rank_ahead(vlm, requests, opened)
    return dict(clock.spent)


def _encode_new(vlm: "LocalVLM", requests: Sequence[Request], opened: OpenedImages, clock: Clock) -> None:
    new = {}
    with clock("host", wait=False):
        for request, image in zip(requests, open_all(requests, vlm.family, opened), strict=True):
            if not _needs_attention(_selector(request)) and vlm.cache.get(image.key, attention=False) is None:
                new[image.key] = image
    held = 0
    with clock("encoder"), suppress(torch.OutOfMemoryError):  # what does not fit together is encoded one by one
        for chunk in chunks_by_area(list(new.values())):  # in the order of the requests
            if 2 * held > vlm.cache.limit:  # more would push out images that were not used yet
                break
            chunk.sort(key=lambda one: one.key[1])  # pages of one size next to each other
            encoded = vlm.encode_many(
                [one.image for one in chunk], [one.key[2] for one in chunk], [one.pixels for one in chunk]
            )
            for image, one in zip(chunk, encoded, strict=True):
                vlm.cache.put(image.key, one)
                held += one.bytes


def _rank_ahead(vlm: "LocalVLM", requests: Sequence[Request], opened: OpenedImages) -> None:
    """Rank the tokens of a call's images together, for selectors that look at nothing else."""
    by_selector: dict[Selector, dict[Hashable, tuple[Scene, int]]] = {}
    for request in requests:
        selector = _selector(request) if request.mechanism == "deletion" else None
        if not isinstance(selector, Selector) or not selector.together or request.budget is None:
            continue
        key = open_once(request, vlm.family, opened).key
        encoded = vlm.cache.get(key, attention=False)
        if encoded is None or request.budget > len(encoded.features):
            continue
        scenes = by_selector.setdefault(selector, {})
        most = max(request.budget, scenes[key][1] if key in scenes else 0)
        scenes[key] = (Scene(encoded.features, rankings=encoded.rankings), most)
    for selector, scenes in by_selector.items():
        new = [(scene, most) for scene, most in scenes.values() if len(scene.rankings.get(selector, ())) < most]
        if new:
            selector.rank_ahead([scene for scene, _ in new], [most for _, most in new])


def prepare(vlm: "LocalVLM", requests: Sequence[Request], opened: OpenedImages) -> list[Job]:
    """Turn images and questions into jobs whose prompts have their tokens deleted.

    ``opened``: images of this call that are open already. The ids of the words and the indices of the kept tokens of
    ``CHUNK`` requests are sent to the GPU together.
    """
    jobs: list[Job] = []
    for start in range(0, len(requests), CHUNK):
        drafts = [_draft(vlm, request, opened) for request in requests[start : start + CHUNK]]
        clock = Clock(vlm.device)
        with clock("host"):
            _build_prompts(vlm, drafts)
        for draft in drafts:
            draft.job.spent["host"] += clock.spent["host"] / len(drafts)
            jobs.append(draft.job)
    return jobs


def _draft(vlm: "LocalVLM", request: Request, opened: OpenedImages) -> Draft:
    clock = Clock(vlm.device)
    with clock("host", wait=False):
        fitted, image, key, _ = open_once(request, vlm.family, opened)
    selector = _selector(request)
    encoded = _encode_once(vlm, image, key, selector, clock)
    count, markers = len(encoded.features), encoded.markers
    if fitted is not None and count + markers != fitted.tokens:
        raise LedgerBreach(
            f"an image fitted to {fitted.tokens} tokens at {image.size} took {count + markers} in {vlm.family}"
        )
    with clock("host", wait=False):
        ids = vlm.ids(request.question, encoded)
        visual = ids == vlm.processor.image_token_id
        before = tuple(ids[: int(visual.int().argmax())].tolist())
    if int(visual.sum()) != count:
        raise LedgerBreach(f"a prompt has {int(visual.sum())} image tokens for {count} features; give another question")
    inside = selection = None
    realised = count
    kept: Hashable = "all"
    if selector is not None and request.budget is not None:
        budget = _feature_budget(request.budget, count, markers)
        _check_usable(vlm, selector, request)
        if isinstance(selector, LayerSelector):
            inside, realised = selector, selector.left(count, budget, vlm.depth)
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
                selection = selector.select(scene, budget)
            if selection.merge is not None and request.mechanism == "zero-mask":
                raise BadInput(f"zero-mask keeps every token as it is, and {selector.name!r} merged some: use deletion")
            kept, realised = (request.mechanism, selection_key(selector, selection)), len(selection.indices)
    native = count + markers if fitted is None else fitted.native
    shared = inside is None and not vlm.has_sliding_window and attention_rule(vlm.model) is None
    prefix = (key, before, kept) if shared else None
    job = Job(request, ids, native, count + markers, inside, realised + markers, prefix, clock.spent, markers)
    return Draft(job, visual, encoded, selection)


def _feature_budget(budget: int, count: int, markers: int) -> int:
    """The features that a budget pays for, beside the markers, which stay."""
    check_budget(budget, count + markers)
    if budget <= markers:
        raise LedgerBreach(
            f"a budget of {budget} visual tokens holds none of this image's features: its {markers} markers count and "
            f"stay; give at least {markers + 1}"
        )
    return budget - markers


def _selector(request: Request) -> Any:
    """The selector of the request; None where nothing is deleted."""
    return make(request.selector or DEFAULT_SELECTOR) if request.mechanism != "resolution" else None


def _needs_attention(selector: Any) -> bool:
    return isinstance(selector, Selector) and selector.needs_encoder_attention


def _encode_once(vlm: "LocalVLM", image: Any, key: tuple[Any, ...], selector: Any, clock: Clock) -> Encoded:
    """The cached features of an image, with attention if the selector needs it, or new ones."""
    attention = _needs_attention(selector)
    encoded = vlm.cache.get(key, attention=attention)
    if encoded is None:
        doing = f"encoding an image of {image.width}x{image.height} pixels"
        with clock("encoder"), explain_out_of_memory(doing, lambda: image_that_fits(vlm, image)):
            encoded = vlm.encode(image, exact=key[2], attention=attention)
        vlm.cache.put(key, encoded)
    return encoded


def _check_usable(vlm: "LocalVLM", selector: Any, request: Request) -> None:
    if vlm.has_sliding_window and attention_rule(vlm.model) is None:
        raise BadInput(
            "this checkpoint uses sliding-window attention with M-RoPE, whose positions do not count the columns of a "
            "window, so deleting a token would move the window; use resolution"
        )
    if isinstance(selector, LayerSelector) and vlm.refuses_in_model is not None:
        raise BadInput(f"selector {selector.name!r} drops inside the model, and {vlm.refuses_in_model}; take another")
    if isinstance(selector, LayerSelector) and request.mechanism != "deletion":
        raise BadInput(f"selector {selector.name!r} drops inside the model; {request.mechanism} cannot use it")
    if selector.merges and request.mechanism == "zero-mask":
        raise BadInput(f"zero-mask keeps every token as it is, so {selector.name!r} must run with merge=False")


def question_embeds(vlm: "LocalVLM", question: str) -> Tensor:
    """[T, D] embeddings of the question alone, which some selectors look at."""
    embeds: Tensor = vlm.model.get_input_embeddings()(upload(vlm.processor.question_ids(question), vlm.device))
    return embeds


def _build_prompts(vlm: "LocalVLM", drafts: Sequence[Draft]) -> None:
    """Set the prompts of several jobs; their words are embedded together, the kept features gathered one by one."""
    texts, kept = [draft.text for draft in drafts], [draft.indices for draft in drafts]
    words = vlm.model.get_input_embeddings()(upload(torch.cat(texts), vlm.device))
    by_draft = torch.split(words, [len(text) for text in texts])
    on_device = torch.split(upload(torch.cat(kept), vlm.device), [len(one) for one in kept])
    for draft, own_words, indices, own_indices in zip(drafts, by_draft, kept, on_device, strict=True):
        prompt = _prompt(vlm, draft, own_words, indices, own_indices)
        if draft.selection is not None and draft.job.request.mechanism == "zero-mask":
            prompt = zero_mask(prompt, draft.selection)
        elif draft.selection is not None:
            _check_deletion(draft, prompt)
        draft.job.prompt = prompt


def _prompt(vlm: "LocalVLM", draft: Draft, words: Tensor, indices: Tensor, on_device: Tensor) -> PromptTensors:
    """A prompt of its [T - N, D] words and the [k] image tokens that stay, as ``delete`` would leave the whole one."""
    count, selection = len(draft.encoded.features), draft.selection
    whole = len(indices) == count and (selection is None or selection.merge is None)

    def shown(values: Tensor) -> Tensor:
        if whole:
            return values
        return values[on_device] if selection is None or selection.merge is None else selection.apply(values)

    features = shown(draft.encoded.features.to(words.dtype))
    positions = vlm.positions(draft.job.ids, draft.encoded)  # on the host: a GPU would synchronize a dozen times
    stays = ~draft.visual
    stays[draft.visual.nonzero()[:, 0][indices]] = True
    visual = draft.visual[stays]
    return PromptTensors(
        embeds=splice(words, features, visual),
        positions=positions[:, stays],
        visual=visual.nonzero()[:, 0],
        next_position=int(positions.max()) + 1,
        deepstack=tuple(shown(level) for level in draft.encoded.deepstack),
    )


def _check_deletion(draft: Draft, prompt: PromptTensors) -> None:
    deleted = len(draft.encoded.features) - prompt.tokens
    budget = draft.job.feature_budget
    if prompt.tokens != budget or len(draft.job.ids) - len(prompt.embeds) != deleted:
        raise LedgerBreach(f"deletion left {prompt.tokens} visual tokens for a budget of {budget}")
