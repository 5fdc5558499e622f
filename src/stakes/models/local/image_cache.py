"""Opened and encoded images: each is opened once per call, and kept encoded for the next question and budget."""

import hashlib
import os
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stakes.models.base import Request
from stakes.vision.deletion.blank import InkFilter, Kept, byte_range
from stakes.vision.image.decode import open_image
from stakes.vision.image.modes import Pixels
from stakes.vision.image.resize import Fitted, fit

WORKERS = min(8, os.cpu_count() or 1)  # threads that open the images of one call


@dataclass(frozen=True)
class Encoded:
    """One image as its encoder gave it; N tokens in reading order.

    ``features``: [N, D]. ``grid``: (t, h, w) patches for M-RoPE families. ``deepstack``: per level [N, D].
    ``received``, ``keys``: [N], [N, h] encoder attention, only where a selector needs it. ``text``: what stands for the
    image in a prompt, where the processor writes more than N placeholders; ``markers``: tokens of it that count beside
    the features. ``kept``: of an image whose blank tokens were dropped before the encoder, what it read; N is then the
    number of those, and ``whole`` that of the whole image. ``rankings``: by selector.
    """

    features: Tensor
    grid: tuple[int, int, int] | None = None
    deepstack: tuple[Tensor, ...] = ()
    received: Tensor | None = None
    keys: Tensor | None = None
    text: str = ""
    markers: int = 0
    kept: Kept | None = None
    whole: int | None = None
    rankings: dict[Any, Tensor] = field(default_factory=dict, compare=False, repr=False)

    @property
    def tokens(self) -> int:
        """What the encoder made of the image: features and markers."""
        return len(self.features) + self.markers

    @property
    def count(self) -> int:
        """Features of the whole image, those of dropped tokens included."""
        return len(self.features) if self.whole is None else self.whole

    @property
    def indices(self) -> Tensor | None:
        """[N] which tokens of the whole image the features are; None: all."""
        return None if self.kept is None else self.kept.tokens

    @property
    def bytes(self) -> int:
        """Memory that keeping this image takes."""
        return sum(t.numel() * t.element_size() for t in (self.features, *self.deepstack))


@dataclass
class EncodedCache:
    """An LRU cache of encoded images, up to ``limit`` bytes."""

    limit: int = 1 << 30
    _images: OrderedDict[Hashable, Encoded] = field(default_factory=OrderedDict, repr=False)
    _bytes: int = 0

    def get(self, key: Hashable, *, attention: bool, ink: InkFilter | None = None) -> Encoded | None:
        """The image, if it is here, and with the encoder attention if that is needed; ``ink``: without blank tokens.

        All budgets up to the number of tokens with ink share those tokens; a larger budget has a set of its own.
        """
        if ink is not None:
            whole = self._images.get(key)
            if whole is None or len(whole.features) > ink.budget:
                with_ink = self._images.get((key, ink.tolerance))
                shared = with_ink is not None and with_ink.kept is not None and ink.budget <= with_ink.kept.ink
                key = (key, ink.tolerance) if shared else (key, ink)
        image = self._images.get(key)
        if image is None or (attention and image.received is None):
            return None
        self._images.move_to_end(key)
        return image

    def put(self, key: Hashable, encoded: Encoded, ink: InkFilter | None = None) -> None:
        """Keep the image, and drop the oldest until all fit."""
        if ink is not None and encoded.kept is not None:
            if ink.budget <= encoded.kept.ink:
                key = (key, ink.tolerance)
            elif encoded.indices is not None:
                key = (key, ink)
        if (before := self._images.pop(key, None)) is not None:
            self._bytes -= before.bytes
        self._images[key] = encoded
        self._bytes += encoded.bytes
        while len(self._images) > 1 and self._bytes > self.limit:
            self._bytes -= self._images.popitem(last=False)[1].bytes

    def clear(self) -> None:
        """Drop every image."""
        self._images.clear()
        self._bytes = 0


