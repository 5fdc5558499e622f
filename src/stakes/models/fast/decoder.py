"""Greedy decoding on a GPU: prompts packed without padding, a static KV cache, a captured step.

The same function as ``local.generate.greedy``, with equal options and results, for models with supported layers:

* prefill: all prompts one after another through the layers, their tokens rounded up to a bucket;
* decode: one captured step (``cuda_graphs``), replayed for each token. The token goes from one step to the next on the
  device; the host learns two steps late which rows have ended, so the GPU never waits for it.

What a shared prefix or an in-model selector has left in a dynamic cache is copied, layer by layer, each at its own
length. On a CPU the same code runs without capture: a reference for tests; ``local.generate.greedy`` is faster there.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from stakes.models.fast import torch_ops
from stakes.models.fast.cuda_graphs import CudaGraphs
from stakes.models.fast.layers import Layers, layer_weights, supports
from stakes.models.fast.state import (
    DecodeState,
    StaticCache,
    VarlenBatch,
    column_bucket,
    pack_varlen,
    pad_to_bucket,
    row_bucket,
    token_bucket,
)
from stakes.models.local import generate
from stakes.models.local.generate import Decoded, DecodeOptions
from stakes.models.local.kv_cache import new_cache
from stakes.vision.deletion.exact import Batch, upload

MAX_CAPTURED_TOKENS = 4096  # a longer prefill keeps the GPU busy without being captured
LAG = 2  # steps after which the host reads which rows have ended


@dataclass(frozen=True)
class Download:
    """Values on their way to the host; whoever reads them waits for their copy, and not for later work."""

    values: Tensor
    event: Any = None

    @classmethod
    def start(cls, values: Tensor) -> "Download":
        """Queue the copy."""
        if not values.is_cuda:
            return cls(values)
        copy = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
        copy.copy_(values, non_blocking=True)
        event: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(values.device))
        return cls(copy, event)

    def done(self) -> bool:
        """Whether reading would not wait."""
        return self.event is None or bool(self.event.query())

    def read(self) -> Any:
        """The values as a list."""
        if self.event is not None:
            self.event.synchronize()
        return self.values.tolist()


@dataclass
class FastDecoder:
    """One model's weights, buffers and captured steps. ``ops``: ``torch_ops`` or ``triton_ops``."""

    model: Any
    ops: Any = torch_ops
    graphs: CudaGraphs = field(init=False)
    layers: Layers = field(init=False)
    states: dict[int, DecodeState] = field(default_factory=dict, repr=False)
    buffers: dict[tuple[Any, ...], VarlenBatch] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        language_model = self.model.model.language_model
        self.graphs = CudaGraphs(self.model.get_input_embeddings().weight.device)
        weights = [layer_weights(layer) for layer in language_model.layers]
        dtype = language_model.norm.weight.dtype
        self.buckets = self.ops.supports_varlen(dtype, self.graphs.device)  # else lengths are read on the host
        self.layers = Layers(weights, language_model.norm.weight, self.ops)
        if self.graphs.device.type == "cuda":
            torch.cuda.empty_cache()  # the matrices before they were fused
        self.ends = sorted(generate.end_ids(self.model))
        self._ends = torch.tensor(self.ends, device=self.graphs.device)

    @staticmethod
    def supports(model: Any) -> bool:
        """Whether this path supports the model's layers, and its rules of decoding, of which a penalty is one."""
        return supports(model.model.language_model) and not generate.has_rules(model, beside_penalty=True)

    def greedy(self, batch: Batch, prompt_ids: Sequence[Tensor], options: DecodeOptions) -> Decoded:
        """As ``local.generate.greedy``."""
        penalty, clock, steps = generate.repetition_penalty(self.model), options.clock, options.max_new_tokens
        count = len(prompt_ids)
        width = batch.mask.shape[1] if options.past is None else batch.mask.shape[1] + options.past[1].shape[1]
        state = self._state(row_bucket(count), width + steps, steps, penalty != 1.0)
        logits_by_step: list[Tensor] = []
        with clock("prefill"):
            self._capture_step(state, penalty)
            state.reset()
            if penalty != 1.0:
                rows = torch.arange(count).repeat_interleave(torch.tensor([len(ids) for ids in prompt_ids]))
                where = upload(torch.stack((rows, torch.cat(list(prompt_ids)))), state.seen.device)
                state.seen[where[0], where[1]] = True
            self._set_rope(state, batch, steps)
            if options.past is None and options.drops is None:
                last = self._prefill(state, batch)
            else:
                last = self._prefill_stock(state, batch, options)
            logits = self._pick(state, last, penalty)
            if options.keep_logits:
                logits_by_step.append(logits[:count].clone())
        pending: deque[Download] = deque()
        with clock("decode"):
            for _ in range(steps - 1):
                if self._all_ended(state, count, pending):
                    break
                logits = self.graphs(self._step_name(state, penalty), lambda: self._step(state, penalty))
                if options.keep_logits:
                    logits_by_step.append(logits[:count].clone())
            found = [Download.start(values[:count]) for values in (state.generated, state.logprobs)]
        if options.meanwhile is not None:
            options.meanwhile(found[-1].done)
        generated, logprobs = (one.read() for one in found)
        return generate.cut_at_end(generated, logprobs, self.ends, steps, logits_by_step)

    def _state(self, rows: int, columns: int, steps: int, penalized: bool) -> DecodeState:
        vocabulary = self.model.lm_head.weight.shape[0] if penalized else 0
        state = self.states.get(rows)
        if state is None or not state.fits(columns, steps, vocabulary):
            self.graphs.clear()  # they read buffers that are about to be freed
            self.states.pop(rows, None)
            first, like = self.layers.weights[0], self.model.get_input_embeddings().weight.detach()
            heads, depth = first.widths[1] // first.head, len(self.layers.weights)
            cache = StaticCache.make(depth, rows, column_bucket(columns), heads, like, first.head)
            self.states[rows] = DecodeState.make(cache, steps, vocabulary, like)
        return self.states[rows]

    def _set_rope(self, state: DecodeState, batch: Batch, steps: int) -> None:
        """Rotary factors of the steps to come. Text has one position on every axis."""
        where = batch.next_positions[:, None] + torch.arange(steps, device=batch.mask.device)
        cos, sin = self._rotary(batch, where[None].expand(len(batch.positions), -1, -1))
        state.cos[: len(where)], state.sin[: len(where)] = cos, sin

    def _rotary(self, batch: Batch, positions: Tensor) -> tuple[Tensor, Tensor]:
        """[P, B, T] positions -> [B, T, h] twice, by the model's own module."""
        factors: tuple[Tensor, Tensor] = self.model.model.language_model.rotary_emb(
            batch.embeds, positions if len(positions) > 1 else positions[0]
        )
        return factors

    def _prefill(self, state: DecodeState, batch: Batch) -> Tensor:
        """[B, D] last states of prompts without a past; the cache of the state is filled."""
        cache = state.cache
        prompts = pack_varlen(batch, batch.lengths, cache.rows, lambda positions: self._rotary(batch, positions))
        cache.lengths[:, : len(batch.lengths)] = prompts.segments.cu_seqlens.diff()
        size = token_bucket(len(prompts.embeds))
        if not self.buckets or size > MAX_CAPTURED_TOKENS or prompts.deepstack:
            return self.layers.prefill(prompts, cache)
        prompts = pad_to_bucket(prompts, cache.rows, cache.columns, size)
        if self.graphs.device.type != "cuda":  # lengths are read on the host: no buffer to reuse
            return self.layers.prefill(prompts, cache)
        name = ("prefill", cache.rows, size)
        buffer = self.buffers.setdefault(name, prompts)
        buffer.copy_from(prompts)
        last: Tensor = self.graphs(name, lambda: self.layers.prefill(buffer, cache))
        return last

    def _prefill_stock(self, state: DecodeState, batch: Batch, options: DecodeOptions) -> Tensor:
        """``_prefill`` by the stock layers, on top of a past or under a selector's hooks; their cache is copied."""
        language_model, drops = self.model.model.language_model, options.drops
        with generate.without_position_ids(language_model):
            if options.past is None:
                cache, mask = new_cache(language_model.config), batch.mask
                hidden = generate.forward(self.model, batch, mask, cache, deepstack=drops is None)
            else:
                cache, mask = options.past[0], torch.cat((options.past[1], batch.mask), 1)
                hidden = generate.prefill_on_past(self.model, batch, mask, cache, options.rows_at_once)
        for layer, (keys, values) in enumerate(cache.contents()):
            state.cache.load_layer(layer, keys, values, mask.bool() if drops is None else drops.valid[layer])
        last = hidden.new_zeros(state.cache.rows, hidden.shape[-1])
        last[: len(hidden)] = hidden[:, -1]
        return last

    def _step_name(self, state: DecodeState, penalty: float) -> tuple[Any, ...]:
        return ("step", state.cache.rows, penalty)

    def _capture_step(self, state: DecodeState, penalty: float) -> None:
        """Capture the step while the state holds nothing that its warm-up could overwrite."""

        def reset() -> None:
            state.reset()
            state.step.fill_(1)  # a step follows a prefill, which generates the first token

        self.graphs.capture(self._step_name(state, penalty), lambda: self._step(state, penalty), reset)

    def _step(self, state: DecodeState, penalty: float) -> Tensor:
        """Generate every row's next token: [B, V] logits."""
        embeds = self.model.get_input_embeddings()(state.tokens)
        cos, sin = (x.index_select(1, state.step - 1)[:, 0] for x in (state.cos, state.sin))
        rows = torch.arange(state.cache.rows, device=embeds.device)
        hidden = self.layers.step(embeds, (cos, sin), state.cache, rows)
        state.cache.lengths.add_(1)
        return self._pick(state, hidden, penalty)

    def _pick(self, state: DecodeState, hidden: Tensor, penalty: float) -> Tensor:
        """Write the most likely tokens to the state; [B, V] are the logits that chose them."""
        head = self.model.lm_head
        logits: Tensor = self.ops.skinny_gemm(hidden, head.weight, head.bias).float()
        if penalty != 1.0:
            penalized = torch.where(logits > 0, logits / penalty, logits * penalty)
            logits = torch.where(state.seen, penalized, logits)
        chosen = logits.argmax(-1)
        if penalty != 1.0:
            state.seen.scatter_(1, chosen[:, None], True)
        state.tokens.copy_(chosen)
        state.generated.index_copy_(1, state.step, chosen[:, None])
        state.logprobs.index_copy_(1, state.step, generate.token_logprobs(logits, chosen)[:, None])
        if self.ends:
            state.ended.logical_or_(torch.isin(chosen, self._ends))
        state.step.add_(1)
        return logits

    def _all_ended(self, state: DecodeState, count: int, pending: deque[Download]) -> bool:
        """Whether every row had ended ``LAG`` steps ago; on a CPU, now."""
        if not self.ends:
            return False
        flag = state.ended[:count].all()
        if self.graphs.device.type != "cuda":
            return bool(flag)
        pending.append(Download.start(flag))
        if len(pending) <= LAG:
            return False
        return bool(pending.popleft().read())  # steps behind the newest: the GPU has work while the host waits
