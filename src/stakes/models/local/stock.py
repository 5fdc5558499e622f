"""Any image-text-to-text model that transformers loads, by its own processor and stock ``generate``: resolution only.

Nothing of the model is taken apart, so nothing is known of where its visual tokens stand, and none can be deleted. An
image is resized to its budget, and the image's tokens in the prompt are counted: a count that is not the family's is an
error, because every budget of that family would then be wrong. Requests are answered one by one.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from stakes.errors import BadInput, LedgerBreach
from stakes.models.base import MAX_NEW_TOKENS, SUFFIX, Answer, Request, confidence_of
from stakes.models.identity import ModelName
from stakes.models.local.generate import cut_at_end, end_ids, token_logprobs
from stakes.models.local.image_cache import OpenedImage, OpenedImages, open_once
from stakes.models.local.resources import STAGES, Clock
from stakes.models.local.spliced import why_not_deletable
from stakes.vision.geometry import count_tokens
from stakes.vision.geometry import family as named_family
from stakes.vision.geometry.patches import EdgePatches
from stakes.vision.geometry.tiles import SplitTiles


@dataclass(frozen=True)
class StockProcessor:
    """A processor of transformers: ``whole`` turns a conversation into a model's inputs."""

    whole: Any

    @property
    def images(self) -> Any:
        """Its image processor."""
        return self.whole.image_processor

    @property
    def tokenizer(self) -> Any:
        """Its tokenizer."""
        return self.whole.tokenizer

    @property
    def template(self) -> str:
        """Its chat template."""
        return str(self.whole.chat_template)

    def inputs(self, image: Any, question: str) -> Any:
        """The inputs of one question about a PIL image, as a user of transformers would make them."""
        content = [{"type": "image", "image": image}, {"type": "text", "text": question + SUFFIX}]
        return self.whole.apply_chat_template(
            [{"role": "user", "content": content}],
            add_generation_prompt=True,
            tokenize=True,
            return_dict=True,
            return_tensors="pt",
        )


def load_stock_processor(source: str, model_type: str) -> StockProcessor:
    """The processor of a checkpoint, its images by PIL."""
    from transformers import AutoProcessor

    try:
        whole: Any = AutoProcessor.from_pretrained(source, backend="pil")  # type: ignore[no-untyped-call]
    except (ImportError, OSError, ValueError) as error:
        if "torchvision" not in str(error).lower():
            raise
        raise BadInput(
            f"{source!r} is a {model_type}, whose processor in transformers needs torchvision; install the torchvision "
            "of this torch"
        ) from error
    if not isinstance(getattr(whole, "chat_template", None), str):
        raise BadInput(f"{source!r} has no chat template, so no prompt can be built for it; add a chat_template.jinja")
    if not hasattr(whole, "image_processor"):
        raise BadInput(f"{source!r} is a {model_type}, whose processor takes no images")
    return StockProcessor(whole)


@dataclass
class StockVLM:
    """A transformers model and its processor. ``named``: how it was loaded."""

    model: Any
    processor: StockProcessor
    family: str
    max_new_tokens: int = MAX_NEW_TOKENS
    named: ModelName | None = None
    _lock: Any = field(default_factory=threading.RLock, repr=False)

    @property
    def device(self) -> torch.device:
        """The device of the model."""
        device: torch.device = self.model.device
        return device

    def native_tokens(self, width: int, height: int, mechanism: str) -> int:
        """Tokens of an image of this size with no budget."""
        self._check_mechanism(mechanism)
        return count_tokens(self.family, width, height)

    def reset_fast_path(self) -> None:
        """Nothing to free: there is no GPU engine for it."""

    def answer(self, requests: Sequence[Request]) -> list[Answer]:
        """One answer for each request, in order."""
        for request in requests:
            self._check_mechanism(request.mechanism)
        opened: OpenedImages = {}
        with self._lock, torch.inference_mode():
            return [self._answer(request, opened) for request in requests]

    def _check_mechanism(self, mechanism: str) -> None:
        if mechanism != "resolution":
            kind, why = self.model.config.model_type, why_not_deletable(self.model.config)
            raise BadInput(
                f"a {kind} {why or 'is run by stock generate, which keeps every visual token'}, so {mechanism} is not "
                "possible; give mechanism='resolution' (--mechanism resolution)"
            )

    def _answer(self, request: Request, opened: OpenedImages) -> Answer:
        clock = Clock(self.device)
        with clock("host"):
            image = open_once(request, self.family, opened)
            inputs = self.processor.inputs(image.image.convert("RGB"), request.question)
            realised = self._count(inputs["input_ids"][0], image)
            inputs = inputs.to(self.device, self.model.dtype)
        with clock("decode"):  # generate reads the image and the prompt as well, and does not time them apart
            out = self.model.generate(
                **inputs,
                do_sample=False,
                num_beams=1,
                max_new_tokens=self.max_new_tokens,
                output_scores=True,
                return_dict_in_generate=True,
            )
            tokens = out.sequences[0, -len(out.scores) :]
            logprobs = token_logprobs(torch.cat(out.scores).float(), tokens).tolist()
        decoded = cut_at_end([tokens.tolist()], [logprobs], end_ids(self.model), self.max_new_tokens, [])
        return Answer(
            text=self.processor.tokenizer.decode(decoded.tokens[0], skip_special_tokens=True).strip(),
            native_tokens=realised if image.fitted is None else image.fitted.native,
            budget=request.budget,
            realised_tokens=realised,
            truncated=decoded.truncated[0],
            timings={stage: clock.spent.get(stage, 0.0) for stage in STAGES},
            input_tokens=realised,
            layer_tokens=float(realised),
            encoder_tokens=realised,
            confidence=confidence_of(decoded.logprobs[0]),
        )

    def _count(self, ids: Tensor, image: OpenedImage) -> int:
        """Visual tokens among the [T] ids of a prompt; they are those of ``fit``, or else of the family's formula.

        Without a budget, a family with bounds of pixels is not compared: a checkpoint may have its own.
        """
        count = int(torch.isin(ids, self._image_ids).sum())
        width, height = image.image.size
        formula = named_family(self.family).formula
        if isinstance(formula, SplitTiles):  # it counts markers as well, which other tokens of the prompt may equal
            columns, rows = formula.tiles(width, height)
            count += formula.tokens(width, height) - formula.per_tile * (rows * columns + 1)
        if image.fitted is not None:
            expected = image.fitted.tokens
        elif named_family(self.family).factor is None:
            expected = count_tokens(self.family, width, height)
        else:
            expected = count
        if count != expected or count < 1:
            raise LedgerBreach(
                f"an image of {width}x{height} takes {expected} tokens in {self.family}, and this checkpoint's "
                f"processor wrote {count}; give the --family that counts as it does"
            )
        return count

    @cached_property
    def _image_ids(self) -> Tensor:
        """The ids of visual tokens; row breaks are among them where the family's formula counts them (Pixtral)."""
        config, whole = self.model.config, self.processor.whole
        named = ((config, "image_token_id"), (config, "image_token_index"), (whole, "image_token_id"))
        ids = [one for holder, name in named if isinstance(one := getattr(holder, name, None), int)][:1]
        if not ids:
            raise BadInput(
                f"a {config.model_type} does not say which token of its prompt stands for an image, so its visual "
                "tokens cannot be counted"
            )
        if isinstance(named_family(self.family).formula, EdgePatches):
            breaks = (getattr(whole, name, None) for name in ("image_break_token_id", "image_end_token_id"))
            ids += [one for one in breaks if isinstance(one, int)]
        return torch.tensor(ids)
