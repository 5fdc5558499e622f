"""When is an image encoded? Once, when it is first asked about; on the fast path, the new ones of a call together."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import torch

from stakes.models.base import DEFAULT_SELECTOR, Request
from stakes.models.clock import Clock
from stakes.models.images import Encoded, Opened, by_area, let_go, open_all, open_once
from stakes.models.memory import image_that_fits, out_of_memory
from stakes.vision.selectors import make
from stakes.vision.selectors.base import Scene, Selector

if TYPE_CHECKING:
    from stakes.models.local import LocalVLM


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
