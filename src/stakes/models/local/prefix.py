"""What do questions on one page share? The prompt up to its last visual token: read once, then repeated.

Requests of one call with the same visual tokens in the same places have an identical prompt up to the question. That
prefix goes through the language model once; its keys and values are repeated along the batch, and only the questions
are read one by one:

    plan(...)                  # who shares what, and who is read together
    past = read(model, prompts, owners, clock)
    cache, mask = past.repeat(room)                # then decode the ``rest`` of each prompt on top of it

Causal attention makes this the same function as reading every prompt whole: no token looks ahead.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from stakes.models.local.attention import last_column
from stakes.models.local.decode import forward, plain_layers
from stakes.models.local.kv_cache import Room, RoomyCache, empty
from stakes.models.local.timing import Clock
from stakes.vision.deletion.exact import Prompt, Selection, pack
from stakes.vision.selectors.base import Selector


@dataclass(frozen=True)
class Past:
    """P prefixes as the language model remembers them.

    ``layers``: by decoder layer, keys and values [P, H, T, h]. ``mask``: [P, T] 1 where there is a token. ``owners``:
    by request, which of the P prefixes is its own.
    """

    layers: list[tuple[Tensor, ...]]
    mask: Tensor
    owners: Tensor

    def __getitem__(self, rows: slice) -> Past:
        """The same prefixes for some of the requests."""
        return Past(self.layers, self.mask, self.owners[rows])

    def repeat(self, room: int) -> tuple[RoomyCache, Tensor]:
        """One row for each request, with ``room`` for as many more tokens: its cache, and its mask [B, T]."""
        layers = [Room.of(keys[self.owners], values[self.owners], room) for keys, values in self.layers]
        return RoomyCache(layers), self.mask[self.owners]


def read(model: Any, prompts: Sequence[Prompt], owners: Sequence[int], clock: Clock) -> Past:
    """Prefill the prefixes of these prompts, one for each that is shared; ``owners``: by request, which one.

    Prefixes of one length are read together and the others apart: without padding no mask is needed, and without a
    mask no keys are copied for each head. The padding comes after, on the left of keys and values.
    """
    language_model = model.model.language_model
    prefixes = [first(prompt) for prompt in prompts]
    lengths = [len(prefix.embeds) for prefix in prefixes]
    by_length = sorted(set(lengths))
    order = [i for length in by_length for i in range(len(lengths)) if lengths[i] == length]
    parts: list[list[tuple[Tensor, ...]]] = []
    with clock("prefill"), plain_layers(language_model):
        for length in by_length:
            batch = pack([prefix for prefix in prefixes if len(prefix.embeds) == length])
            cache = empty(len(language_model.layers))
            with last_column(language_model, wanted=len(batch.deepstack) < len(language_model.layers)):
                forward(model, batch, batch.mask, cache)
            parts.append([tuple(pad(x, (0, 0, by_length[-1] - length, 0)) for x in both) for both in cache.contents()])
        layers = [tuple(torch.cat(same) for same in zip(*layer, strict=True)) for layer in zip(*parts, strict=True)]
    device = prefixes[0].embeds.device
    ends = torch.tensor([lengths[i] for i in order], device=device)[:, None]
    mask = (torch.arange(by_length[-1], device=device) >= by_length[-1] - ends).long()
    place = {i: at for at, i in enumerate(order)}
    return Past(layers, mask, torch.tensor([place[owner] for owner in owners], device=device))


def first(prompt: Prompt) -> Prompt:
    """The prompt up to and with its last visual token."""
    end = int(prompt.visual[-1]) + 1
    return Prompt(prompt.embeds[:end], prompt.positions[:, :end], prompt.visual, prompt.next_position, prompt.deepstack)


def rest(prompt: Prompt) -> Prompt:
    """What comes after: the question, at the positions that it had."""
    end = int(prompt.visual[-1]) + 1
    return Prompt(prompt.embeds[end:], prompt.positions[:, end:], prompt.visual[:0], prompt.next_position)


def chosen(selector: Selector, selection: Selection) -> Hashable:
    """A name for the tokens that a selector left of an image: equal names, equal tokens.

    Kept tokens are told by their indices. Merged ones are made by the selector, which an image and a budget determine
    unless it looks at the question; then nobody else has the same.
    """
    if selection.merge is None:
        return tuple(selection.indices.tolist())
    return (selector, tuple(selection.indices.tolist())) if selector.per_image else object()


def plan(
    prefixes: Sequence[Hashable], kinds: Sequence[Hashable], lengths: Sequence[int], size: int
) -> Iterator[list[list[int]]]:
    """Every request exactly once, as batches of groups: a group shares a prefix, a batch is read together.

    By request, ``prefixes``: the name of its prefix, None to share with nobody; ``kinds``: only equal ones are read
    together; ``lengths``: of the whole prompts. A batch is up to ``size`` groups of about one length; requests that
    share nothing are groups of one and stay among themselves.

    >>> list(plan(["a", "b", "a", None, "c", "c"], [None] * 6, [9, 5, 9, 7, 6, 6], 4))
    [[[1], [3]], [[4, 5], [0, 2]]]
    """
    named: dict[Hashable, list[int]] = defaultdict(list)
    for i, prefix in enumerate(prefixes):
        named[i if prefix is None else (prefix, kinds[i])].append(i)
    batched: dict[Hashable, list[list[int]]] = defaultdict(list)
    for group in sorted(named.values(), key=lambda group: lengths[group[0]]):
        batched[kinds[group[0]], len(group) > 1].append(group)
    for groups in batched.values():
        yield from (groups[start : start + size] for start in range(0, len(groups), size))
