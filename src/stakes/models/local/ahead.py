"""Open the images of a call before it is made; encode and rank them together, before its prompts are built."""

import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from stakes.errors import BadInput
from stakes.models.base import DEFAULT_SELECTOR, Request
from stakes.models.local.image_cache import (
    WORKERS,
    Encoded,
    OpenedImage,
    OpenedImages,
    Ready,
    chunks_by_area,
    drop_pixels,
    open_all,
    open_once,
    open_request,
    source_of,
)
from stakes.models.local.resources import Clock, explain_out_of_memory, image_that_fits
from stakes.vision.deletion.blank import InkFilter
from stakes.vision.selectors import make
from stakes.vision.selectors.base import Scene, Selector

if TYPE_CHECKING:
    from stakes.models.local.vlm import LocalVLM

AHEAD_BYTES = 1 << 30  # of images that are opened before their call
POLL = 0.001  # seconds between two looks at whether images are open


@dataclass
class AnnouncedCall:
    """The images of a call that will be made, by source and budget, each open or being opened.

    ``clock``: the time that the device has spent on them; None: it has not begun. Requests are held so that their
    images live, because an image in memory is known by its ``id``.
    """

    images: dict[Hashable, tuple[Request, Future[OpenedImage | None]]] = field(default_factory=dict)
    clock: Clock | None = None


class ImagesAhead:
    """Opens the images of the next call in threads, while the device works on this one.

    It holds the images of two announced calls at most, this one's and the next one's, and opens none beyond ``limit``
    bytes: those are left to their call. An error is raised where the image is taken, so in the call that has it.
    """

    def __init__(self, limit: int = AHEAD_BYTES) -> None:
        self.limit, self._lock = limit, threading.Lock()
        self._calls: deque[AnnouncedCall] = deque(maxlen=2)

    def start(
        self,
        requests: Sequence[Request],
        family: str,
        ready: Ready | None = None,
        more: Callable[[], object] | None = None,
    ) -> None:
        """Begin to open these images and to make each ``ready``, and do ``more`` after them; returns at once."""
        pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="stakes-ahead")
        with self._lock:
            known = {name: future for call in self._calls for name, (_, future) in call.images.items()}
            call = AnnouncedCall()
            for request in requests:
                name = source_of(request)
                if name not in call.images:
                    future = known.get(name) or pool.submit(self._open_within, request, family, ready)
                    call.images[name] = request, future
            self._calls.append(call)
        if more is not None:
            pool.submit(more)
        pool.shutdown(wait=False)  # its threads end with their work

    def take(self, requests: Sequence[Request]) -> tuple[OpenedImages, Clock | None]:
        """The images of this call that are open or being opened, and the time that the device has spent on them."""
        opened: OpenedImages = {}
        clock: Clock | None = None
        for name in dict.fromkeys(map(source_of, requests)):
            with self._lock:
                call = next((call for call in self._calls if name in call.images), AnnouncedCall())
                _, future = call.images.pop(name, (None, None))
                if call.clock is not None:
                    clock, call.clock = call.clock, None
                while self._calls and not self._calls[0].images:
                    self._calls.popleft()
            if future is not None and (image := future.result()) is not None:
                opened[name] = image
        return opened, clock

    def next_call(self, clock: Clock) -> tuple[list[Request], OpenedImages] | None:
        """The images of the next announced call, once, to be encoded on this clock; None: some are not open yet.

        They stay here until that call takes them, with the clock. The list is empty where no call is announced, and
        where one of its images could not be opened or was beyond ``limit``.
        """
        with self._lock:
            call = next((call for call in self._calls if call.images), None)
            if call is None or call.clock is not None:
                return [], {}
            images = dict(call.images)
            if not all(future.done() for _, future in images.values()):
                return None
            call.clock = clock
        good = {name: future.result() for name, (_, future) in images.items() if future.exception() is None}
        opened = {name: image for name, image in good.items() if image is not None}
        return ([request for request, _ in images.values()], opened) if len(opened) == len(images) else ([], {})

    def clear(self) -> None:
        """Forget the calls that were announced; they open their images themselves."""
        with self._lock:
            self._calls.clear()

    def _open_within(self, request: Request, family: str, ready: Ready | None) -> OpenedImage | None:
        with self._lock:
            futures = {id(future): future for call in self._calls for _, future in call.images.values()}.values()
            done = [one.result() for one in futures if one.done() and one.exception() is None]
            if sum(7 * one.image.width * one.image.height for one in done if one is not None) >= self.limit:
                return None  # 7 bytes a pixel: 4 in Pillow, 3 for the encoder
        opened = open_request(request, family)
        return opened if ready is None else ready(request, opened)


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
    while (call := vlm.ahead.next_call(clock)) is None:
        if over():
            return
        time.sleep(POLL)
    requests, opened = call
    with suppress(Exception):  # the call that has the image raises it again
        _encode_new(vlm, requests, opened, clock)


def _encode_new(vlm: "LocalVLM", requests: Sequence[Request], opened: OpenedImages, clock: Clock) -> None:
    new: dict[Hashable, tuple[OpenedImage, InkFilter | None]] = {}
    known: dict[Hashable, int] = {}  # bytes
    for request, image in zip(requests, open_all(requests, vlm.family, opened), strict=True):
        ink = ink_filter(vlm, request)
        if needs_attention(selector_of(request)):
            continue
        cached = vlm.cache.get(image.key, attention=False, ink=ink)
        if cached is None:
            new[image.key, ink] = image, ink
        else:
            known[image.key, ink] = cached.bytes
    held = sum(known.values())
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
