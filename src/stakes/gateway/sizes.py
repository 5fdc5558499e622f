"""Remembers the sizes of images, so that a repeated request and the turns of a conversation send the same ones.

Two requests for one page at temperature 0 should get one answer, and an engine computes a conversation again from the
first image that changed. So each image is known by two digests:

* page: the image for this tier. The same page in another request, of any question of this tier, keeps its size.
* turn: the image in its message, for whatever tier. Once an answer follows it, it belongs to an earlier turn, and keeps
  its size there unless the new question is of a more expensive tier.

Digests are keyed with a secret of the process and the client's credentials: nothing of an image or a text is kept, and
no client learns what another has sent. The memory is bounded, and a new policy begins with an empty one.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from os import urandom
from typing import Any, NamedTuple

from stakes.budgets.controller import GrantedSize, KnownImage

MOST = 32_768  # digests; with two for each image some 8 MB


class ImageKeys(NamedTuple):
    """The digests of one image, and its place by its own bytes, alike in every gateway.

    ``earlier``: an answer follows it.
    """

    page: bytes
    turn: bytes
    earlier: bool
    place: float


class SizeMemory:
    """Sizes by digest, the least recently used forgotten first. Used on the event loop only, but for ``keys``."""

    def __init__(self, most: int = MOST) -> None:
        self._most, self._secret = most, urandom(32)
        self._sizes: OrderedDict[bytes, GrantedSize] = OrderedDict()

    def keys(self, sender: str, tier: str, turns: Any, images: Sequence[tuple[Any, bytes]]) -> list[ImageKeys]:
        """The digests of a request's images: ``(part, data)`` of each, ``part`` being its object within ``turns``."""
        places = _places(turns, [id(part) for part, _ in images])
        keys = []
        for (_, data), (text, earlier) in zip(images, places, strict=True):
            own = hashlib.blake2b(data, digest_size=32).digest()  # the one pass over the bytes, 0.7 ms a megabyte
            image = self._digest(sender.encode("utf-8", "replace"), own)
            page = self._digest(b"page", image, tier.encode("utf-8", "replace"))
            keys.append(ImageKeys(page, self._digest(b"turn", image, text), earlier, place_of(own)))
        return keys

    def find(self, keys: Sequence[ImageKeys], tier: str, costs: Mapping[str, float]) -> list[KnownImage]:
        """What each image may keep in a request of this tier."""
        found = []
        for key in keys:
            size = self._sizes.get(key.turn) if key.earlier else None
            if size is None or costs.get(size.tier, 0.0) < costs[tier]:
                size = self._sizes.get(key.page)
            found.append(KnownImage(key.place, size))
        return found

    def store(self, keys: Sequence[ImageKeys], sizes: Sequence[GrantedSize]) -> None:
        """Remember what was granted."""
        for key, size in zip(keys, sizes, strict=True):
            for digest in (key.turn, key.page):
                self._sizes[digest] = size
                self._sizes.move_to_end(digest)
        while len(self._sizes) > self._most:
            self._sizes.popitem(last=False)

    def _digest(self, *parts: bytes) -> bytes:
        digest = hashlib.blake2b(digest_size=16, key=self._secret)
        for part in parts:
            digest.update(len(part).to_bytes(8))
            digest.update(part)
        return digest.digest()


def place_of(digest: bytes) -> float:
    """A number from 0 to 1 of the digest of an image's bytes."""
    return int.from_bytes(digest[:6]) / 2**48


def _places(turns: Any, wanted: Sequence[int]) -> list[tuple[bytes, bool]]:
    """By the id of each object that holds an image: a digest of its message's texts, and whether an answer follows."""
    found: dict[int, tuple[bytes, bool]] = {}
    answered, looked_for = False, set(wanted)
    for turn in reversed(turns if isinstance(turns, list) else [turns]):
        digest, inside = hashlib.blake2b(digest_size=16), []
        stack = [turn]
        while stack:
            item = stack.pop()
            if isinstance(item, dict):
                inside += [id(item)] if id(item) in looked_for else []
                stack.extend(item.values())
            elif isinstance(item, list):
                stack.extend(item)
            elif isinstance(item, str) and item[:5].lower() != "data:":
                digest.update(item.encode("utf-8", "replace") + b"\0")
        found |= dict.fromkeys(inside, (digest.digest(), answered))
        answered = answered or _is_answer(turn)
    return [found.get(one, (b"", False)) for one in wanted]


def _is_answer(turn: Any) -> bool:
    """Whether a message, or an item of a response's input, was written by the model."""
    if not isinstance(turn, dict):
        return False
    kind = turn.get("type")
    return turn.get("role") == "assistant" or (isinstance(kind, str) and kind.endswith("_call"))
