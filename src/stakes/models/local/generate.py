"""Greedy decoding of a packed batch, at positions that are unaffected by deletion.

The loop is our own rather than ``generate`` because positions must continue after the unpruned sequence, caches of
in-model selectors differ in length by layer, and prefill and decode are timed separately. With all tokens kept it
returns what stock ``generate(do_sample=False)`` returns, under the ``RULES`` of the checkpoint's generation_config.

Prompts are read a few at a time, those of similar length together, and answers are generated all at once: a step costs
little more for 32 rows than for 8. When half of the rows have ended, they leave the batch. Rows are independent.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers.generation.logits_process import (
    LogitsProcessor,
    LogitsProcessorList,
    MinNewTokensLengthLogitsProcessor,
    NoBadWordsLogitsProcessor,
    NoRepeatNGramLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    SuppressTokensAtBeginLogitsProcessor,
    SuppressTokensLogitsProcessor,
)

from stakes.models.identity import RULES
from stakes.models.local.attention import Visible, gqa_without_repeat, last_token_prefill
from stakes.models.local.kv_cache import PreallocatedCache, empty_cache, new_cache
from stakes.models.local.resources import Clock
from stakes.vision.deletion.exact import Batch, upload
from stakes.vision.deletion.inside_layers import Drops, causal_mask


@dataclass(frozen=True)
class DecodeOptions:
    """How a batch is decoded.

    ``past``: the KV cache of what stands before the batch, and its mask [B, T]. ``rows_at_once``: rows that are read
    together on top of a past. ``drops``: the in-model selector whose hooks are active; they add the deepstack features,
    and need every row and column. ``meanwhile``: called by the fast path when the last step is queued, before the host
    waits for its tokens, with a function that says whether they are there.
    """

    max_new_tokens: int
    clock: Clock
    keep_logits: bool = False
    past: tuple[Any, Tensor] | None = None
    rows_at_once: int = 8
    drops: Drops | None = None
    meanwhile: Callable[[Callable[[], bool]], None] | None = None


@dataclass(frozen=True)
class Decoded:
    """``tokens``: by request, without the end token. ``truncated``: it had no end token. ``logits``: [B, V] by step.

    ``logprobs``: by request, the log-probability of each token and of the end token, each given those before it.
    """

    tokens: list[list[int]]
    truncated: list[bool]
    logprobs: list[list[float]]
    logits: list[Tensor] = field(default_factory=list)


def greedy(model: Any, batch: Batch, prompt_ids: Sequence[Tensor], options: DecodeOptions) -> Decoded:
    """Decode every request of the batch to its end token or ``max_new_tokens``.

    ``prompt_ids``: by request [T] ids of the *unpruned* prompt, which the rules of decoding read.
    """
    ends, clock, steps = end_ids(model), options.clock, options.max_new_tokens
    rules = [RowRules.make(model, ids, batch.embeds.device) for ids in prompt_ids] if has_rules(model) else []
    language_model, embed = model.get_decoder(), model.get_input_embeddings()
    visible = Visible.of(model, batch, steps)
    if visible is not None:  # masks do what a cache of sliding windows would do
        cache, before = empty_cache(len(language_model.layers)), batch.mask[:, :0]
    else:
        cache, before = options.past or (new_cache(language_model.config), batch.mask[:, :0])
    mask = torch.cat((before, batch.mask, batch.mask.new_ones(len(batch.mask), steps)), 1)
    length = mask.shape[1] - steps
    generated: list[list[int]] = [[] for _ in prompt_ids]
    logprobs: list[list[float]] = [[] for _ in prompt_ids]
    rows = list(range(len(generated)))  # the request of each row of the cache
    ended = [False] * len(generated)
    next_positions = batch.next_positions
    rows_may_leave = options.drops is None and not options.keep_logits and isinstance(cache, PreallocatedCache)
    logits_by_step: list[Tensor] = []
    with without_position_ids(language_model):
        with clock("prefill"):
            if options.past is not None and isinstance(cache, PreallocatedCache):
                hidden = prefill_on_past(model, batch, mask[:, :length], cache, options.rows_at_once)
            else:
                last_only = options.drops is None and len(batch.deepstack) < len(language_model.layers)
                with last_token_prefill(language_model, last_only):
                    seen = mask[:, :length] if visible is None else visible.masks(length, length)
                    hidden = forward(model, batch, seen, cache, deepstack=options.drops is None)
            picked, chosen, logits = _pick(model, hidden, rules)
        with gqa_without_repeat(language_model, isinstance(cache, PreallocatedCache)) as replaced:
            whole = mask[:, None, None].bool() if replaced else mask
            for step in range(steps):
                if options.keep_logits:
                    logits_by_step.append(logits)
                for row, token, logprob in zip(rows, picked, token_logprobs(logits, chosen).tolist(), strict=True):
                    generated[row].append(token)
                    logprobs[row].append(logprob)
                    ended[row] = ended[row] or token in ends
                if all(ended) or step + 1 == steps:
                    break
                rules = [rule.after(new) for rule, new in zip(rules, chosen, strict=True)] if rules else []
                with clock("decode"):
                    alive = [at for at, row in enumerate(rows) if not ended[row]]
                    if rows_may_leave and 2 * len(alive) <= len(rows):
                        stay = torch.tensor(alive, device=chosen.device)
                        cache.keep_rows(stay)
                        whole, next_positions, chosen = whole[stay], next_positions[stay], chosen[stay]
                        visible = visible and visible.rows(stay)
                        rows, rules = [rows[at] for at in alive], [rules[at] for at in alive] if rules else []
                    where = (next_positions + step)[None, :, None].expand(len(batch.positions), -1, 1)
                    stop = length + step + 1
                    seen = whole[..., :stop] if visible is None else visible.masks(stop, 1)
                    hidden = _call(language_model, embed(chosen[:, None]), seen, where, cache)
                    picked, chosen, logits = _pick(model, hidden, rules)
    return cut_at_end(generated, logprobs, ends, steps, logits_by_step)


def prefill_on_past(model: Any, batch: Batch, mask: Tensor, cache: PreallocatedCache, rows_at_once: int) -> Tensor:
    """[B, 1, D] hidden states of the last column, read in chunks of rows without the padding that a chunk shares.

    All chunks write into one cache: their columns begin after a gap, which stays empty and masked.
    """
    language_model = model.get_decoder()
    columns = batch.mask.shape[1]
    cache.reserve(columns)
    states = []
    with last_token_prefill(language_model), gqa_without_repeat(language_model) as replaced:
        for start in range(0, len(batch.mask), rows_at_once):
            rows = slice(start, start + rows_at_once)
            gap = columns - max(batch.lengths[rows])
            seen: Any = mask[rows]
            if replaced:
                seen = causal_mask(seen.bool(), columns - gap, "sdpa", batch.embeds.dtype)
            embeds, positions = batch.embeds[rows, gap:], batch.positions[:, rows, gap:]
            states.append(_call(language_model, embeds, seen, positions, cache.slice_rows(rows, gap))[:, -1:])
    cache.advance(columns)
    return torch.cat(states)


def forward(model: Any, batch: Batch, mask: Any, cache: Any, *, deepstack: bool = True) -> Tensor:
    """[B, T, D] hidden states of a packed batch; ``mask``: [B, past + T], of what the cache holds already as well.

    Where ``Visible`` made it, it is what each column sees.
    """
    extra: dict[str, Any] = {}
    if deepstack and batch.deepstack:
        extra = {"visual_pos_masks": batch.visual, "deepstack_visual_embeds": list(batch.deepstack)}
    return _call(model.get_decoder(), batch.embeds, mask, batch.positions, cache, **extra)


def _call(language_model: Any, embeds: Tensor, mask: Any, positions: Tensor, cache: Any, **extra: Any) -> Tensor:
    hidden: Tensor = language_model(
        inputs_embeds=embeds,
        attention_mask=mask,
        position_ids=positions if len(positions) > 1 else positions[0],
        past_key_values=cache,
        use_cache=True,
        **extra,
    ).last_hidden_state
    return hidden


def _pick(model: Any, hidden: Tensor, rules: Sequence["RowRules"]) -> tuple[list[int], Tensor, Tensor]:
    """The most likely next tokens on the host and on the device [B], and the logits [B, V] that chose them."""
    logits = model.lm_head(hidden[:, -1]).float()
    if rules:
        logits = torch.cat([rule(row[None]) for rule, row in zip(rules, logits, strict=True)])
    chosen = logits.argmax(-1)
    return chosen.tolist(), chosen, logits


def token_logprobs(logits: Tensor, chosen: Tensor) -> Tensor:
    """[B] log-probabilities of the chosen tokens [B] under the logits [B, V] that chose them."""
    return logits.gather(1, chosen[:, None])[:, 0] - logits.logsumexp(1)


@contextmanager
def without_position_ids(language_model: Any) -> Iterator[None]:
    """Hide 1-D position ids from flash attention for the length of the block.

    Decoder layers pass them on beside the rotary factors, and flash attention takes a gap in them, which deletion
    leaves, for the boundary between two packed sequences. Other implementations never read them.
    """

    def hook(_: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        return args, {**kwargs, "position_ids": None}

    with ExitStack() as hooks:
        if "flash" in str(language_model.config._attn_implementation):
            for layer in language_model.layers:
                hooks.enter_context(layer.register_forward_pre_hook(hook, with_kwargs=True))
        yield


def cut_at_end(
    generated: Sequence[Sequence[int]],
    logprobs: Sequence[Sequence[float]],
    ends: Collection[int],
    most: int,
    logits: list[Tensor],
) -> Decoded:
    """The tokens before each row's first end token, of at most ``most``; later steps are dropped."""
    tokens, truncated, kept = [], [], []
    for row, of_row in zip(generated, logprobs, strict=True):
        end = next((at for at, token in enumerate(row) if token in ends), most)
        tokens.append(list(row[:end]))
        truncated.append(end == most)
        kept.append(list(of_row[: end + 1]))
    return Decoded(tokens, truncated, kept, logits[: max(map(len, kept))])


