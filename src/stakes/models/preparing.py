"""What does the language model read for one request? The image's features in a prompt, with the tokens deleted."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from stakes.errors import BadInput, LedgerBreach
from stakes.models.base import Request
from stakes.models.clock import Clock
from stakes.models.encoding import encode_once, selector_of
from stakes.models.images import Encoded, Opened, open_once
from stakes.models.prefix import chosen
from stakes.vision.deletion import Prompt, Selection, delete, zero_mask
from stakes.vision.selectors.base import Scene, check_budget
from stakes.vision.selectors.layers import LayerSelector

if TYPE_CHECKING:
    from stakes.models.local import LocalVLM


@dataclass
class Job:
    """One request on its way: the prompt in front of the language model, and what was spent on it."""

    request: Request
    ids: Tensor
    prompt: Prompt
    native: int
    encoder_tokens: int
    inside: LayerSelector | None
    realised: int
    prefix: Hashable  # equal where the prompts are equal up to their last visual token; None: shared with nobody
    spent: dict[str, float]


def prepare(vlm: LocalVLM, request: Request, opened: dict[Hashable, Opened]) -> Job:
    """Image and question to the prompt that the language model will read, tokens deleted.

    ``opened``: images of this call, fitted and named already, so that each is so once.
    """
    clock = Clock(vlm.device)
    with clock("host"):
        fitted, image, key = open_once(request, vlm.family, opened)
    selector = selector_of(request)
    encoded = encode_once(vlm, image, key, selector, clock)
    count = len(encoded.features)
    if fitted is not None and count != fitted.tokens:
        raise LedgerBreach(f"an image fitted to {fitted.tokens} tokens at {image.size} took {count} in {vlm.family}")
    with clock("host"):
        ids = vlm.processor.ids(request.question, count)
        before = tuple(ids[: ids.tolist().index(vlm.processor.image_token_id)].tolist())
        prompt = _unpruned(vlm, ids, encoded)
        ids = ids.to(vlm.device)
    inside = None
    kept: Hashable = "all"
    realised = count
    if selector is not None and request.budget is not None:
        check_budget(request.budget, count)
        _check_attention(vlm)
        if isinstance(selector, LayerSelector):
            if request.mechanism != "deletion":
                raise BadInput(f"selector {selector.name!r} drops inside the model; {request.mechanism} cannot use it")
            inside, realised = selector, request.budget
        elif selector.merges and request.mechanism == "zero-mask":
            raise BadInput(f"zero-mask keeps every token as it is, so {selector.name!r} must run with merge=False")
        else:
            scene = Scene(
                features=encoded.features,
                question=question_embeds(vlm, request.question),
                sample=request.sample if request.sample is not None else f"{key[0]}:{request.question}",
                received=encoded.received,
                keys=encoded.keys,
                rankings=encoded.rankings,
            )
            with clock("selector"):
                selection = selector.select(scene, request.budget)
            prompt = _realise(prompt, selection, request)
            realised = len(selection.indices)
            kept = (request.mechanism, chosen(selector, selection))
    native = count if fitted is None else fitted.native
    prefix = None if inside is not None or vlm.slides else (key, before, kept)
    return Job(request, ids, prompt, native, count, inside, realised, prefix, dict(clock.spent))


def _unpruned(vlm: LocalVLM, ids: Tensor, encoded: Encoded) -> Prompt:
    """The unpruned prompt: embeddings with the image's features in their places, and its positions."""
    visual = (ids == vlm.processor.image_token_id).nonzero()[:, 0]
    positions = vlm.positions(ids, encoded)  # on the host, like the ids: a GPU would be asked a dozen times
    after = int(positions.max()) + 1
    ids, visual, positions = (x.to(vlm.device) for x in (ids, visual, positions))
    embeds = vlm.model.get_input_embeddings()(ids)
    embeds = embeds.index_copy(0, visual, encoded.features.to(embeds.dtype))
    return Prompt(embeds, positions, visual, after, encoded.deepstack)


def _realise(prompt: Prompt, selection: Selection, request: Request) -> Prompt:
    if request.mechanism == "zero-mask":
        return zero_mask(prompt, selection)
    shorter = delete(prompt, selection)
    if shorter.tokens != request.budget or len(prompt.embeds) - len(shorter.embeds) != prompt.tokens - shorter.tokens:
        raise LedgerBreach(f"deletion left {shorter.tokens} visual tokens for a budget of {request.budget}")
    return shorter


def question_embeds(vlm: LocalVLM, question: str) -> Tensor:
    """[T, D] embeddings of the question alone, which some selectors look at."""
    found: Tensor = vlm.model.get_input_embeddings()(vlm.processor.question_ids(question).to(vlm.device))
    return found


def _check_attention(vlm: LocalVLM) -> None:
    if vlm.slides:
        raise BadInput(
            "this checkpoint attends in sliding windows, where deleting a token moves the window; use resolution"
        )
