"""How is an answer decoded? Greedily, from a packed batch, at positions that know nothing of what was deleted.

The loop is our own rather than ``generate`` because positions must go on after the unpruned sequence, caches of
in-model selectors differ in length by layer, and prefill and decode are timed apart. With all tokens kept it returns
what stock ``generate(do_sample=False)`` returns, including the checkpoint's own repetition penalty where it has one.

Prompts are read a few at a time, those of like length together, and answers written all at once: a step costs little
more for 32 rows than for 8. When half of the rows have ended, they leave. A row knows nothing of the others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from stakes.models.local.attention import folding, last_column
from stakes.models.local.kv_cache import RoomyCache, new_cache
from stakes.models.local.timing import Clock
from stakes.vision.deletion.exact import Batch, upload
from stakes.vision.deletion.inside_layers import causal_mask


@dataclass(frozen=True)
class Decoded:
    """``tokens``: by request, without the end token. ``truncated``: no end token came. ``logits``: [B, V] by step."""

    tokens: list[list[int]]
    truncated: list[bool]
    logits: list[Tensor] = field(default_factory=list)


def greedy(
    model: Any,
    batch: Batch,
    prompt_ids: Sequence[Tensor],
    *,
    max_new_tokens: int,
    clock: Clock,
    deepstack: bool = True,
    keep_logits: bool = False,
    past: tuple[Any, Tensor] | None = None,
    size: int = 8,
) -> Decoded:
    """Decode every request of the batch to its end token or ``max_new_tokens``.

    ``prompt_ids``: by request [T] ids of the *unpruned* prompt, which the repetition penalty reads. ``deepstack``:
    whether the language model adds the batch's deepstack features itself; False: somebody's hooks do, and count on
    every row and column. ``past``: the cache of what stands in front of the batch, and its mask [B, T]. ``size``: rows
    that are read at once on top of a past.
    """
    ends = end_ids(model)
    penalty = penalty_of(model)
    seen = [upload(torch.unique(ids), batch.embeds.device) for ids in prompt_ids] if penalty != 1.0 else []
    language_model, embed = model.model.language_model, model.get_input_embeddings()
    cache, before = past or (new_cache(language_model.config), batch.mask[:, :0])
    mask = torch.cat((before, batch.mask, batch.mask.new_ones(len(batch.mask), max_new_tokens)), 1)
    length = mask.shape[1] - max_new_tokens
    written: list[list[int]] = [[] for _ in prompt_ids]
    rows = list(range(len(written)))  # which request each row of the cache answers
    ended = [False] * len(written)
    next_positions = batch.next_positions
    leaves = deepstack and not keep_logits and isinstance(cache, RoomyCache)
    logits_by_step: list[Tensor] = []
    with plain_layers(language_model):
        with clock("prefill"):
            if past is not None and isinstance(cache, RoomyCache):
                hidden = read_past(model, batch, mask[:, :length], cache, size)
            else:
                with last_column(
                    language_model, wanted=deepstack and len(batch.deepstack) < len(language_model.layers)
                ):
                    hidden = forward(model, batch, mask[:, :length], cache, deepstack=deepstack)
            picked, chosen, logits = _pick(model, hidden, seen, penalty)
        with folding(language_model) as folded:
            whole = mask[:, None, None].bool() if folded else mask
            for step in range(max_new_tokens):
                if keep_logits:
                    logits_by_step.append(logits)
                for row, token in zip(rows, picked, strict=True):
                    written[row].append(token)
                    ended[row] = ended[row] or token in ends
                if all(ended) or step + 1 == max_new_tokens:
                    break
                if penalty != 1.0:
                    seen = [torch.unique(torch.cat((ids, new[None]))) for ids, new in zip(seen, chosen, strict=True)]
                with clock("decode"):
                    alive = [at for at, row in enumerate(rows) if not ended[row]]
                    if leaves and 2 * len(alive) <= len(rows):
                        stay = torch.tensor(alive, device=chosen.device)
                        cache.keep(stay)
                        whole, next_positions, chosen = whole[stay], next_positions[stay], chosen[stay]
                        rows, seen = [rows[at] for at in alive], [seen[at] for at in alive] if seen else []
                    where = (next_positions + step)[None, :, None].expand(len(batch.positions), -1, 1)
                    hidden = _call(
                        language_model, embed(chosen[:, None]), whole[..., : length + step + 1], where, cache
                    )
                    picked, chosen, logits = _pick(model, hidden, seen, penalty)
    return cut(written, ends, max_new_tokens, logits_by_step)


def read_past(model: Any, batch: Batch, mask: Tensor, cache: RoomyCache, size: int) -> Tensor:
    """[B, 1, D] hidden states of the last column, read ``size`` rows at once, each lot without the padding it shares.

    Lots write into one cache: their columns begin after a gap, which stays empty and masked.
    """
    language_model = model.model.language_model
    columns = batch.mask.shape[1]
    cache.reserve(columns)
    found = []
    with last_column(language_model), folding(language_model) as folded:
        for start in range(0, len(batch.mask), size):
            rows = slice(start, start + size)
            gap = columns - max(batch.lengths[rows])
            seen: Any = mask[rows]
            if folded:
                seen = causal_mask(seen.bool(), columns - gap, "sdpa", batch.embeds.dtype)
            embeds, positions = batch.embeds[rows, gap:], batch.positions[:, rows, gap:]
            found.append(_call(language_model, embeds, seen, positions, cache.part(rows, gap))[:, -1:])
    cache.grow(columns)
    return torch.cat(found)


def forward(model: Any, batch: Batch, mask: Tensor, cache: Any, *, deepstack: bool = True) -> Tensor:
    """[B, T, D] hidden states of a packed batch; ``mask``: [B, past + T], of what the cache holds already as well."""
    extra: dict[str, Any] = {}
    if deepstack and batch.deepstack:
        extra = {"visual_pos_masks": batch.visual, "deepstack_visual_embeds": list(batch.deepstack)}
    return _call(model.model.language_model, batch.embeds, mask, batch.positions, cache, **extra)


def _call(language_model: Any, embeds: Tensor, mask: Tensor, positions: Tensor, cache: Any, **extra: Any) -> Tensor:
    hidden: Tensor = language_model(
        inputs_embeds=embeds,
        attention_mask=mask,
        position_ids=positions if len(positions) > 1 else positions[0],
        past_key_values=cache,
        use_cache=True,
        **extra,
    ).last_hidden_state
    return hidden


def _pick(model: Any, hidden: Tensor, seen: Sequence[Tensor], penalty: float) -> tuple[list[int], Tensor, Tensor]:
    """The likeliest next tokens on the host and on the device [B], and the logits [B, V] that chose them."""
    logits = model.lm_head(hidden[:, -1]).float()
    if penalty != 1.0:
        logits = _penalise(logits, seen, penalty)
    chosen = logits.argmax(-1)
    return chosen.tolist(), chosen, logits


@contextmanager
def plain_layers(language_model: Any) -> Iterator[None]:
    """Keep 1-D position ids from flash attention for the length of the block.

    Decoder layers pass them on beside the rotary factors, and flash attention takes a gap in them, which is what
    deletion leaves, for the seam between two packed sequences. Other implementations never read them.
    """
    handles = []

    def hook(_: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        return args, {**kwargs, "position_ids": None}

    try:
        if "flash" in str(language_model.config._attn_implementation):
            handles = [layer.register_forward_pre_hook(hook, with_kwargs=True) for layer in language_model.layers]
        yield
    finally:
        for handle in handles:
            handle.remove()


def cut(written: Sequence[Sequence[int]], ends: Collection[int], most: int, logits: list[Tensor]) -> Decoded:
    """What was written up to the end tokens, of ``most`` tokens at the longest; later steps are no part of it."""
    tokens, truncated = [], []
    for row in written:
        end = next((at for at, token in enumerate(row) if token in ends), most)
        tokens.append(list(row[:end]))
        truncated.append(end == most)
    steps = max(len(row) + (not short) for row, short in zip(tokens, truncated, strict=True))
    return Decoded(tokens, truncated, logits[:steps])


def penalty_of(model: Any) -> float:
    """The checkpoint's own repetition penalty; 1 is none."""
    return float(getattr(model.generation_config, "repetition_penalty", None) or 1.0)


def end_ids(model: Any) -> frozenset[int]:
    """The tokens that end an answer."""
    ends = model.generation_config.eos_token_id
    if ends is None:
        ends = getattr(model.config, "eos_token_id", None)
    if ends is None:
        ends = getattr(model.config.get_text_config(), "eos_token_id", None)
    return frozenset([] if ends is None else [ends] if isinstance(ends, int) else ends)


def _penalise(logits: Tensor, seen: Sequence[Tensor], penalty: float) -> Tensor:
    """Divide the positive logits of tokens already seen by the penalty, multiply the negative ones."""
    logits = logits.clone()
    for row, ids in enumerate(seen):
        values = logits[row, ids]
        logits[row, ids] = torch.where(values > 0, values / penalty, values * penalty)
    return logits
