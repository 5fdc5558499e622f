"""Build the prompts of requests: encode the images, select tokens, and place the kept features between the words."""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from stakes.errors import BadInput, LedgerBreach
from stakes.models.base import Request
from stakes.models.local.ahead import encode_once, selector_of
from stakes.models.local.attention import attention_rule
from stakes.models.local.image_cache import Encoded, OpenedImages, open_once
from stakes.models.local.prefix import selection_key
from stakes.models.local.resources import STAGES, Clock
from stakes.vision.deletion.exact import PromptTensors, Selection, splice, upload, zero_mask
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
    ``markers``: tokens that count for the images beside their features, and stay; among those three counts.
    ``prefix``: equal where prompts are equal up to their last visual token; None: not shared. ``clocks``: by image.
    """

    request: Request
    ids: Tensor
    native: int
    encoder_tokens: int
    inside: LayerSelector | None
    realised: int
    prefix: Hashable
    clocks: tuple[Clock, ...]
    image_tokens: tuple[int, ...]
    markers: int = 0
    prompt: PromptTensors = field(init=False)

    @property
    def spent(self) -> dict[str, float]:
        """Milliseconds by stage of what was done for its images alone."""
        return {stage: sum(clock.spent[stage] for clock in self.clocks) for stage in STAGES}

    @property
    def feature_budget(self) -> int | None:
        """The budget without the markers: how many features it pays for."""
        return None if self.request.budget is None else self.request.budget - self.markers


@dataclass
class ImagePart:
    """One image of a prompt: M features, of which ``selection`` keeps some; ``key``: equal where what is kept is.

    The features are of all N tokens of the image, or of those that the encoder read. ``native``, ``realised``: its
    tokens before and after, markers included.
    """

    native: int
    encoded: Encoded
    selection: Selection | None
    inside: LayerSelector | None
    realised: int
    key: Hashable
    clock: Clock

    @property
    def count(self) -> int:
        """N, the tokens of the whole image, one placeholder each."""
        return self.encoded.count

    @property
    def rows(self) -> Tensor:
        """[k] which of the M features the selection keeps, on the host."""
        return torch.arange(len(self.encoded.features)) if self.selection is None else self.selection.indices.cpu()

    @property
    def kept(self) -> Tensor:
        """[k] which of the N tokens those are."""
        return self.rows if self.encoded.indices is None else self.encoded.indices[self.rows]

    def shown(self, values: Tensor, rows: Tensor) -> Tensor:
        """[M, D] -> [k, D]: these rows, or the merged ones."""
        merged = self.selection is not None and self.selection.merge is not None
        if len(rows) == len(values) and not merged:
            return values
        return self.selection.apply(values) if merged and self.selection is not None else values[rows]


@dataclass
class Draft:
    """A job whose prompt is not built yet; ``visual``: [T] bool, the columns of its images' features."""

    job: Job
    parts: tuple[ImagePart, ...]
    visual: Tensor

    @property
    def text(self) -> Tensor:
        """[T - N] ids of the words around the features, markers included."""
        return self.job.ids[~self.visual]

    @property
    def rows(self) -> list[Tensor]:
        """By image, [k] which of its features are in the prompt, on the host."""
        whole = self.job.request.mechanism == "zero-mask"
        return [torch.arange(one.count) if whole else one.rows for one in self.parts]


def prepare(vlm: "LocalVLM", requests: Sequence[Request], opened: OpenedImages) -> list[Job]:
    """Turn images and questions into jobs whose prompts have their tokens deleted.

    ``opened``: images of this call that are open already. The ids of the words and the indices of the kept tokens of
    ``CHUNK`` requests are sent to the GPU together.
    """
    jobs: list[Job] = []
    for start in range(0, len(requests), CHUNK):
        drafts = [_draft(vlm, request, opened) for request in requests[start : start + CHUNK]]
        _build_prompts(vlm, drafts)
        jobs += [draft.job for draft in drafts]
    return jobs


