"""Build the prompts of requests: encode the images, select tokens, and place the kept features between the words."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from stakes.errors import BadInput, LedgerBreach
from stakes.models.base import Request
from stakes.models.local.ahead import needs_attention, selector_of
from stakes.models.local.image_cache import Encoded, OpenedImages, open_once
from stakes.models.local.prefix import selection_key
from stakes.models.local.resources import Clock, explain_out_of_memory, image_that_fits
from stakes.vision.deletion.exact import PromptTensors, Selection, upload, zero_mask
from stakes.vision.selectors.base import Scene, check_budget
from stakes.vision.selectors.layers import LayerSelector

if TYPE_CHECKING:
    from stakes.models.local.vlm import LocalVLM

CHUNK = 32  # requests that are prepared together; the features of all their images are held until then


@dataclass
class Job:
    """One request on its way to an answer.

    ``ids``: [T] of the unpruned prompt, on the host. ``inside``: the selector that drops inside the language model.
    ``native``, ``encoder_tokens``, ``realised``: of all images together; ``image_tokens``: realised of each.
    ``prefix``: equal where prompts are equal up to their last visual token; None: not shared. ``spent``: ms by stage.
    """

    request: Request
    ids: Tensor
    native: int
    encoder_tokens: int
    inside: LayerSelector | None
    realised: int
    prefix: Hashable
    spent: dict[str, float]
    image_tokens: tuple[int, ...]
    prompt: PromptTensors = field(init=False)


@dataclass
class ImagePart:
    """One image of a prompt: N tokens, of which ``selection`` keeps some. ``key``: equal where what is kept is."""

    native: int
    encoded: Encoded
    selection: Selection | None
    inside: LayerSelector | None
    realised: int
    key: Hashable
    spent: dict[str, float]

    @property
    def count(self) -> int:
        """N, the tokens that the encoder emitted."""
        return len(self.encoded.features)

    def shown(self, values: Tensor, indices: Tensor) -> Tensor:
        """[N, D] -> [k, D]: the rows at these indices, or the merged ones."""
        merged = self.selection is not None and self.selection.merge is not None
        if len(indices) == self.count and not merged:
            return values
        return self.selection.apply(values) if merged and self.selection is not None else values[indices]


@dataclass
class Draft:
    """A job whose prompt is not built yet; ``visual``: [T] bool, where its images' tokens are."""

    job: Job
    parts: tuple[ImagePart, ...]
    visual: Tensor

    @property
    def text(self) -> Tensor:
        """[T - N] ids of the words around the images."""
        return self.job.ids[~self.visual]

    @property
    def indices(self) -> list[Tensor]:
        """By image, [k] indices of its tokens in the prompt, on the host."""
        whole = self.job.request.mechanism == "zero-mask"
        return [
            torch.arange(one.count) if whole or one.selection is None else one.selection.indices for one in self.parts
        ]


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
    if len(request.parts) > 1:
        _check_several(vlm, request)
    parts = tuple(_image_part(vlm, part, opened) for part in request.parts)
    clock = Clock(vlm.device)
    with clock("host", wait=False):
        ids = vlm.processor.ids(request.question, *(part.count for part in parts))
        visual = ids == vlm.processor.image_token_id
        end = int(visual.nonzero()[-1])
        before = tuple(ids[:end][~visual[:end]].tolist())
    inside = parts[0].inside
    shared = inside is None and not vlm.has_sliding_window
    spent = [clock.spent, *(part.spent for part in parts)]
    job = Job(
        request,
        ids,
        native=sum(part.native for part in parts),
        encoder_tokens=sum(part.count for part in parts),
        inside=inside,
        realised=sum(part.realised for part in parts),
        prefix=(tuple(part.key for part in parts), before) if shared else None,
        spent={stage: sum(one.get(stage, 0.0) for one in spent) for stage in {key for one in spent for key in one}},
        image_tokens=tuple(part.realised for part in parts),
    )
    return Draft(job, parts, visual)


def _check_several(vlm: "LocalVLM", request: Request) -> None:
    if not vlm.several_images:
        raise BadInput(f"a {vlm.model.config.model_type} is asked about one image here, not {len(request.parts)}")
    if isinstance(selector := selector_of(request), LayerSelector):
        raise BadInput(
            f"selector {selector.name!r} drops inside the model, among the tokens of all images together, so an image "
            "cannot have a budget of its own; use a selector that drops before it"
        )


