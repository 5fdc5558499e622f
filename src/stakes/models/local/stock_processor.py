"""The processor of any image-text-to-text checkpoint as it is, and the family that its numbers describe."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from PIL import Image

from stakes.errors import BadInput
from stakes.models.base import SUFFIX
from stakes.vision.geometry import family as named_family
from stakes.vision.geometry.checkpoint import description

PROBED = ((64, 64), (640, 480), (300, 900))


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

    def inputs(self, images: Sequence[Any], question: str, setting: Mapping[str, Any] | None = None) -> Any:
        """The inputs of one question about PIL images, as a user of transformers would make them.

        ``setting``: parameters of the image processor in place of its own.
        """
        content = [
            *({"type": "image", "image": image} for image in images),
            {"type": "text", "text": question + SUFFIX},
        ]
        more = {"processor_kwargs": {"images_kwargs": dict(setting)}} if setting else {}
        return self.whole.apply_chat_template(
            [{"role": "user", "content": content}],
            add_generation_prompt=True,
            tokenize=True,
            return_dict=True,
            return_tensors="pt",
            **more,
        )

    def image_ids(self, config: Any) -> list[int]:
        """The ids that stand for parts of an image in a prompt of this model."""
        named = ((config, "image_token_id"), (config, "image_token_index"), (self.whole, "image_token_id"))
        ids = [one for holder, name in named if isinstance(one := getattr(holder, name, None), int)][:1]
        if not ids:
            raise BadInput(
                f"a {config.model_type} does not say which token of its prompt stands for an image, so its visual "
                "tokens cannot be counted"
            )
        return ids


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


def checkpoint_family(processor: StockProcessor, config: Any, own: str | None) -> str:
    """What counts a checkpoint's tokens: its image processor's numbers, else its type's family ``own``.

    Where neither is known and blank images of three sizes take the same, every image does: ``per_image=…``.
    """
    numbers = {name: getattr(processor.whole, name, None) for name in ("image_seq_len", "spatial_merge_size")}
    kind = {"image_processor_type": type(processor.images).__name__}
    found = description(processor.images.to_dict() | kind, numbers, config.to_dict())
    if found is not None and (own is None or named_family(own).formula != named_family(found).formula):
        return named_family(found).name
    if own is not None:
        return own
    ids = torch.tensor(processor.image_ids(config))
    prompts = [processor.inputs([Image.new("RGB", size)], "What?")["input_ids"][0] for size in PROBED]
    counts = [int(torch.isin(prompt, ids).sum()) for prompt in prompts]
    if len(set(counts)) == 1 and counts[0] > 0:
        return f"per_image={counts[0]}"
    raise BadInput(
        f"a {config.model_type} does not say how its tokens are counted: images of "
        f"{', '.join(f'{width}x{height}' for width, height in PROBED)} take {', '.join(map(str, counts))}; give the "
        "family that counts them with --family (`stakes families` lists them)"
    )
