"""How is an answer decoded on a GPU? Prompts packed without padding, a cache that stays where it is, nothing asked.

The same function as ``decoding.greedy``, with the same arguments and answers, for models whose layers are ``known``:

* prefill: all prompts one after another through the layers, S tokens rounded up to a bucket;
* decode: one recorded step (``graphs``), replayed for each token. The token goes from one step to the next on the
  device; the host hears two steps late who has ended, so the GPU never waits for it.

What a shared prefix or an in-model selector has left in a dynamic cache is taken over, layer by layer, each as long as
it is. On a CPU the same code runs without recording: a reference for tests; ``decoding.greedy`` is faster there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from stakes.models.fast import torch_ops as plain_ops
from stakes.models.fast.cuda_graphs import Graphs
from stakes.models.fast.layers import Layers, known, layer_weights
from stakes.models.fast.state import Packed, State, StaticCache, columns_for, packed, rows_for, tokens_for, widen
from stakes.models.local.decode import Decoded, cut, end_ids, forward, penalty_of, plain_layers, read_past
from stakes.models.local.kv_cache import new_cache
from stakes.models.local.timing import Clock
from stakes.vision.deletion.exact import Batch, upload

LARGEST = 4096  # tokens; a longer prefill keeps the GPU busy without being recorded
LATE = 2  # steps


@dataclass
class FastDecoder:
    """One model's weights, buffers and recorded steps. ``ops``: a module like ``plain_ops``."""

    model: Any
    ops: Any = plain_ops
    graphs: Graphs = field(init=False)
    layers: Layers = field(init=False)
    states: dict[int, State] = field(default_factory=dict, repr=False)
    buffers: dict[tuple[Any, ...], Packed] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        language_model = self.model.model.language_model
        self.graphs = Graphs(self.model.get_input_embeddings().weight.device)
        weights = [layer_weights(layer) for layer in language_model.layers]
        kind = language_model.norm.weight.dtype
        self.buckets = self.ops.takes_lengths(kind, self.graphs.device)  # else lengths are the host's: no recording
        self.layers = Layers(weights, language_model.norm.weight, self.ops)
        if self.graphs.device.type == "cuda":
            torch.cuda.empty_cache()  # what the matrices were before they were joined
        self.ends = sorted(end_ids(self.model))
        self._ends = torch.tensor(self.ends, device=self.graphs.device)

    @staticmethod
    def takes(model: Any) -> bool:
        """Whether this path knows the model's layers."""
        return known(model.model.language_model)

    def greedy(
        self,
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
        drops: Any = None,
    ) -> Decoded:
        """As ``decoding.greedy``. ``drops``: the in-model selector at work, which knows each layer's tokens."""
        penalty = penalty_of(model)
        count = len(prompt_ids)
        lengths = batch.lengths
        width = batch.mask.shape[1] if past is None else batch.mask.shape[1] + past[1].shape[1]
        state = self._state(rows_for(count), width + max_new_tokens, max_new_tokens, penalty != 1.0)
        logits_by_step: list[Tensor] = []
        with clock("prefill"):
            self._prepare(state, penalty)
            state.begin()
            if penalty != 1.0:
                rows = torch.arange(count).repeat_interleave(torch.tensor([len(ids) for ids in prompt_ids]))
                where = upload(torch.stack((rows, torch.cat(list(prompt_ids)))), state.seen.device)
                state.seen[where[0], where[1]] = True
            self._factors(state, batch, max_new_tokens)
            if past is None and drops is None:
                logits = self._read(state, batch, lengths, penalty)
            else:
                logits = self._take(model, state, batch, past, drops, deepstack, size, penalty)
            if keep_logits:
                logits_by_step.append(logits[:count].clone())
        heard: deque[tuple[Any, Tensor]] = deque()
        with clock("decode"):
            for _ in range(max_new_tokens - 1):
                if self._all_ended(state, count, heard):
                    break
                logits = self.graphs(self._name(state, penalty), lambda: self._step(state, penalty))
                if keep_logits:
                    logits_by_step.append(logits[:count].clone())
            written = state.written[:count].tolist()
        return cut(written, self.ends, max_new_tokens, logits_by_step)

    def _state(self, rows: int, columns: int, steps: int, penalised: bool) -> State:
        vocabulary = self.model.lm_head.weight.shape[0] if penalised else 0
        found = self.states.get(rows)
        if found is None or not found.fits(columns, steps, vocabulary):
            self.graphs.forget()  # they read buffers that go
            self.states.pop(rows, None)
            first, like = self.layers.weights[0], self.model.get_input_embeddings().weight
            heads = first.widths[1] // first.head
            depth = len(self.layers.weights)
            cache = StaticCache.make(depth, rows, columns_for(columns), heads, like.detach(), first.head)
            self.states[rows] = State.make(cache, steps, vocabulary, like.detach())
        return self.states[rows]

    def _factors(self, state: State, batch: Batch, steps: int) -> None:
        """Rotary factors of the steps to come. Text stands at one position on every axis."""
        where = batch.next_positions[:, None] + torch.arange(steps, device=batch.mask.device)
        cos, sin = self._rotary(batch, where[None].expand(len(batch.positions), -1, -1))
        state.cos[: len(where)], state.sin[: len(where)] = cos, sin

    def _rotary(self, batch: Batch, positions: Tensor) -> tuple[Tensor, Tensor]:
        """[P, B, T] positions -> [B, T, h] twice, by the model's own module."""
        found: tuple[Tensor, Tensor] = self.model.model.language_model.rotary_emb(
            batch.embeds, positions if len(positions) > 1 else positions[0]
        )
        return found

    def _read(self, state: State, batch: Batch, lengths: list[int], penalty: float) -> Tensor:
        """Prefill from nothing: [B, V] logits of the first token."""
        cache = state.cache
        found = packed(batch, lengths, cache.rows, lambda positions: self._rotary(batch, positions))
        cache.lengths[:, : len(lengths)] = found.ends.diff()
        size = tokens_for(len(found.embeds))
        if not self.buckets or size > LARGEST or found.deepstack:
            return self._pick(state, self.layers.read(found, cache), penalty)
        found = widen(found, cache.rows, cache.columns, size)
        name = ("read", cache.rows, size)
        if self.graphs.device.type != "cuda":  # lengths are read on the host: nothing to keep
            return self._pick(state, self.layers.read(found, cache), penalty)
        buffer = self.buffers.setdefault(name, found)
        buffer.fill(found)
        return self._pick(state, self.graphs(name, lambda: self.layers.read(buffer, cache)), penalty)

    def _take(
        self,
        model: Any,
        state: State,
        batch: Batch,
        past: tuple[Any, Tensor] | None,
        drops: Any,
        deepstack: bool,
        size: int,
        penalty: float,
    ) -> Tensor:
        """Prefill by the stock layers, on top of a past or under a selector's hooks; their cache is taken over."""
        language_model = model.model.language_model
        with plain_layers(language_model):
            if past is None:
                cache, mask = new_cache(language_model.config), batch.mask
                hidden = forward(model, batch, mask, cache, deepstack=deepstack)
            else:
                cache, mask = past[0], torch.cat((past[1], batch.mask), 1)
                hidden = read_past(model, batch, mask, cache, size)
        for layer, (keys, values) in enumerate(cache.contents()):
            state.cache.take(layer, keys, values, mask.bool() if drops is None else drops.valid[layer])
        last = hidden.new_zeros(state.cache.rows, hidden.shape[-1])
        last[: len(hidden)] = hidden[:, -1]
        return self._pick(state, last, penalty)

    def _name(self, state: State, penalty: float) -> tuple[Any, ...]:
        return ("step", state.cache.rows, penalty)

    def _prepare(self, state: State, penalty: float) -> None:
        """Record the step before there is anything that its warming up could spoil."""

        def clear() -> None:
            state.begin()
            state.step.fill_(1)  # a step follows a prefill, which writes the first token

        self.graphs.ready(self._name(state, penalty), lambda: self._step(state, penalty), clear)

    def _step(self, state: State, penalty: float) -> Tensor:
        """Every row's next token, written to the state: [B, V] logits."""
        embeds = self.model.get_input_embeddings()(state.tokens)
        cos, sin = (x.index_select(1, state.step - 1)[:, 0] for x in (state.cos, state.sin))
        rows = torch.arange(state.cache.rows, device=embeds.device)
        hidden = self.layers.step(embeds, cos, sin, state.cache, rows)
        state.cache.lengths.add_(1)
        return self._pick(state, hidden, penalty)

    def _pick(self, state: State, hidden: Tensor, penalty: float) -> Tensor:
        """The likeliest tokens go to the state; [B, V] are the logits that chose them."""
        head = self.model.lm_head
        logits: Tensor = self.ops.few_rows(hidden, head.weight, head.bias).float()
        if penalty != 1.0:
            spared = torch.where(logits > 0, logits / penalty, logits * penalty)
            logits = torch.where(state.seen, spared, logits)
        chosen = logits.argmax(-1)
        if penalty != 1.0:
            state.seen.scatter_(1, chosen[:, None], True)
        state.tokens.copy_(chosen)
        state.written.index_copy_(1, state.step, chosen[:, None])
        if self.ends:
            state.ended.logical_or_(torch.isin(chosen, self._ends))
        state.step.add_(1)
        return logits

    def _all_ended(self, state: State, count: int, heard: deque[tuple[Any, Tensor]]) -> bool:
        """Whether every row had ended ``LATE`` steps ago; on a CPU, now."""
        if not self.ends:
            return False
        flag = state.ended[:count].all()
        if self.graphs.device.type != "cuda":
            return bool(flag)
        note = torch.empty((), dtype=torch.bool, pin_memory=True)
        note.copy_(flag, non_blocking=True)
        event: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record()
        heard.append((event, note))
        if len(heard) <= LATE:
            return False
        event, note = heard.popleft()
        event.synchronize()  # steps behind the newest: the GPU has work while the host waits
        return bool(note)
