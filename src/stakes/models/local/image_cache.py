"""What did the encoder see already? Encoded images, kept for the next question and the next budget."""

from __future__ import annotations

import hashlib
import os
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from os import PathLike
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from stakes.models.base import Request
from stakes.vision.image.decode import open_image
from stakes.vision.image.resize import Fitted, fit

WORKERS = min(8, os.cpu_count() or 1)  # images of one call that are opened at once


@dataclass(frozen=True)
class Encoded:
    """One image as its encoder gave it; N tokens in reading order.

    ``features``: [N, D]. ``grid``: (t, h, w) patches for M-RoPE families. ``deepstack``: per level [N, D].
    ``received``, ``keys``: [N], [N, h] encoder attention, only where it was asked for. ``rankings``: by selector.
    """

    features: Tensor
    grid: tuple[int, int, int] | None = None
    deepstack: tuple[Tensor, ...] = ()
    received: Tensor | None = None
    keys: Tensor | None = None
    rankings: dict[Any, Tensor] = field(default_factory=dict, compare=False, repr=False)

    @property
    def bytes(self) -> int:
        """Memory that keeping this image takes."""
        return sum(t.numel() * t.element_size() for t in (self.features, *self.deepstack))


@dataclass
class EncodedCache:
    """Least recently used images leave when ``limit`` bytes are full."""

    limit: int = 1 << 30
    hits: int = 0
    _images: OrderedDict[Hashable, Encoded] = field(default_factory=OrderedDict, repr=False)

    def get(self, key: Hashable, *, attention: bool) -> Encoded | None:
        """The image, if it is here, with the encoder attention if that is wanted."""
        found = self._images.get(key)
        if found is None or (attention and found.received is None):
            return None
        self._images.move_to_end(key)
        self.hits += 1
        return found

    def put(self, key: Hashable, encoded: Encoded) -> None:
        """Keep the image, and let the oldest go until all fit."""
        self._images[key] = encoded
        self._images.move_to_end(key)
        while len(self._images) > 1 and sum(image.bytes for image in self._images.values()) > self.limit:
            self._images.popitem(last=False)

    def clear(self) -> None:
        """Let every image go."""
        self._images.clear()

    def __len__(self) -> int:
        return len(self._images)


def digest(data: bytes, size: tuple[int, int]) -> str:
    """A name for the pixels: the same picture from a path, bytes or memory has the same name."""
    return hashlib.blake2b(data, digest_size=16, person=f"{size[0]}x{size[1]}".encode()[:16]).hexdigest()


class Opened(NamedTuple):
    """What ``fit`` made of an image (None: no budget by resolution), the image to encode, and its name.

    The name: digest of the pixels, size, and whether that size is a fitted one. ``pixels``: the bytes of that digest as
    an array [H, W, 3], read-only; only from ``open_all``, and until ``let_go``.
    """

    fitted: Fitted | None
    image: Any
    key: tuple[str, tuple[int, int], bool]
    pixels: Any = None


def by_area(images: list[Opened], limit: int = 32 << 20) -> Iterator[list[Opened]]:
    """Lots of images that are encoded together: up to ``limit`` pixels each, or one larger image."""
    lot: list[Opened] = []
    area = 0
    for opened in images:
        size = opened.image.width * opened.image.height
        if lot and area + size > limit:
            yield lot
            lot, area = [], 0
        lot.append(opened)
        area += size
    if lot:
        yield lot


def open_once(request: Request, family: str, opened: dict[Hashable, Opened]) -> Opened:
    """The request's image, fitted to its budget where resolution realises it; ``opened``: those of this call."""
    name = _name(request)
    if name not in opened:
        opened[name] = _open(request, family)._replace(pixels=None)  # the image has them too
    return opened[name]


def open_all(requests: Sequence[Request], family: str, opened: dict[Hashable, Opened]) -> list[Opened]:
    """``open_once`` of each, new images side by side: decoding, resizing and hashing leave the interpreter free."""
    new: dict[Hashable, Request] = {}
    for request in requests:
        if _name(request) not in opened:
            new.setdefault(_name(request), request)
    found = side_by_side(lambda request: _open(request, family), list(new.values()))
    opened.update(zip(new, found, strict=True))
    return [opened[_name(request)] for request in requests]


def let_go(opened: dict[Hashable, Opened]) -> None:
    """Keep the images alone, without a second copy of their pixels."""
    opened.update({name: one._replace(pixels=None) for name, one in opened.items()})


def side_by_side(work: Callable[..., Any], *items: Sequence[Any]) -> list[Any]:
    """``map``, on threads where there is more than one item and more than one core."""
    if len(items[0]) < 2 or WORKERS < 2:
        return list(map(work, *items))
    with ThreadPoolExecutor(min(len(items[0]), WORKERS)) as pool:
        return list(pool.map(work, *items))


def _budget(request: Request) -> int | None:
    return request.budget if request.mechanism == "resolution" else None


def _name(request: Request) -> Hashable:
    source = request.image
    return source if isinstance(source, str | bytes | PathLike) else id(source), _budget(request)


def _open(request: Request, family: str) -> Opened:
    budget = _budget(request)
    fitted = None if budget is None else fit(request.image, budget, family)
    image = open_image(request.image) if fitted is None else fitted.image
    data = image.tobytes()
    pixels = None
    if image.mode == "RGB":
        pixels = np.frombuffer(data, np.uint8).reshape(image.height, image.width, 3)
    return Opened(fitted, image, (digest(data, image.size), image.size, fitted is not None), pixels)
