"""The budgets of a request's images, read from its ``mm_processor_kwargs`` and checked; knows nothing of vLLM.

{"stakes_budget": 304}                                              every image
{"stakes_budget": [304, null, 32], "stakes_selector": "divprune"}   image by image; null: the whole image
{"stakes_budget": 304, "stakes_selector": "random", "stakes_sample": "invoice-17"}
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from stakes import plugins
from stakes.errors import BadInput
from stakes.vision.geometry import whole_number
from stakes.vision.selectors import GROUP, IMAGE_ONLY, SELECTORS, blank_stage, make, split
from stakes.vision.selectors.base import Selector

PREFIX = "stakes_"
BUDGET, SELECTOR, SAMPLE = "stakes_budget", "stakes_selector", "stakes_sample"
NATIVE = "stakes_native"  # what an image's item tells the worker beside these; no option of a request
DEFAULT = "redundancy"


@dataclass(frozen=True)
class Deletion:
    """What is kept of one image: ``budget`` tokens, chosen by ``selector``; ``sample`` seeds random choices."""

    budget: int
    selector: str = DEFAULT
    sample: str = ""

    def key(self, image: str) -> str:
        """The name under which the reduced image is cached; ``image``: the name of the whole one.

        >>> whole = "f00"
        >>> Deletion(32).key(whole) == Deletion(32).key(whole) != Deletion(33).key(whole)
        True
        """
        parts = (image, str(self.budget), self.selector, self.sample)
        return hashlib.sha256("\0".join(("stakes", *parts)).encode()).hexdigest()

    def packed(self) -> bytes:
        """Selector and sample as bytes, which a tensor can carry to the worker."""
        return f"{self.selector}\0{self.sample}".encode()


def unpacked(budget: int, packed: bytes) -> Deletion | None:
    """The inverse of ``packed``; None for a budget of 0, which stands for the whole image."""
    selector, _, sample = packed.decode().partition("\0")
    return Deletion(budget, selector, sample) if budget else None


def read_deletions(options: Mapping[str, Any], images: int) -> list[Deletion | None]:
    """What is kept of each image; None: all of it. Refuses what cannot be done, in words for the client."""
    own = {name: value for name, value in options.items() if name.startswith(PREFIX)}
    if unknown := sorted(set(own) - {BUDGET, SELECTOR, SAMPLE}):
        raise BadInput(f"mm_processor_kwargs has no {unknown[0]}; there are {BUDGET}, {SELECTOR} and {SAMPLE}")
    if not own:
        return [None] * images
    if own.get(BUDGET) is None:
        raise BadInput(f"{sorted(own)[0]} is given without a {BUDGET}; give one, or leave both out")
    selector, sample = own.get(SELECTOR, DEFAULT), own.get(SAMPLE, "")
    if not isinstance(selector, str) or not isinstance(sample, str) or "\0" in selector + sample:
        raise BadInput(f"{SELECTOR} and {SAMPLE} are text, not {selector!r} and {sample!r}")
    selector_of(selector)
    budgets = own[BUDGET]
    if not isinstance(budgets, list):
        budgets = [budgets] * images
    elif len(budgets) != images:
        raise BadInput(f"{BUDGET} has {len(budgets)} entries and the request {images} images; give one for each")
    return [None if one is None else Deletion(_budget(one), selector, sample) for one in budgets]


def without_deletions(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that are not ours."""
    return {name: value for name, value in options.items() if not name.startswith(PREFIX)}


def only(options: Mapping[str, Any], images: Sequence[int]) -> dict[str, Any]:
    """The options of a request for some of its images: a list of budgets keeps those of the images that are left."""
    budgets = options.get(BUDGET)
    return {**options, BUDGET: [budgets[i] for i in images]} if isinstance(budgets, list) else dict(options)


@lru_cache(maxsize=64)
def selector_of(spec: str) -> Selector:
    """The selector that a request names, if it looks at nothing but the features of the image.

    A request never imports code: a selector of another package must be an entry point of it.
    """
    name, _ = split(spec)
    own = name in IMAGE_ONLY
    if blank_stage(spec)[0] is not None:
        raise BadInput(f"{spec} drops tokens before the encoder, which is vLLM's own here; name {name} alone")
    if plugins.is_code(name):
        raise BadInput(f"a request cannot name code ({name}); install it as an entry point of {GROUP}")
    if name in SELECTORS and not own:
        raise BadInput(
            f"selector {name!r} needs the question, the encoder's attention or the layers of the language model, which "
            f"vLLM does not give; there are {', '.join(IMAGE_ONLY)}"
        )
    selector = make(spec)
    if isinstance(selector, Selector) and not selector.needs_encoder_attention and (selector.per_image or own):
        return selector
    raise BadInput(f"selector {name!r} looks at more than the features of the image, which vLLM does not give")


def _budget(value: Any) -> int:
    return whole_number(value, f"a {BUDGET}", "visual tokens")