def _image_part(vlm: "LocalVLM", request: Request, opened: OpenedImages) -> ImagePart:
    """One image of a request, encoded, with the tokens that are kept."""
    clock = Clock(vlm.device)
    with clock("host", wait=False):
        fitted, image, key, _ = open_once(request, vlm.family, opened)
    selector = selector_of(request)
    encoded = _encode_once(vlm, image, key, selector, clock)
    count = len(encoded.features)
    if fitted is not None and count != fitted.tokens:
        raise LedgerBreach(f"an image fitted to {fitted.tokens} tokens at {image.size} took {count} in {vlm.family}")
    inside = selection = None
    realised = count
    kept: Hashable = "all"
    if selector is not None and request.budget is not None:
        check_budget(request.budget, count)
        _check_usable(vlm, selector, request)
        if isinstance(selector, LayerSelector):
            inside, realised = selector, selector.left(count, request.budget, vlm.depth)
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
            kept, realised = (request.mechanism, selection_key(selector, selection)), len(selection.indices)
            if request.mechanism == "deletion" and realised != request.budget:
                raise LedgerBreach(f"deletion left {realised} visual tokens for a budget of {request.budget}")
    native = count if fitted is None else fitted.native
    return ImagePart(native, encoded, selection, inside, realised, (key, kept), clock.spent)


def _encode_once(vlm: "LocalVLM", image: Any, key: tuple[Any, ...], selector: Any, clock: Clock) -> Encoded:
    """The cached features of an image, with attention if the selector needs it, or new ones."""
    attention = needs_attention(selector)
    encoded = vlm.cache.get(key, attention=attention)
    if encoded is None:
        doing = f"encoding an image of {image.width}x{image.height} pixels"
        with clock("encoder"), explain_out_of_memory(doing, lambda: image_that_fits(vlm, image)):
            encoded = vlm.encode(image, exact=key[2], attention=attention)
        vlm.cache.put(key, encoded)
    return encoded


def _check_usable(vlm: "LocalVLM", selector: Any, request: Request) -> None:
    if vlm.has_sliding_window:
        raise BadInput(
            "this checkpoint uses sliding-window attention, where deleting a token moves the window; use resolution"
        )
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
    flat = [one for own in kept for one in own]
    on_device = iter(torch.split(upload(torch.cat(flat), vlm.device), [len(one) for one in flat]))
    for draft, own_words, indices in zip(drafts, by_draft, kept, strict=True):
        prompt = _prompt(vlm, draft, own_words, indices, [next(on_device) for _ in indices])
        if draft.job.request.mechanism == "zero-mask":
            prompt = zero_mask(prompt, _joined(draft.parts))
        else:
            _check_deletion(draft, prompt)
        draft.job.prompt = prompt


def _prompt(
    vlm: "LocalVLM", draft: Draft, words: Tensor, indices: list[Tensor], on_device: list[Tensor]
) -> PromptTensors:
    """A prompt of its [T - N, D] words and the image tokens that stay, as ``delete`` would leave the whole one.

    ``indices``: by image, the [k] of its tokens that stay, on the host and on the device.
    """
    ids, where = draft.job.ids, draft.visual.nonzero()[:, 0]
    columns: list[Tensor] = []  # of the unpruned prompt: words and kept tokens in turn
    rows: list[Tensor] = []  # their embeddings
    levels: list[list[Tensor]] = [[] for _ in draft.parts[0].encoded.deepstack]
    at = word = first = 0
    for part, own, uploaded in zip(draft.parts, indices, on_device, strict=True):
        start = int(where[first])
        columns += [torch.arange(at, start), start + own]
        rows += [words[word : word + start - at], part.shown(part.encoded.features.to(words.dtype), uploaded)]
        for level, values in zip(levels, part.encoded.deepstack, strict=True):
            level.append(part.shown(values, uploaded))
        word, at, first = word + start - at, start + part.count, first + part.count
    left = torch.cat([*columns, torch.arange(at, len(ids))])
    positions = vlm.positions(ids, *(part.encoded for part in draft.parts))  # on the host: it would synchronize a GPU
    return PromptTensors(
        embeds=torch.cat([*rows, words[word:]]),
        positions=positions[:, left],
        visual=draft.visual[left].nonzero()[:, 0],
        next_position=int(positions.max()) + 1,
        deepstack=tuple(torch.cat(level) for level in levels),
    )


def _joined(parts: Sequence[ImagePart]) -> Selection:
    """What is kept of all images, as indices of their tokens together."""
    kept, start = [], 0
    for part in parts:
        own = torch.arange(part.count) if part.selection is None else part.selection.indices.cpu()
        kept.append(start + own)
        start += part.count
    return Selection(torch.cat(kept))


def _check_deletion(draft: Draft, prompt: PromptTensors) -> None:
    """The prompt lost what its images lost, and nothing else."""
    shown = [part.count if part.selection is None else part.realised for part in draft.parts]
    deleted = sum(part.count for part in draft.parts) - sum(shown)
    if prompt.tokens != sum(shown) or len(draft.job.ids) - len(prompt.embeds) != deleted:
        raise LedgerBreach(f"deletion left {prompt.tokens} visual tokens for {shown} in each image")
