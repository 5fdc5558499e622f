"""Delete visual tokens exactly in the middle of the language model, for selectors that read its attention.

``dropping`` hooks the decoder layers of ONE model instance for the length of its ``with`` block. At prefill, before a
stage's layer, the selector sees every request's own sequence. What it does not keep leaves this layer and all later
ones: hidden states, rotary factors and mask are compacted, so those layers' caches are short by construction. At
decoding each layer gets the mask that fits its own cache. Nothing is patched, and the hooks are removed with the block,
also after an exception.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from stakes.errors import BadInput
from stakes.vision.deletion.exact import Batch
from stakes.vision.selectors.layers import LayerSelector, LayerView, Stage

_left_pad = partial(pad_sequence, batch_first=True, padding_side="left")  # [T_i, ...] tensors -> [B, max T_i, ...]


class Drops:
    """The state of one batch during in-model deletion: what each request still holds, and what each layer saw.

    ``counts``: [B][depth] visual tokens that each decoder layer saw at prefill. ``valid``: by layer [B, T_l] bool, the
    columns of its cache that hold a prompt token.
    """

    def __init__(self, language_model: Any, batch: Batch, selector: LayerSelector, budgets: Sequence[int | None]):
        self.layers, self.norm, self.selector = language_model.layers, language_model.norm, selector
        self.implementation: str = language_model.config._attn_implementation
        depth = len(self.layers)
        natives = [int(n) for n in batch.visual.sum(1)]
        lefts = [
            native if budget is None else selector.left(native, budget, depth)
            for native, budget in zip(natives, budgets, strict=True)
        ]
        self.plans: list[dict[int, Stage]] = [
            {stage.layer: stage for stage in selector.plan(native, left, depth)}
            for native, left in zip(natives, lefts, strict=True)
        ]
        self.counts: list[list[int]] = [[] for _ in natives]
        self.valid: list[Tensor] = []
        # What each request still holds: lists over requests, tensors without padding.
        lengths = [int(n) for n in batch.mask.sum(1)]
        self.inputs = [embeds[-n:] for embeds, n in zip(batch.embeds, lengths, strict=True)]
        self.visual = [mask[-n:].nonzero()[:, 0] for mask, n in zip(batch.visual, lengths, strict=True)]
        self.columns = [torch.arange(n, device=batch.embeds.device) for n in lengths]
        self.deepstack = [list(torch.split(level, natives)) for level in batch.deepstack]
        self.now = batch.mask.bool()  # [B, T] of the layer about to run
        self.factors: tuple[Tensor, Tensor] | None = None  # cos, sin of the compacted sequence
        self.before: Tensor | None = None
        self.dropped = False
        self.selector_ms = 0.0  # part of the prefill's time

    def enter(self, index: int, hidden: Tensor, kwargs: dict[str, Any]) -> Tensor:
        """Before layer ``index``: drop tokens if a stage is due, and pass the matching mask and rotary factors."""
        if len(self.valid) > index:  # decoding
            if self.dropped:
                past = kwargs["past_key_values"].get_seq_length(index) + hidden.shape[1]
                seen = torch.nn.functional.pad(self.valid[index], (0, past - self.valid[index].shape[1]), value=True)
                kwargs["attention_mask"] = causal_mask(seen, hidden.shape[1], self.implementation, hidden.dtype)
                kwargs["position_ids"] = None
            return hidden
        if any(index in plan for plan in self.plans):
            hidden = self._drop(index, hidden, *(self.factors or kwargs["position_embeddings"]))
            self.dropped = True
        if self.dropped:
            kwargs["attention_mask"] = causal_mask(self.now, hidden.shape[1], self.implementation, hidden.dtype)
            kwargs["position_embeddings"] = self.factors
            kwargs["position_ids"] = None
        self.valid.append(self.now)
        self.before = hidden
        for row, visual in enumerate(self.visual):
            self.counts[row].append(len(visual))
        return hidden

    def leave(self, index: int, hidden: Tensor) -> Tensor:
        """After layer ``index`` at prefill: add the deepstack features of the remaining tokens."""
        if index >= len(self.deepstack) or hidden.shape[1] != self.now.shape[1] or len(self.valid) != index + 1:
            return hidden
        hidden = hidden.clone()
        for row, (visual, columns) in enumerate(zip(self.visual, self.columns, strict=True)):
            at = hidden.shape[1] - len(columns) + visual
            hidden[row, at] += self.deepstack[index][row].to(hidden.dtype)
        return hidden

    def _drop(self, index: int, hidden: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """[B, T, D] -> [B, T', D]: every request drops what its plan says, and the rest is left-padded again."""
        assert self.before is not None
        rows: list[tuple[Tensor, Tensor, Tensor]] = []
        for row, plan in enumerate(self.plans):
            length = len(self.columns[row])
            own, own_cos, own_sin = (
                x[row, -length:] for x in (hidden, cos.expand(len(hidden), -1, -1), sin.expand(len(hidden), -1, -1))
            )
            if index in plan:
                tensors = (own, self.before[row, -length:], own_cos, own_sin)
                whole = (self.visual[row], self.columns[row], self.inputs[row])
                view = LayerView(index, self.layers, *tensors, *whole, self.norm)
                own, stays = self._select(row, view, plan[index].keep)
                own_cos, own_sin = own_cos[stays], own_sin[stays]
            rows.append((own, own_cos, own_sin))
        self.factors = (_left_pad([cos for _, cos, _ in rows]), _left_pad([sin for _, _, sin in rows]))
        self.now = _left_pad([torch.ones(len(own), dtype=torch.bool, device=own.device) for own, _, _ in rows])
        return _left_pad([own for own, _, _ in rows])

    def _select(self, row: int, view: LayerView, keep: int) -> tuple[Tensor, Tensor]:
        started = _now(view.hidden)
        selection = self.selector.select(view, keep)
        self.selector_ms += 1000 * (_now(view.hidden) - started)
        stays = torch.ones(len(view.hidden), dtype=torch.bool, device=view.hidden.device)
        stays[view.visual] = False
        kept = view.visual[selection.indices]
        stays[kept] = True
        hidden = view.hidden
        if selection.merge is not None:
            hidden = hidden.index_copy(0, kept, selection.apply(hidden[view.visual]))
        self.visual[row] = (stays.cumsum(0) - 1)[kept]
        self.columns[row] = view.columns[stays]
        for level in self.deepstack:
            level[row] = selection.apply(level[row])
        return hidden[stays], stays


@contextmanager
def dropping(
    language_model: Any, batch: Batch, selector: LayerSelector, budgets: Sequence[int | None]
) -> Iterator[Drops]:
    """Hook one language model for one batch. Pass it no deepstack features: they are added here, after each drop."""
    drops = Drops(language_model, batch, selector, budgets)

    def before(index: int, _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        kwargs = dict(kwargs)
        return (drops.enter(index, args[0], kwargs), *args[1:]), kwargs

    def after(index: int, _module: Any, _args: Any, output: Tensor) -> Tensor:
        return drops.leave(index, output)

    with ExitStack() as hooks:
        for index, layer in enumerate(language_model.layers):
            hooks.enter_context(layer.register_forward_pre_hook(partial(before, index), with_kwargs=True))
            if index < len(batch.deepstack):
                hooks.enter_context(layer.register_forward_hook(partial(after, index)))
        yield drops


def causal_mask(valid: Tensor, queries: int, implementation: str, dtype: torch.dtype) -> Tensor | None:
    """The mask that an attention implementation expects for the last ``queries`` of L columns; ``valid``: [B, L] bool.

    [B, 1, queries, L] bool for sdpa and additive for eager, [B, L] for flash attention, None where it masks nothing.
    """
    if "flash" in implementation:
        return None if bool(valid.all()) else valid
    length = valid.shape[1]
    column = torch.arange(length, device=valid.device)
    row = column[length - queries :, None]
    # A padding row sees itself, so that no row is empty (an empty softmax is NaN); no other row sees padding.
    allowed = (valid[:, None, None, :] & (column <= row)) | (column == row)
    return explicit_mask(allowed, implementation, dtype)


def explicit_mask(allowed: Tensor, implementation: str, dtype: torch.dtype) -> Tensor:
    """[B, 1, queries, L] of what each query sees, as the attention implementation takes it."""
    if implementation not in ("sdpa", "eager"):
        raise BadInput(
            f"tokens that see less than all before them need eager or sdpa attention, not {implementation!r}"
        )
    if implementation == "sdpa":
        return allowed
    hidden = torch.zeros(allowed.shape, dtype=dtype, device=allowed.device)
    return hidden.masked_fill(~allowed, torch.finfo(dtype).min)


def _now(tensor: Tensor) -> float:
    if tensor.is_cuda:
        torch.cuda.synchronize(tensor.device)
    return time.perf_counter()
