"""Encode and rank the images of a call together, before their prompts are built (fast path)."""

import time
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import torch

from stakes.errors import BadInput
from stakes.models.base import DEFAULT_SELECTOR, Request
from stakes.models.local.image_cache import (
    Encoded,
    OpenedImage,
    OpenedImages,
    chunks_by_area,
    drop_pixels,
    open_all,
    open_once,
)
from stakes.models.local.resources import Clock, explain_out_of_memory, image_that_fits
from stakes.vision.deletion.blank import InkFilter
from stakes.vision.selectors import make
from stakes.vision.selectors.base import Scene, Selector

if TYPE_CHECKING:
    from stakes.models.local.vlm import LocalVLM

POLL = 0.001  # seconds between two looks at whether images are open


def encode_ahead(vlm: "LocalVLM", requests: Sequence[Request], opened: OpenedImages, clock: Clock) -> None:
    """Encode and rank the new images of a call together (fast path); ``clock`` adds up milliseconds by stage.

    Images whose selector needs encoder attention are encoded later, one by one.
    """
    _encode_new(vlm, requests, opened, clock)
    drop_pixels(opened)
    with clock("selector"), suppress(torch.OutOfMemoryError):  # what does not fit together is ranked one by one
        _rank_ahead(vlm, requests, opened)


def encode_next(vlm: "LocalVLM", clock: Clock, over: Callable[[], bool]) -> None:
    """Queue the encoder's work on the images of the next call, if it is announced.

    The device does it after this call's last step, and does not wait until the host has read the answers. Images that
    are not open yet are waited for until this call is ``over``.
    """
    while (call := vlm.ahead.next_call()) is None:
        if over():
            return
        time.sleep(POLL)
    requests, opened = call
    with suppress(Exception):  # the call that has the image raises it again
        _encode_new(vlm, requests, opened, clock)


def _encode_new(vlm: "LocalVLM", requests: Sequence[Request], opened: OpenedImages, clock: Clock) -> None:
    new: dict[Hashable, tuple[OpenedImage, InkFilter | None]] = {}
    for request, image in zip(requests, open_all(requests, vlm.family, opened), strict=True):
        ink = ink_filter(vlm, request)
        if needs_attention(selector_of(request)) or vlm.cache.get(image.key, attention=False, ink=ink) is not None:
            continue
        new[image.key, ink] = image, ink
    held = 0
    with clock("encoder"), suppress(torch.OutOfMemoryError):  # what does not fit together is encoded one by one
        for chunk in chunks_by_area(list(new.values())):  # in the order of the requests
            if 2 * held > vlm.cache.limit:  # more would push out images that were not used yet
                break
            chunk.sort(key=lambda one: one[0].key[1])  # pages of one size next to each other
            images, filters = [image for image, _ in chunk], [ink for _, ink in chunk]
            encoded = vlm.encode_many(
                [one.image for one in images], [one.key[2] for one in images], [one.pixels for one in images], filters
            )
            for image, ink, one in zip(images, filters, encoded, strict=True):
                vlm.cache.put(image.key, one, ink)
                held += one.bytes


def encode_once(vlm: "LocalVLM", image: OpenedImage, request: Request, clock: Clock) -> Encoded:
    """The cached features of an image, with attention if the selector needs it, or new ones."""
    attention, ink = needs_attention(selector_of(request)), ink_filter(vlm, request)
    encoded = vlm.cache.get(image.key, attention=attention, ink=ink)
    if encoded is None:
        doing = f"encoding an image of {image.image.width}x{image.image.height} pixels"
        with clock("encoder"), explain_out_of_memory(doing, lambda: image_that_fits(vlm, image.image)):
            encoded = vlm.encode(image.image, exact=image.key[2], attention=attention, ink=ink)
        vlm.cache.put(image.key, encoded, ink)
    return encoded


def ink_filter(vlm: "LocalVLM", request: Request) -> InkFilter | None:
    """What to drop before the encoder; None where the selector has no ``blank`` stage or nothing is deleted."""
    selector = selector_of(request)
    tolerance = selector.blank if isinstance(selector, Selector) else None
    if tolerance is None or request.budget is None:
        return None
    if request.mechanism == "zero-mask":
        raise BadInput("zero-mask keeps every token, and blank+ drops some before the encoder: use deletion")
    if vlm.refuses_blank is not None:
        raise BadInput(f"blank+ drops tokens before the encoder, and {vlm.refuses_blank}; name the selector alone")
    return InkFilter(tolerance, request.budget)


def _rank_ahead(vlm: "LocalVLM", requests: Sequence[Request], opened: OpenedImages) -> None:
    """Rank the tokens of a call's images together, for selectors that look at nothing else."""
    by_selector: dict[Selector, dict[Hashable, tuple[Scene, int]]] = {}
    for request in requests:
        selector = selector_of(request) if request.mechanism == "deletion" else None
        if not isinstance(selector, Selector) or not selector.together or request.budget is None:
            continue
        image, ink = open_once(request, vlm.family, opened).key, ink_filter(vlm, request)
        encoded, key = vlm.cache.get(image, attention=False, ink=ink), (image, ink)
        if encoded is None or request.budget > len(encoded.features):
            continue
        scenes = by_selector.setdefault(selector, {})
        most = max(request.budget, scenes[key][1] if key in scenes else 0)
        scenes[key] = (Scene(encoded.features, rankings=encoded.rankings), most)
    for selector, scenes in by_selector.items():
        new = [(scene, most) for scene, most in scenes.values() if len(scene.rankings.get(selector, ())) < most]
        if new:
            selector.rank_ahead([scene for scene, _ in new], [most for _, most in new])


def selector_of(request: Request) -> Any:
    """The selector of the request; None where nothing is deleted."""
    return make(request.selector or DEFAULT_SELECTOR) if request.mechanism != "resolution" else None


def needs_attention(selector: Any) -> bool:
    """Whether the selector looks at the encoder's attention."""
    return isinstance(selector, Selector) and selector.needs_encoder_attention
