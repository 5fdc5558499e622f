"""Prefix sharing: the prompt up to its last visual token is read once for all questions on it.

Requests of one call with the same visual tokens at the same positions have an identical prompt up to the question. That
prefix goes through the language model once; its keys and values are repeated along the batch, and only the questions
are read one by one:

    plan_batches(...)          # which requests share a prefix, and which are read together
    past = prefill_prefixes(model, prompts, owners, clock)
    cache, mask = past.repeat(spare)               # then decode the ``suffix`` of each prompt on top of it

Causal attention makes this the same function as reading every prompt whole: no token looks ahead.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from stakes.models.local.attention import last_token_prefill
from stakes.models.local.generate import forward, without_position_ids
from stakes.models.local.kv_cache import PreallocatedCache, PreallocatedLayer, empty_cache
from stakes.models.local.resources import Clock
from stakes.vision.deletion.exact import PromptTensors, Selection, pack
from stakes.vision.selectors.base import Selector


@dataclass(frozen=True)
class SharedPrefixes:
    """The KV cache of P prefixes.

    ``layers``: by decoder layer, keys and values [P, H, T, h]. ``mask``: [P, T] 1 where there is a token. ``owners``:
    by request, which of the P prefixes is its own.
    """

    layers: list[tuple[Tensor, ...]]
    mask: Tensor
    owners: Tensor

    def __getitem__(self, rows: slice) -> SharedPrefixes:
        """The same prefixes for some of the requests."""
        return replace(self, owners=self.owners[rows])

    def repeat(self, spare: int) -> tuple[PreallocatedCache, Tensor]:
        """One row for each request, with ``spare`` columns for more tokens: its cache, and its mask [B, T]."""
        layers = [PreallocatedLayer.of(keys[self.owners], values[self.owners], spare) for keys, values in self.layers]
        return PreallocatedCache(layers), self.mask[self.owners]


def prefill_prefixes(
    model: Any, prompts: Sequence[PromptTensors], owners: Sequence[int], clock: Clock
) -> SharedPrefixes:
    """Prefill the prefixes of these prompts, one for each that is shared; ``owners``: by request, which one.

    Prefixes of one length are read together and different lengths separately: without padding no mask is needed, and
    without a mask no keys are copied for each head. The padding comes after, on the left of keys and values.
    """
    language_model = model.get_decoder()
    prefixes = [prefix(prompt) for prompt in prompts]
    lengths = [len(one.embeds) for one in prefixes]
    by_length = sorted(set(lengths))
    order = [i for length in by_length for i in range(len(lengths)) if lengths[i] == length]
    parts: list[list[tuple[Tensor, ...]]] = []
    with clock("prefill"), without_position_ids(language_model):
        for length in by_length:
            batch = pack([one for one in prefixes if len(one.embeds) == length])
            cache = empty_cache(len(language_model.layers))
            with last_token_prefill(language_model, len(batch.deepstack) < len(language_model.layers)):
                forward(model, batch, batch.mask, cache)
            parts.append([tuple(pad(x, (0, 0, by_length[-1] - length, 0)) for x in both) for both in cache.contents()])
        layers = [tuple(torch.cat(same) for same in zip(*layer, strict=True)) for layer in zip(*parts, strict=True)]
    device = prefixes[0].embeds.device
    ends = torch.tensor([lengths[i] for i in order], device=device)[:, None]
    mask = (torch.arange(by_length[-1], device=device) >= by_length[-1] - ends).long()
    row = {i: at for at, i in enumerate(order)}
    return SharedPrefixes(layers, mask, torch.tensor([row[owner] for owner in owners], device=device))


def prefix(prompt: PromptTensors) -> PromptTensors:
    """The prompt up to and including its last visual token."""
    end = int(prompt.visual[-1]) + 1
    return replace(prompt, embeds=prompt.embeds[:end], positions=prompt.positions[:, :end])


def suffix(prompt: PromptTensors) -> PromptTensors:
    """What comes after the prefix: the question, at its original positions."""
    end = int(prompt.visual[-1]) + 1
    return PromptTensors(prompt.embeds[end:], prompt.positions[:, end:], prompt.visual[:0], prompt.next_position)


def selection_key(selector: Selector, selection: Selection) -> Hashable:
    """A key for the tokens that a selector left of an image: equal keys, equal tokens.

    Kept tokens are identified by their indices. Merged ones depend on the selector, on the image and the budget, and,
    unless ``per_image``, on the question; the key of those equals no other.
    """
    if selection.merge is None:
        return tuple(selection.indices.tolist())
    return (selector, tuple(selection.indices.tolist())) if selector.per_image else object()


def plan_batches(
    prefixes: Sequence[Hashable], kinds: Sequence[Hashable], lengths: Sequence[int], size: int
) -> Iterator[list[list[int]]]:
    """Every request exactly once, as batches of groups: a group shares a prefix, a batch is read together.

    By request, ``prefixes``: the key of its prefix, None where it is not shared; ``kinds``: only equal ones are read
    together; ``lengths``: of the whole prompts. A batch is up to ``size`` groups of similar length; requests that share
    nothing are groups of one and are batched separately.

    >>> list(plan_batches(["a", "b", "a", None, "c", "c"], [None] * 6, [9, 5, 9, 7, 6, 6], 4))
    [[[1], [3]], [[4, 5], [0, 2]]]
    """
    named: dict[Hashable, list[int]] = defaultdict(list)
    for i, key in enumerate(prefixes):
        named[i if key is None else (key, kinds[i])].append(i)
    batched: dict[Hashable, list[list[int]]] = defaultdict(list)
    for group in sorted(named.values(), key=lambda group: lengths[group[0]]):
        batched[kinds[group[0]], len(group) > 1].append(group)
    for groups in batched.values():
        yield from (groups[start : start + size] for start in range(0, len(groups), size))
