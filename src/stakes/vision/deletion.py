"""How are visual tokens deleted exactly, with every position kept right?

The image is encoded at full resolution; a selector names the tokens to keep; the others leave the sequence before the
language model sees it. Kept tokens keep their own (M-RoPE) position columns, and decoding goes on at the position after
the *unpruned* sequence, so deleting a token is the same function as hiding its keys from every later query:

    logits(delete(prompt, keep)) = logits(prompt with the keys of the others masked)      at every decoding step

    prompts = [delete(prompt, selector.select(scene, budget)) for ...]     # any sizes, any budgets
    batch = pack(prompts)                                                  # one left-padded forward pass
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Selection:
    """Which of N visual tokens stay, and what they become.

    ``indices``: [k] sorted and unique. ``merge``: [k, N] or None; row i holds the weights with which all N tokens form
    the i-th token that stays. None means that the kept tokens stay as they are.
    """

    indices: Tensor
    merge: Tensor | None = None

    def apply(self, features: Tensor) -> Tensor:
        """[N, D] -> [k, D]: the kept rows, or the merged ones."""
        if self.merge is None:
            return features[self.indices]
        return (self.merge.to(torch.float32) @ features.to(torch.float32)).to(features.dtype)


@dataclass(frozen=True)
class Prompt:
    """One request in front of the language model.

    ``embeds``: [T, D]. ``positions``: [P, T], P = 3 for M-RoPE and 1 for plain positions. ``visual``: [N] the sorted
    columns that hold image tokens. ``deepstack``: per level [N, D], added after the first decoder layers (Qwen3-VL).
    ``next_position``: where decoding goes on, the position after the unpruned sequence.
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
    """Prompts of any lengths, padded on the left so that every last token is in the last column.

    ``embeds``: [B, T, D]. ``mask``: [B, T] 1 where there is a token. ``positions``: [P, B, T]. ``visual``: [B, T] bool.
    ``next_positions``: [B]. ``deepstack``: per level [sum of N, D] in row order.
    """

    embeds: Tensor
    mask: Tensor
    positions: Tensor
    visual: Tensor
    next_positions: Tensor
    deepstack: tuple[Tensor, ...] = ()


def delete(prompt: Prompt, selection: Selection) -> Prompt:
    """The same prompt without the visual tokens that were not selected; nothing else moves."""
    stays = torch.ones(prompt.embeds.shape[0], dtype=torch.bool, device=prompt.embeds.device)
    stays[prompt.visual] = False
    kept = prompt.visual[selection.indices]
    stays[kept] = True
    embeds = prompt.embeds
    if selection.merge is not None:
        embeds = embeds.index_copy(0, kept, selection.apply(embeds[prompt.visual]))
    columns = stays.cumsum(0) - 1
    left = stays.nonzero()[:, 0]  # once: a GPU is waited for here, to hear how many
    return Prompt(
        embeds=embeds[left],
        positions=prompt.positions[:, left],
        visual=columns[kept],
        next_position=prompt.next_position,
        deepstack=tuple(selection.apply(level) for level in prompt.deepstack),
    )


def zero_mask(prompt: Prompt, selection: Selection) -> Prompt:
    """A control, not a mechanism: the unselected tokens become zero vectors but stay in the sequence.

    They still take part in attention (a zero vector has a key: the bias, rotated), so generation is disturbed and no
    compute is saved.
    """
    dropped = torch.ones(prompt.tokens, dtype=torch.bool, device=prompt.embeds.device)
    dropped[selection.indices] = False
    embeds = prompt.embeds.clone()
    embeds[prompt.visual[dropped]] = 0
    deepstack = tuple(level.masked_fill(dropped[:, None], 0) for level in prompt.deepstack)
    return Prompt(embeds, prompt.positions, prompt.visual, prompt.next_position, deepstack)


def pack(prompts: Sequence[Prompt]) -> Batch:
    """Left-pad the prompts into one batch; padding is masked and stands at position 0."""
    first = prompts[0]
    length = max(len(prompt.embeds) for prompt in prompts)
    size = len(prompts)
    device = first.embeds.device
    embeds = first.embeds.new_zeros(size, length, first.embeds.shape[-1])
    mask = torch.zeros(size, length, dtype=torch.long, device=device)
    positions = torch.zeros(len(first.positions), size, length, dtype=torch.long, device=device)
    visual = torch.zeros(size, length, dtype=torch.bool, device=device)
    for row, prompt in enumerate(prompts):
        start = length - len(prompt.embeds)
        embeds[row, start:] = prompt.embeds
        mask[row, start:] = 1
        positions[:, row, start:] = prompt.positions
        visual[row, start + prompt.visual] = True
    return Batch(
        embeds=embeds,
        mask=mask,
        positions=positions,
        visual=visual,
        next_positions=torch.tensor([prompt.next_position for prompt in prompts], device=device),
        deepstack=tuple(torch.cat(levels) for levels in zip(*(p.deepstack for p in prompts), strict=True)),
    )