@dataclass(frozen=True)
class RowRules:
    """The rules of one row, and what they read: [T] ids of the unpruned prompt and of the answer so far."""

    rules: LogitsProcessorList
    ids: Tensor

    @classmethod
    def make(cls, model: Any, prompt_ids: Tensor, device: torch.device) -> "RowRules":
        """The checkpoint's rules in the order of ``generate``, by transformers' own classes."""
        given, length = model.generation_config, len(prompt_ids)
        ends = torch.tensor(sorted(end_ids(model)), device=device)
        where = {"device": str(device)}
        kinds: dict[str, Callable[[Any], LogitsProcessor]] = {
            "repetition_penalty": RepetitionPenaltyLogitsProcessor,
            "no_repeat_ngram_size": NoRepeatNGramLogitsProcessor,
            "bad_words_ids": lambda words: NoBadWordsLogitsProcessor(words, ends),
            "min_new_tokens": lambda least: MinNewTokensLengthLogitsProcessor(length, least, ends, **where),
            "suppress_tokens": lambda ids: SuppressTokensLogitsProcessor(ids, **where),
            "begin_suppress_tokens": lambda ids: SuppressTokensAtBeginLogitsProcessor(ids, length, **where),
        }
        made = [kinds[name](value) for name in RULES if (value := getattr(given, name, None))]
        return cls(LogitsProcessorList(made), upload(prompt_ids, device))

    def __call__(self, logits: Tensor) -> Tensor:
        """[1, V] logits under the rules."""
        rules: Any = self.rules  # annotated with tensor types that only constructors give
        out: Tensor = rules(self.ids[None], logits)
        return out

    def after(self, token: Tensor) -> "RowRules":
        """The rules after one more token."""
        return RowRules(self.rules, torch.cat((self.ids, token[None])))


def has_rules(model: Any, *, beside_penalty: bool = False) -> bool:
    """Whether the checkpoint has any of the ``RULES``; ``beside_penalty``: any but the repetition penalty."""
    others = any(getattr(model.generation_config, name, None) for name in RULES[1:])
    return others or (not beside_penalty and repetition_penalty(model) != 1.0)


def repetition_penalty(model: Any) -> float:
    """The checkpoint's own repetition penalty; 1 is none."""
    return float(getattr(model.generation_config, "repetition_penalty", None) or 1.0)


def end_ids(model: Any) -> frozenset[int]:
    """The tokens that end an answer."""
    configs = (model.generation_config, model.config, model.config.get_text_config())
    ends: Any = next((ids for one in configs if (ids := getattr(one, "eos_token_id", None)) is not None), [])
    return frozenset([ends] if isinstance(ends, int) else ends)
