"""How does a model on this machine answer? Encode, select, delete, pack, decode: the same for every family.

A family writes two methods: ``encode`` (image to merged features) and ``positions`` (of the unpruned prompt). Requests
of any sizes, budgets and mechanisms share one forward pass; those of an in-model selector share one with each other.
Questions on the same visual tokens share more: those tokens are read once for all of them (``prefix``).
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from stakes.errors import LedgerBreach
from stakes.models.base import MAX_NEW_TOKENS, Answer, Request
from stakes.models.fast.decoder import FastDecoder
from stakes.models.fast.ops import chosen
from stakes.models.local.decode import Decoded, greedy
from stakes.models.local.image_cache import Encoded, EncodedCache, Opened
from stakes.models.local.memory import out_of_memory, prompt_that_fits
from stakes.models.local.prefix import Past, plan, read, rest
from stakes.models.local.processor import Processor
from stakes.models.local.prompt import Job, encode_ahead, prepare
from stakes.models.local.timing import STAGES, Clock
from stakes.vision.deletion.exact import pack
from stakes.vision.deletion.inside_layers import dropping


@dataclass
class LocalVLM:
    """A transformers model, its processor, and the images that it has seen.

    ``batch_size``: prompts read at once. ``decode_size``: answers written at once, where they share what was read.
    ``fast``: whether steps are recorded and images encoded together (``fast_decode``); None: on a GPU.
    """

    model: Any
    processor: Processor
    family: str
    max_new_tokens: int = MAX_NEW_TOKENS
    batch_size: int = 8
    decode_size: int = 32
    cache: EncodedCache = field(default_factory=EncodedCache)
    fast: bool | None = None
    _one_at_a_time: Any = field(default_factory=threading.RLock, repr=False)

    def encode(self, image: Any, *, exact: bool, attention: bool) -> Encoded:
        """A PIL image -> its merged features; ``exact``: at its own size, which is a fitted one."""
        raise NotImplementedError

    def encode_many(self, images: Sequence[Any], exact: Sequence[bool], pixels: Sequence[Any] = ()) -> list[Encoded]:  # noqa: ARG002
        """Several images; in one call where the family can. ``pixels``: theirs as [H, W, 3] bytes, where known."""
        return [self.encode(image, exact=one, attention=False) for image, one in zip(images, exact, strict=True)]

    def positions(self, ids: Tensor, encoded: Encoded) -> Tensor:
        """[T] ids -> [P, T] positions of the unpruned prompt."""
        raise NotImplementedError

    @cached_property
    def fast_decoder(self) -> FastDecoder | None:
        """The fast path, and the one place where it is chosen: on a GPU or when asked for, if it knows the layers."""
        wanted = self.device.type == "cuda" if self.fast is None else self.fast
        ops = chosen(self.device)
        return FastDecoder(self.model, ops) if wanted and FastDecoder.takes(self.model) else None

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        found: torch.device = self.model.get_input_embeddings().weight.device
        return found

    @property
    def depth(self) -> int:
        """Decoder layers of the language model."""
        return len(self.model.model.language_model.layers)

    def forget_fast_path(self) -> None:
        """Let go of what the fast path holds on a GPU; the next answer makes it anew, where the model is then."""
        for name in ("fast_decoder", "_encoder"):
            vars(self).pop(name, None)

    def forget(self) -> None:
        """Forget every encoded image, as before a timing."""
        self.cache.clear()

    def answer(self, requests: Sequence[Request]) -> list[Answer]:
        """One answer for each request, in order; at most ``batch_size`` share a forward pass, by length."""
        with self._one_at_a_time, torch.inference_mode():  # hooks sit on the one model: no two batches at once
            opened: dict[Hashable, Opened] = {}
            ahead = encode_ahead(self, requests, opened) if self.fast_decoder is not None else {}
            jobs = prepare(self, requests, opened)
            for job in jobs:
                for stage, ms in ahead.items():
                    job.spent[stage] = job.spent.get(stage, 0.0) + ms / len(jobs)
            lengths = [len(job.prompt.embeds) for job in jobs]
            batches = plan([job.prefix for job in jobs], [job.inside for job in jobs], lengths, self.batch_size)
            answers = dict(answer for groups in batches for answer in self._batch(jobs, groups))
            return [answers[i] for i in range(len(requests))]

    def prepare(self, request: Request, opened: dict[Hashable, Opened] | None = None) -> Job:
        """Image and question to the prompt that the language model will read (``preparing``).

        ``opened``: images of this call, fitted and named already, so that each is so once.
        """
        (job,) = prepare(self, [request], {} if opened is None else opened)
        return job

    def _batch(self, jobs: Sequence[Job], groups: list[list[int]]) -> Iterator[tuple[int, Answer]]:
        """Answers by place: what each group shares is read once, then its questions."""
        owners = {i: at for at, group in enumerate(groups) for i in group}
        members = sorted(owners, key=lambda i: len(rest(jobs[i].prompt).embeds))  # little padding between questions
        clock = Clock(self.device)
        past: Past | None = None
        if len(members) > len(groups):
            prompts = [jobs[group[0]].prompt for group in groups]
            with out_of_memory(f"reading {len(prompts)} images", lambda: prompt_that_fits(self, pack(prompts))):
                past = read(self.model, prompts, [owners[i] for i in members], clock)
        shared = {stage: ms / len(members) for stage, ms in clock.spent.items()}
        size = self.batch_size if past is None else max(self.batch_size, self.decode_size)
        for start in range(0, len(members), size):
            rows = slice(start, start + size)
            decoded, layer_tokens, spent = self._decode([jobs[i] for i in members[rows]], past and past[rows])
            spent = {stage: spent.get(stage, 0.0) + shared.get(stage, 0.0) for stage in STAGES}
            for at, i in enumerate(members[rows]):
                yield i, self._answer(jobs[i], decoded, at, layer_tokens[at], spent)

    def _decode(self, jobs: Sequence[Job], past: Past | None = None) -> tuple[Decoded, list[float], dict[str, float]]:
        clock = Clock(self.device)
        with clock("host"):
            batch = pack([job.prompt if past is None else rest(job.prompt) for job in jobs])
        with clock("prefill"):
            before = None if past is None else past.repeat(batch.embeds.shape[1] + self.max_new_tokens)
        inside = jobs[0].inside
        language_model = self.model.model.language_model
        watch: Any = nullcontext()
        if inside is not None:
            watch = dropping(language_model, batch, inside, [job.request.budget for job in jobs])
        doing = f"reading {len(jobs)} prompts of up to {batch.embeds.shape[1]} tokens"
        with out_of_memory(doing, lambda: prompt_that_fits(self, pack([job.prompt for job in jobs]))), watch as drops:
            write: Any = greedy
            if self.fast_decoder is not None:
                write = partial(self.fast_decoder.greedy, drops=drops)
            decoded = write(
                self.model,
                batch,
                [job.ids for job in jobs],
                max_new_tokens=self.max_new_tokens,
                clock=clock,
                deepstack=inside is None,
                past=before,
                size=self.batch_size,
            )
        if drops is None:
            averages = [float(job.prompt.tokens) for job in jobs]
        else:
            for job, counts in zip(jobs, drops.counts, strict=True):
                if counts[-1] != job.realised:
                    raise LedgerBreach(f"{counts[-1]} visual tokens left the last drop for a budget of {job.realised}")
            averages = [sum(counts) / len(counts) for counts in drops.counts]
            clock.spent["selector"] += drops.selector_ms
            clock.spent["prefill"] -= drops.selector_ms
        return decoded, averages, {stage: ms / len(jobs) for stage, ms in clock.spent.items()}

    def _answer(self, job: Job, decoded: Decoded, at: int, layer_tokens: float, spent: dict[str, float]) -> Answer:
        return Answer(
            text=self.processor.tokenizer.decode(decoded.tokens[at], skip_special_tokens=True).strip(),
            native_tokens=job.native,
            budget=job.request.budget,
            realised_tokens=job.realised,
            truncated=decoded.truncated[at],
            timings={stage: job.spent.get(stage, 0.0) + spent.get(stage, 0.0) for stage in STAGES},
            input_tokens=job.prompt.tokens,
            layer_tokens=layer_tokens,
            encoder_tokens=job.encoder_tokens,
        )

    @property
    def slides(self) -> bool:
        """Whether some layers attend in sliding windows."""
        kinds = getattr(self.model.model.language_model.config, "layer_types", None) or []
        return "sliding_attention" in kinds