@dataclass(frozen=True, eq=False)
class PagePixels:
    """The bytes of an RGB image, [H, W, 3], read-only: in NumPy, or page-locked for a GPU; and where ink is in them."""

    values: NDArray[np.uint8] | Tensor
    _levels: dict[int, tuple[NDArray[Any], NDArray[Any]]] = field(default_factory=dict, repr=False)
    _kept: dict[tuple[int, InkFilter], Kept] = field(default_factory=dict, repr=False)

    def page_locked(self) -> "PagePixels":
        """The same in memory that a GPU reads without waiting; torch does not reuse it before the copy is done."""
        if isinstance(self.values, Tensor):
            return self
        locked = torch.empty(self.values.shape, dtype=torch.uint8, pin_memory=True)
        np.copyto(locked.numpy(), self.values)
        return PagePixels(locked, self._levels, self._kept)

    def keep(self, side: int, ink: InkFilter | None) -> Kept | None:
        """What an encoder with tokens of ``side`` pixels reads of it, looked for once; None: all."""
        if ink is None:
            return None
        if (side, ink) not in self._kept:
            if side not in self._levels:
                self._levels[side] = byte_range(np.asarray(self.values), side)
            self._kept[side, ink] = ink.keep(*self._levels[side], self.values.shape[1] // side)
        return self._kept[side, ink]

    def is_known(self, side: int, ink: InkFilter | None) -> bool:
        """Whether ``keep`` has nothing left to look for."""
        return ink is None or (side, ink) in self._kept


class OpenedImage(NamedTuple):
    """An image ready to be encoded.

    ``fitted``: the result of ``fit``; None without a budget by resolution. ``image``: PIL. ``key``: digest of the
    pixels, size, and whether that size is a fitted one; the same picture from a path, bytes or memory has the same key.
    ``pixels``: the bytes of that digest, of an RGB image; only from ``open_all``, and until ``drop_pixels``.
    """

    fitted: Fitted | None
    image: Any
    key: tuple[str, tuple[int, int], bool]
    pixels: PagePixels | None = None


OpenedImages = dict[Hashable, OpenedImage]  # by source and budget, the images of one call
Ready = Callable[[Request, OpenedImage], OpenedImage]  # what a model does to an image before its call


def open_once(request: Request, family: str, opened: OpenedImages) -> OpenedImage:
    """The request's image, fitted to its budget where resolution realises it; ``opened``: those of this call."""
    name = source_of(request)
    if name not in opened:
        opened[name] = open_request(request, family)._replace(pixels=None)  # the image has them too
    return opened[name]


def open_all(requests: Sequence[Request], family: str, opened: OpenedImages) -> list[OpenedImage]:
    """``open_once`` of each request, new images in threads: decoding, resizing and hashing release the GIL."""
    new: dict[Hashable, Request] = {}
    for request in requests:
        if source_of(request) not in opened:
            new.setdefault(source_of(request), request)
    images = thread_map(lambda request: open_request(request, family), list(new.values()))
    opened.update(zip(new, images, strict=True))
    return [opened[source_of(request)] for request in requests]


def drop_pixels(opened: OpenedImages) -> None:
    """Keep the images alone, without a second copy of their pixels."""
    opened.update({name: one._replace(pixels=None) for name, one in opened.items()})


def chunks_by_area(
    images: list[tuple[OpenedImage, InkFilter | None]], limit: int = 32 << 20
) -> Iterator[list[tuple[OpenedImage, InkFilter | None]]]:
    """Images that are encoded together: up to ``limit`` pixels, or one larger image."""
    chunk: list[tuple[OpenedImage, InkFilter | None]] = []
    area = 0
    for opened, ink in images:
        size = opened.image.width * opened.image.height
        if chunk and area + size > limit:
            yield chunk
            chunk, area = [], 0
        chunk.append((opened, ink))
        area += size
    if chunk:
        yield chunk


def thread_map(work: Callable[..., Any], *items: Sequence[Any]) -> list[Any]:
    """``map``, on threads where there is more than one item and more than one core."""
    if len(items[0]) < 2 or WORKERS < 2:
        return list(map(work, *items))
    with ThreadPoolExecutor(min(len(items[0]), WORKERS)) as pool:
        return list(pool.map(work, *items))


def _resolution_budget(request: Request) -> int | None:
    return request.budget if request.mechanism == "resolution" else None


def source_of(request: Request) -> Hashable:
    """What the image is opened from, and at which budget: equal where one opening serves."""
    image = request.image
    return image if isinstance(image, str | bytes | PathLike) else id(image), _resolution_budget(request)


def open_request(request: Request, family: str) -> OpenedImage:
    """The request's image, decoded, and fitted to its budget where resolution realises it."""
    budget = _resolution_budget(request)
    fitted = None if budget is None else fit(request.image, budget, family)
    image = open_image(request.image) if fitted is None else fitted.image
    made = image if fitted is None else fitted.pixels
    data = made.data if isinstance(made, Pixels) else image.tobytes()
    fitted = None if fitted is None else replace(fitted, pixels=image)  # ``pixels`` alone holds the bytes
    digest = hashlib.blake2b(data, digest_size=16, person=f"{image.width}x{image.height}".encode()[:16]).hexdigest()
    pixels = None
    if image.mode == "RGB":
        pixels = PagePixels(np.frombuffer(data, np.uint8).reshape(image.height, image.width, 3))
    return OpenedImage(fitted, image, (digest, image.size, fitted is not None), pixels)
