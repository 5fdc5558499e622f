"""The base of models on this machine: encode, select, delete, pack and decode, the same for every family.

A family writes two methods: ``encode`` (image to merged features) and ``positions`` (of the unpruned prompt). Requests
of any sizes, budgets and mechanisms share one forward pass; those of an in-model selector share one with each other.
Questions on the same visual tokens share more: those tokens are read once for all of them (``prefix``).
"""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor

from stakes.errors import LedgerBreach
from stakes.models.base import MAX_NEW_TOKENS, Answer, Request, confidence_of
from stakes.models.fast import ops_for
from stakes.models.fast.decoder import FastDecoder
from stakes.models.identity import ModelName
from stakes.models.local.ahead import ImagesAhead, encode_ahead, encode_next
from stakes.models.local.generate import Decoded, DecodeOptions, greedy
from stakes.models.local.image_cache import (
    Encoded,
    EncodedCache,
    OpenedImage,
    PagePixels,
    drop_pixels,
)
from stakes.models.local.kv_cache import has_sliding_window
from stakes.models.local.prefix import SharedPrefixes, plan_batches, prefill_prefixes, suffix
from stakes.models.local.processor import Processor
from stakes.models.local.prompt import Job, prepare
from stakes.models.local.resources import STAGES, Clock, explain_out_of_memory, prompt_that_fits, with_host
from stakes.vision.deletion.blank import InkFilter
from stakes.vision.deletion.exact import pack
from stakes.vision.deletion.inside_layers import dropping