def _draft(vlm: "LocalVLM", request: Request, opened: OpenedImages) -> Draft:
    if len(request.parts) > 1:
        _check_several(vlm, request)
    parts = tuple(_image_part(vlm, part, opened) for part in request.parts)
    ids = vlm.ids(request.question, *(part.encoded for part in parts))
    visual = ids == vlm.processor.image_token_id
    found, count = int(visual.sum()), sum(part.count for part in parts)
    if found != count:
        raise LedgerBreach(f"a prompt has {found} image tokens for {count} features; give another question")
    end = int(visual.nonzero()[-1])
    before = tuple(ids[:end][~visual[:end]].tolist())
    inside = parts[0].inside
    shared = inside is None and not vlm.has_sliding_window and attention_rule(vlm.model) is None
    job = Job(
        request,
        ids,
        native=sum(part.native for part in parts),
        encoder_tokens=sum(part.encoded.tokens for part in parts),
        inside=inside,
        realised=sum(part.realised for part in parts),
        prefix=(tuple(part.key for part in parts), before) if shared else None,
        clocks=tuple(part.clock for part in parts),
        image_tokens=tuple(part.realised for part in parts),
        markers=sum(part.encoded.markers for part in parts),
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
    fitted, image, key, _ = found = open_once(request, vlm.family, opened)
    selector = selector_of(request)
    encoded = encode_once(vlm, found, request, clock)
    count, markers = encoded.count, encoded.markers
    if fitted is not None and encoded.tokens != fitted.tokens:
        wanted = f"an image fitted to {fitted.tokens} tokens at {image.size}"
        raise LedgerBreach(f"{wanted} took {encoded.tokens} in {vlm.family}")
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
            with clock("selector"):
                selection = selector.select(scene, budget)
            if selection.merge is not None and request.mechanism == "zero-mask":
                raise BadInput(f"zero-mask keeps every token as it is, and {selector.name!r} merged some: use deletion")
            read = None if encoded.indices is None else (selector.blank, len(encoded.features))  # says which they are
            kept, realised = (request.mechanism, selection_key(selector, selection), read), len(selection.indices)
            if request.mechanism == "deletion" and realised != budget:
                raise LedgerBreach(f"deletion left {realised} visual tokens for a budget of {budget}")
    native = count + markers if fitted is None else fitted.native
    return ImagePart(native, encoded, selection, inside, realised + markers, (key, kept), clock)


def _feature_budget(budget: int, count: int, markers: int) -> int:
    """The features that a budget pays for, beside the markers, which stay."""
    check_budget(budget, count + markers)
    if budget <= markers:
        why = f"its {markers} markers count and stay; give at least {markers + 1}"
        raise LedgerBreach(f"a budget of {budget} visual tokens holds none of this image's features: {why}")
    return budget - markers


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
    texts, kept = [draft.text for draft in drafts], [draft.rows for draft in drafts]
    words = vlm.model.get_input_embeddings()(upload(torch.cat(texts), vlm.device))
    by_draft = torch.split(words, [len(text) for text in texts])
    flat = [one for own in kept for one in own]
    on_device = iter(torch.split(upload(torch.cat(flat), vlm.device), [len(one) for one in flat]))
    for draft, own_words, rows in zip(drafts, by_draft, kept, strict=True):
        prompt = _prompt(vlm, draft, own_words, [next(on_device) for _ in rows])
        if draft.job.request.mechanism == "zero-mask":
            prompt = zero_mask(prompt, Selection(_joined(draft.parts, [one.kept for one in draft.parts])))
        else:
            _check_deletion(draft, prompt)
        draft.job.prompt = prompt


def _prompt(vlm: "LocalVLM", draft: Draft, words: Tensor, rows: list[Tensor]) -> PromptTensors:
    """A prompt of its [T - N, D] words and the features that stay, as ``delete`` would leave the whole one.

    ``rows``: by image, [k] which of its features stay, on the device.
    """
    parts, ids = draft.parts, draft.job.ids
    whole = draft.job.request.mechanism == "zero-mask"
    indices = [torch.arange(part.count) if whole else part.kept for part in parts]

    def shown(values: Iterable[Tensor]) -> Tensor:  # [M, D] of each image -> [sum of k, D]
        return torch.cat([part.shown(*both) for part, *both in zip(parts, values, rows, strict=True)])

    positions = vlm.positions(ids, *(part.encoded for part in parts))  # on the host: it would synchronize a GPU
    stays = ~draft.visual
    stays[draft.visual.nonzero()[:, 0][_joined(parts, indices)]] = True
    visual = draft.visual[stays]
    return PromptTensors(
        embeds=splice(words, shown(part.encoded.features.to(words.dtype) for part in parts), visual),
        positions=positions[:, stays],
        visual=visual.nonzero()[:, 0],
        next_position=int(positions.max()) + 1,
        deepstack=tuple(map(shown, zip(*(part.encoded.deepstack for part in parts), strict=True))),
    )


def _joined(parts: Sequence[ImagePart], indices: Sequence[Tensor]) -> Tensor:
    """Indices of the features of each image, as indices of all images' features together."""
    starts = accumulate((part.count for part in parts), initial=0)
    return torch.cat([start + own for start, own in zip(starts, indices, strict=False)])


def _check_deletion(draft: Draft, prompt: PromptTensors) -> None:
    """The prompt lost what its images lost, and nothing else."""
    shown = [len(part.kept) for part in draft.parts]
    deleted = sum(part.count for part in draft.parts) - sum(shown)
    if prompt.tokens != sum(shown) or len(draft.job.ids) - len(prompt.embeds) != deleted:
        raise LedgerBreach(f"deletion left {prompt.tokens} visual tokens for {shown} in each image")
