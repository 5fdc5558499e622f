"""Facts about a model that are known before it answers: its identity, family, depth, and the tokens of an image.

    identity(model)                                   # {'family': 'qwen2.5-vl', 'weights': '5f0c…', …}
    native_tokens(model, 1008, 756, "deletion")       # 972

A model may provide a method of the same name (``identity()``, ``native_tokens(width, height, mechanism)``); models of
transformers are inspected here. Torch is imported only for features.
"""

import hashlib
import json
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_serializer, model_validator

from stakes.errors import BadInput
from stakes.models.base import CONFIDENCE, Mechanism, Statistic
from stakes.vision.geometry import count_tokens
from stakes.vision.geometry import family as named_family
from stakes.vision.geometry.menus import ActuatorName

WHOLE = 100_000_000  # parameters up to which every one is hashed; a second on two cores
RULES = (  # settings of a generation_config that greedy decoding honors, in the order of ``generate``
    "repetition_penalty",
    "no_repeat_ngram_size",
    "bad_words_ids",
    "min_new_tokens",
    "suppress_tokens",
    "begin_suppress_tokens",
)
SAMPLED = 4096  # values of each tensor of a larger model: training changes all values of a tensor, not a few


class ModelName(BaseModel):
    """How a model was named when it was loaded: enough to load it again, and no credentials.

    In JSON it is the name alone where there is nothing else to say: ``"embedded"``, ``"./my-vlm"``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: str = Field(min_length=1)
    endpoint: str | None = None
    """The address of its server; ``name`` is then its name there."""
    max_tokens: int | None = Field(default=None, ge=1)
    """The longest answer, where it is not the model's default."""
    actuator: ActuatorName | None = None
    """How budgets reach it, where that is not by resizing."""
    family: str | None = None
    """What counts the tokens of a model on this machine, where its type does not say it."""

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value

    @model_serializer
    def _as_json(self) -> str | dict[str, str | int]:
        names = ("endpoint", "max_tokens", "actuator", "family")
        more = {key: value for key in names if (value := getattr(self, key)) is not None}
        return {"name": self.name, **more} if more else self.name

    def __str__(self) -> str:
        at = "" if self.endpoint is None else f" at {self.endpoint}"
        by = "" if self.actuator is None else f", budgets by {self.actuator}"
        return self.name + at + by + ("" if self.max_tokens is None else f", answers of up to {self.max_tokens} tokens")


def model_name(model: Any) -> ModelName | None:
    """How the model was named; None for one that ``stakes.models.load`` did not load."""
    name = getattr(model, "named", None)
    return name if isinstance(name, ModelName) else None


def family_of(model: Any) -> str:
    """The name of the family that counts the model's tokens."""
    name = getattr(model, "family", None)
    if not isinstance(name, str):
        raise BadInput(f"{type(model).__name__} does not say its family, so an image's tokens cannot be counted ahead")
    return named_family(name).name


def menu_of(model: Any) -> tuple[int, ...] | None:
    """The budgets that the model's engine can take, ascending, where these are few; None where any can be."""
    entries = getattr(model, "menu", None)
    return None if entries is None else tuple(entries)


def statistic_of(model: Any) -> Statistic:
    """Of what the model's confidences are; a model that uses another than the usual one has it in its identity too."""
    own: Statistic = getattr(model, "statistic", CONFIDENCE)
    return own


def identity(model: Any) -> dict[str, str]:
    """Whatever could change an answer, as readable parts: two models with equal parts give equal answers.

    The path or hub name is not among them: the same weights in another folder are the same model.
    """
    own = getattr(model, "identity", None)
    if callable(own):
        return {str(key): str(value) for key, value in own().items()}
    if not hasattr(model, "processor") or not hasattr(getattr(model, "model", None), "state_dict"):
        raise BadInput(f"{type(model).__name__} has no identity; give it a method identity() -> dict of readable parts")
    processor, generation = model.processor, getattr(model.model, "generation_config", None)
    decoding = {key: getattr(generation, key, None) for key in ("eos_token_id", "repetition_penalty")}
    decoding |= {key: value for key in RULES if (value := getattr(generation, key, None))}
    pixels = processor.images.to_dict() if hasattr(processor.images, "to_dict") else repr(processor.images)
    return {
        "family": family_of(model),
        "weights": _weights(model.model),
        "prompt": _short(processor.template),
        "pixels": _short(json.dumps(pixels, sort_keys=True, default=str)),
        "words": _short(json.dumps(processor.tokenizer.get_vocab(), sort_keys=True)),
        "decoding": _short(json.dumps(decoding, sort_keys=True)),
        "length": str(model.max_new_tokens),
    }


def native_tokens(model: Any, width: int, height: int, mechanism: Mechanism) -> int:
    """Tokens of an image of this size with no budget.

    Deletion starts from the size that the checkpoint's own processor chooses, within that checkpoint's bounds; resizing
    from the family's published bounds, as ``fit`` does.
    """
    own = getattr(model, "native_tokens", None)
    if callable(own):
        return int(own(width, height, mechanism))
    family = family_of(model)
    bounds = getattr(getattr(getattr(model, "processor", None), "images", None), "size", None)
    if mechanism == "resolution" or bounds is None or named_family(family).factor is None:
        return count_tokens(family, width, height)
    least, most = (int(bounds[key]) for key in ("shortest_edge", "longest_edge"))
    return count_tokens(family, width, height, min_pixels=least, max_pixels=most)


def depth_of(model: Any) -> int:
    """Decoder layers that the model's visual tokens go through."""
    depth = getattr(model, "depth", None)
    if not isinstance(depth, int):
        raise BadInput(f"{type(model).__name__} does not say its depth, so no tokens can be averaged over its layers")
    return depth


def image_features(model: Any, image: Any) -> Any | None:
    """[N, D] merged features of a PIL image at its native size, or None where the model has no ``encode``."""
    if not hasattr(model, "encode"):
        return None
    import torch

    with torch.inference_mode():
        return model.encode(image, exact=False, attention=False).features


def _weights(module: Any) -> str:
    """A hash of names, shapes, types and values of every tensor; above ``WHOLE`` parameters, of a sample of values."""
    tensors = module.state_dict()
    small = sum(tensor.numel() for tensor in tensors.values()) <= WHOLE
    digest = hashlib.blake2b(digest_size=16)
    for name, tensor in tensors.items():
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        flat = tensor.detach().reshape(-1)
        step = 1 if small else max(1, flat.numel() // SAMPLED)
        digest.update(flat[::step].float().cpu().numpy().tobytes())
    return digest.hexdigest()


def _short(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