@dataclass
class LocalVLM(ABC):
    """A transformers model, its processor, and its cache of encoded images.

    ``batch_size``: prompts read at once. ``decode_size``: answers generated at once, where they share a prefix.
    ``fast``: whether to use the GPU engine (``models.fast``); None: on a GPU. ``named``: how it was loaded.
    """

    model: Any
    processor: Processor
    family: str
    max_new_tokens: int = MAX_NEW_TOKENS
    batch_size: int = 8
    decode_size: int = 32
    cache: EncodedCache = field(default_factory=EncodedCache)
    ahead: ImagesAhead = field(default_factory=ImagesAhead, repr=False)
    fast: bool | None = None
    named: ModelName | None = None
    several_images: ClassVar[bool] = False  # whether a prompt may have more than one
    _lock: Any = field(default_factory=threading.RLock, repr=False)

    @abstractmethod
    def encode(self, image: Any, *, exact: bool, attention: bool, ink: InkFilter | None = None) -> Encoded:
        """The merged features of a PIL image; ``exact``: at its own size, which is a fitted one.

        ``ink``: which tokens to drop before the encoder, if not ``refuses_blank``.
        """

    def encode_many(
        self,
        images: Sequence[Any],
        exact: Sequence[bool],
        pixels: Sequence[PagePixels | None] = (),  # noqa: ARG002
        ink: Sequence[InkFilter | None] = (),
    ) -> list[Encoded]:
        """Several images, in one call where the family can. ``pixels``: theirs, where known."""
        each = zip(images, exact, ink or [None] * len(images), strict=True)
        return [self.encode(image, exact=one, attention=False, ink=own) for image, one, own in each]

    def ids(self, question: str, *encoded: Encoded) -> Tensor:
        """[T] ids of the unpruned prompt, the image token at the column of each feature of its whole images."""
        return self.processor.ids(question, *(one.count for one in encoded))

    @abstractmethod
    def positions(self, ids: Tensor, *encoded: Encoded) -> Tensor:
        """[T] ids -> [P, T] positions of the unpruned prompt; ``encoded``: its images in order."""

    @cached_property
    def fast_decoder(self) -> FastDecoder | None:
        """The GPU engine; the one place where it is chosen: on a GPU or with ``fast``, if it supports the layers."""
        enabled = self.device.type == "cuda" if self.fast is None else self.fast
        if not enabled or not FastDecoder.supports(self.model):
            return None
        return FastDecoder(self.model, ops_for(self.device))

    @property
    def device(self) -> torch.device:
        """The device of the model."""
        device: torch.device = self.model.get_input_embeddings().weight.device
        return device

    @property
    def depth(self) -> int:
        """Decoder layers of the language model."""
        return len(self.model.get_decoder().layers)

    @property
    def refuses_in_model(self) -> str | None:
        """Why no selector can drop tokens inside the decoder; None where it can."""
        return None

    @property
    def refuses_blank(self) -> str | None:
        """Why ``encode`` takes no ``InkFilter``; None where it does."""
        return f"this is done before the encoder of Qwen2-VL, 2.5-VL and 3-VL, not of a {self.model.config.model_type}"

    @property
    def has_sliding_window(self) -> bool:
        """Whether some layers use sliding-window attention."""
        return has_sliding_window(self.model.get_decoder().config)

    def reset_fast_path(self) -> None:
        """Free what the GPU engine holds; the next answer builds it again, on the device where the model is then."""
        for name in ("fast_decoder", "_encoder"):
            vars(self).pop(name, None)

    def forget(self) -> None:
        """Drop every encoded image and every announced call, as before a timing."""
        self.cache.clear()
        self.ahead.clear()

    def answer(self, requests: Sequence[Request]) -> list[Answer]:
        """One answer for each request, in order; at most ``batch_size`` share a forward pass, by length."""
        with self._lock, torch.inference_mode():  # hooks sit on the one model: no two batches at once
            began = time.perf_counter()
            parts = [part for request in requests for part in request.parts]
            opened, before = self.ahead.take(parts)
            clock = before or Clock(self.device)
            if self.fast_decoder is not None:
                encode_ahead(self, parts, opened, clock)
            drop_pixels(opened)
            jobs = prepare(self, requests, opened)
            lengths = [len(job.prompt.embeds) for job in jobs]
            kinds = [job.prefix for job in jobs], [job.inside for job in jobs]
            batches = list(plan_batches(*kinds, lengths, self.batch_size))
            answers: dict[int, Answer] = {}
            for at, groups in enumerate(batches, 1):
                answers.update(self._answer_batch(jobs, groups, clock, last=at == len(batches)))
            return with_host([answers[i] for i in range(len(jobs))], 1000 * (time.perf_counter() - began))

    def open_ahead(self, requests: Sequence[Request]) -> None:
        """Begin to open the images and to tokenize the questions of the next ``answer``; returns at once.

        What that call finds ready it does not do again; its answers are the same.
        """

        def tokenize() -> None:
            for request in requests if isinstance(self.processor, Processor) else ():
                self.processor.prompt_ids(request.question, len(request.parts))

        self.ahead.start([part for request in requests for part in request.parts], self.family, self.ready, tokenize)

    def ready(self, request: Request, image: OpenedImage) -> OpenedImage:  # noqa: ARG002
        """An image that was opened ahead, with all that the device needs not wait for done."""
        return image

    def prepare(self, request: Request) -> Job:
        """The job of one request: its prompt with the tokens deleted, and what was spent on it."""
        (job,) = prepare(self, [request], {})
        return job

    def _answer_batch(
        self, jobs: Sequence[Job], groups: list[list[int]], encoding: Clock, *, last: bool
    ) -> Iterator[tuple[int, Answer]]:
        """Answers by index of the job: what each group shares is read once, then its questions.

        ``encoding``: what was spent on the images of all jobs, read when the GPU is done with them. ``last``: whether
        no other batch of this call follows.
        """
        owners = {i: at for at, group in enumerate(groups) for i in group}
        members = sorted(owners, key=lambda i: len(suffix(jobs[i].prompt).embeds))  # little padding between questions
        clock = Clock(self.device)
        past: SharedPrefixes | None = None
        if len(members) > len(groups):
            prompts = [jobs[group[0]].prompt for group in groups]
            doing = f"reading {len(prompts)} images"
            with explain_out_of_memory(doing, lambda: prompt_that_fits(self, pack(prompts))):
                past = prefill_prefixes(self.model, prompts, [owners[i] for i in members], clock)
        size = self.batch_size if past is None else max(self.batch_size, self.decode_size)
        for start in range(0, len(members), size):
            rows = slice(start, start + size)
            end = last and start + size >= len(members)
            decoded, layer_tokens, spent = self._decode([jobs[i] for i in members[rows]], past and past[rows], last=end)
            for stage in STAGES:
                spent[stage] += clock.spent[stage] / len(members) + encoding.spent[stage] / len(jobs)
            for at, i in enumerate(members[rows]):
                yield i, self._answer(jobs[i], decoded, at, layer_tokens[at], spent)

    def _decode(
        self, jobs: Sequence[Job], past: SharedPrefixes | None = None, *, last: bool = False
    ) -> tuple[Decoded, list[float], dict[str, float]]:
        """Tokens, visual tokens averaged over layers by job, and milliseconds by stage, of one job's share."""
        clock = Clock(self.device)
        batch = pack([job.prompt if past is None else suffix(job.prompt) for job in jobs])
        with clock("prefill"):
            before = None if past is None else past.repeat(batch.embeds.shape[1] + self.max_new_tokens)
        inside = jobs[0].inside
        hooks: Any = nullcontext()
        if inside is not None:
            hooks = dropping(self.model.get_decoder(), batch, inside, [job.feature_budget for job in jobs])
        doing = f"reading {len(jobs)} prompts of up to {batch.embeds.shape[1]} tokens"
        ids, decoder = [job.ids for job in jobs], self.fast_decoder
        with (
            explain_out_of_memory(doing, lambda: prompt_that_fits(self, pack([job.prompt for job in jobs]))),
            hooks as drops,
        ):
            options = DecodeOptions(
                self.max_new_tokens,
                clock,
                past=before,
                rows_at_once=self.batch_size,
                drops=drops,
                meanwhile=self._encode_next if last else None,
            )
            if decoder is not None:
                decoded = decoder.greedy(batch, ids, options)
            else:
                decoded = greedy(self.model, batch, ids, options)
        if drops is None:
            averages = [float(job.prompt.tokens + job.markers) for job in jobs]
        else:
            for job, counts in zip(jobs, drops.counts, strict=True):
                if counts[-1] + job.markers != job.realised:
                    raise LedgerBreach(f"{counts[-1]} visual tokens left the last drop for a budget of {job.realised}")
            averages = [job.markers + sum(counts) / len(counts) for job, counts in zip(jobs, drops.counts, strict=True)]
            clock.spent["selector"] += drops.selector_ms
            clock.spent["prefill"] -= drops.selector_ms
        return decoded, averages, {stage: clock.spent[stage] / len(jobs) for stage in STAGES}

    def _encode_next(self, over: Callable[[], bool]) -> None:
        encode_next(self, Clock(self.device), over)

    def _answer(self, job: Job, decoded: Decoded, at: int, layer_tokens: float, spent: dict[str, float]) -> Answer:
        return Answer(
            text=self.processor.tokenizer.decode(decoded.tokens[at], skip_special_tokens=True).strip(),
            native_tokens=job.native,
            budget=job.request.total_budget,
            realised_tokens=job.realised,
            truncated=decoded.truncated[at],
            timings={stage: ms + spent[stage] for stage, ms in job.spent.items()},
            input_tokens=job.prompt.tokens + job.markers,
            layer_tokens=layer_tokens,
            encoder_tokens=job.encoder_tokens,
            confidence=confidence_of(decoded.logprobs[at]),
            logprobs=tuple(decoded.logprobs[at]),
            image_tokens=job.image_tokens,
        )


@contextmanager
def captured_inputs(module: Any, *, enabled: bool) -> Iterator[dict[str, Any]]:
    """Capture the arguments of one attention module's next call; its first one as "hidden_states"."""
    inputs: dict[str, Any] = {}

    def hook(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        inputs.update(kwargs, hidden_states=args[0] if args else kwargs["hidden_states"])

    with module.register_forward_pre_hook(hook, with_kwargs=True) if enabled else nullcontext():
        yield inputs
