"""Delete visual tokens exactly, before the language model, with every position kept.

The image is encoded at full resolution. A selector names the tokens to keep; the others leave the sequence before the
language model sees it. Kept tokens keep their own (M-RoPE) position columns, and decoding continues at the position
after the *unpruned* sequence, so deleting a token is the same function as hiding its keys from every later query:

    logits(delete(prompt, keep)) = logits(prompt with the keys of the others masked)      at every decoding step

    prompts = [delete(prompt, selector.select(scene, budget)) for ...]     # any sizes, any budgets
    batch = pack(prompts)                                                  # one left-padded forward pass
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from torch import Tensor


@dataclass(frozen=True)
class Selection:
    """Which of N visual tokens stay, and what they become.

    ``indices``: [k] sorted and unique, on the host where a ``Selector`` made them. ``merge``: [k, N] or None; row i
    holds the weights with which all N tokens form the i-th token that stays. None: the kept tokens are unchanged.
    """

    indices: Tensor
    merge: Tensor | None = None

    def apply(self, features: Tensor) -> Tensor:
        """[N, D] -> [k, D]: the kept rows, or the merged ones."""
        if self.merge is None:
            return features[upload(self.indices, features.device)]
        return (self.merge.to(torch.float32) @ features.to(torch.float32)).to(features.dtype)


@dataclass(frozen=True)
class PromptTensors:
    """The prompt of one request as the language model reads it.

    ``embeds``: [T, D]. ``positions``: [P, T], P = 3 for M-RoPE and 1 for 1-D positions. ``visual``: [N] the sorted
    columns that hold image tokens. ``deepstack``: per level [N, D], added after the first decoder layers (Qwen3-VL).
    ``next_position``: the position after the unpruned sequence, where decoding continues. Positions and columns stay on
    the host: ``pack`` sends those of a batch together.
    """

    embeds: Tensor
    positions: Tensor
    visual: Tensor
    next_position: int
    deepstack: tuple[Tensor, ...] = ()

    @property
    def tokens(self) -> int:
        """Visual tokens in this prompt."""
        return len(self.visual)


@dataclass(frozen=True)
class Batch:
    """Prompts of any lengths, left-padded so that every last token is in the last column.

    ``embeds``: [B, T, D]. ``mask``: [B, T] 1 where there is a token. ``positions``: [P, B, T]. ``visual``: [B, T] bool.
    ``next_positions``: [B]. ``lengths``: tokens by row, on the host. ``deepstack``: per level [sum of N, D], in row
    order.
    """

    embeds: Tensor
    mask: Tensor
    positions: Tensor
    visual: Tensor
    next_positions: Tensor
    lengths: list[int]
    deepstack: tuple[Tensor, ...] = ()


def splice(words: Tensor, features: Tensor, visual: Tensor) -> Tensor:
    """[W, D] words and [k, D] features in the order of the prompt: ``visual`` [W + k] bool, on the host.

    Slices are put together, one for each run of columns of a kind: nothing is sent to the device. Features of several
    images, and words between the parts of one image, are more runs.
    """
    changes = (visual[1:] != visual[:-1]).nonzero()[:, 0] + 1
    edges = [0, *changes.tolist(), len(visual)]
    sources = {True: features, False: words}
    used = {True: 0, False: 0}
    parts = []
    for start, end in pairwise(edges):
        kind = bool(visual[start])
        parts.append(sources[kind][used[kind] : used[kind] + end - start])
        used[kind] += end - start
    return torch.cat(parts)


def delete(prompt: PromptTensors, selection: Selection) -> PromptTensors:
    """The prompt without the visual tokens that were not selected; nothing else moves."""
    stays = torch.ones(len(prompt.embeds), dtype=torch.bool)
    stays[prompt.visual] = False
    kept = prompt.visual[selection.indices.cpu()]
    stays[kept] = True
    columns = stays.cumsum(0) - 1
    left = stays.nonzero()[:, 0]
    device = prompt.embeds.device
    embeds = prompt.embeds
    if selection.merge is not None:
        merged = selection.apply(embeds[upload(prompt.visual, device)])
        embeds = embeds.index_copy(0, upload(kept, device), merged)
    return PromptTensors(
        embeds=embeds[upload(left, device)],
        positions=prompt.positions[:, left],
        visual=columns[kept],
        next_position=prompt.next_position,
        deepstack=tuple(selection.apply(level) for level in prompt.deepstack),
    )


def zero_mask(prompt: PromptTensors, selection: Selection) -> PromptTensors:
    """A control, not a mechanism: the unselected tokens become zero vectors but stay in the sequence.

    They still take part in attention (a zero vector has a key: the rotated bias), so generation is disturbed and no
    compute is saved.
    """
    dropped = torch.ones(prompt.tokens, dtype=torch.bool)
    dropped[selection.indices.cpu()] = False
    device = prompt.embeds.device
    embeds = prompt.embeds.index_fill(0, upload(prompt.visual[dropped], device), 0)
    mask = upload(dropped, device)[:, None]
    return replace(prompt, embeds=embeds, deepstack=tuple(level.masked_fill(mask, 0) for level in prompt.deepstack))


def pack(prompts: Sequence[PromptTensors]) -> Batch:
    """Left-pad the prompts into one batch; padding is masked and has position 0."""
    first = prompts[0].embeds
    lengths = [len(prompt.embeds) for prompt in prompts]
    size, length, axes = len(prompts), max(lengths), len(prompts[0].positions)
    numbers = torch.zeros(axes + 2, size, length, dtype=torch.long)  # positions, mask, visual: to the device at once
    for row, prompt in enumerate(prompts):
        start = length - lengths[row]
        numbers[:axes, row, start:] = prompt.positions
        numbers[axes, row, start:] = 1
        numbers[axes + 1, row, start + prompt.visual] = 1
    numbers = upload(numbers, first.device)
    padding = first.new_zeros(length - min(lengths), first.shape[-1])
    parts = [part for prompt in prompts for part in (padding[: length - len(prompt.embeds)], prompt.embeds)]
    return Batch(
        embeds=torch.cat(parts).view(size, length, -1),
        mask=numbers[axes],
        positions=numbers[:axes],
        visual=numbers[axes + 1].bool(),
        next_positions=upload(torch.tensor([prompt.next_position for prompt in prompts]), first.device),
        lengths=lengths,
        deepstack=tuple(torch.cat(levels) for levels in zip(*(p.deepstack for p in prompts), strict=True)),
    )


def upload(values: Tensor, device: torch.device) -> Tensor:
    """The tensor on the device; the same tensor where it is there already.

    ``tensor.to(device)`` from pageable memory waits for all earlier GPU work. A copy from page-locked memory is queued
    and the host continues. Torch's own allocator does not reuse that memory before the copy is done.
    """
    if device.type != "cuda" or values.device.type != "cpu":
        return values.to(device)
    return values.pin_memory().to(device, non_blocking=True)
