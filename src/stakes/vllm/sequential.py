"""LLaVA-OneVision and InternVL of vLLM with a budget for each image.

Their language models number tokens one after another, and vLLM takes that number from a token's place in the prompt. It
keeps positions of a request's own for models with M-RoPE only. So these models declare M-RoPE: three rows, of which
the language model and its own rotary embedding get the last.

    row 0    where the whole image begins, for each of its tokens
    row 2    where the token was in the unpruned prompt; for text all rows are the same

Without a budget all rows are 0, 1, 2, …, as vLLM numbers them.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from vllm.model_executor.layers.rotary_embedding.base import RotaryEmbedding
from vllm.model_executor.layers.rotary_embedding.llama3_rope import Llama3RotaryEmbedding
from vllm.model_executor.models import interns1, internvl, llava_onevision
from vllm.model_executor.models.interfaces import SupportsMRoPE, SupportsMultiModalPruning
from vllm.multimodal import MULTIMODAL_REGISTRY
from vllm.multimodal.parse import ImageEmbeddingItems

from stakes.vllm.budgets import NATIVE
from stakes.vllm.model import OFF, DeletionModel
from stakes.vllm.processor import DeletionProcessor

# Rotary embeddings whose entries do not depend on how many there are, by vLLM's class and by a configuration's name.
_LENGTHENS = {RotaryEmbedding: "default", Llama3RotaryEmbedding: "llama3"}


class SequentialProcessor(DeletionProcessor):
    """Of families with 1-D positions."""

    def natives(self, items: Any, made: Any) -> list[int]:
        """Tokens of each image without a budget."""
        images = items["image"]
        if isinstance(images, ImageEmbeddingItems):
            return [images.get_feature_size(at) for at in range(len(images))]
        return self.sizes(images, made)

    def sizes(self, images: Any, made: Any) -> list[int]:  # noqa: ARG002
        """The same of images that are encoded: by tiles of equally many tokens."""
        return [int(tiles) * self.info.get_hf_processor().image_seq_length for tiles in made["image_num_patches"]]

    def ahead(self, item: Any, budget: int) -> int:
        """Every token that is dropped leaves its position behind."""
        return int(item[NATIVE].data) - budget

    def room(self) -> int:
        """The model's length once more where ``lengthen`` applies, else what the model's length leaves over."""
        config = self.info.ctx.model_config
        text = config.hf_text_config
        if lengthens(text):
            return super().room()
        return max(0, int(text.max_position_embeddings) - int(config.max_model_len))


class SequentialModel(DeletionModel):
    """Of families with 1-D positions."""

    def __init__(self, *, vllm_config: Any, prefix: str = "") -> None:
        if not vllm_config.model_config.uses_mrope:
            raise ValueError("vLLM would number the tokens of this model by their places; stakes was not registered")
        super().__init__(vllm_config=vllm_config, prefix=prefix)
        text = self.config.text_config
        self.feature_size = text.hidden_size
        if not lengthen(self.language_model, vllm_config.model_config.max_model_len) and lengthens(text):
            raise ValueError(f"stakes does not know this model's rotary embedding; serve another one, {OFF}")

    def columns(self, kwargs: Mapping[str, Any], natives: list[int]) -> list[int]:  # noqa: ARG002
        """All tokens of an image are in one row."""
        return natives

    def whole_positions(self, ids: list[int], features: list[Any]) -> tuple[Tensor, int]:  # noqa: ARG002
        """[3, T]: 0, 1, 2, … in every row."""
        return torch.arange(len(ids)).expand(3, -1), 0

    def rotary(self, positions: Tensor) -> Tensor:
        """[T] the positions that the language model takes."""
        return positions[-1]


class TiledModel(SequentialModel):
    """Images are cut into tiles, of which the encoder gets those of all images together."""

    def part(self, kwargs: Mapping[str, Any], first: int, last: int) -> dict[str, Any]:
        """Tiles of the images, or given features."""
        part = dict(kwargs)
        if kwargs.get("image_embeds") is not None:
            part["image_embeds"] = kwargs["image_embeds"][first:last]
            return part
        tiles = kwargs["image_num_patches"].tolist()
        part["image_num_patches"] = kwargs["image_num_patches"][first:last]
        for name in ("pixel_values", "pixel_values_flat"):
            if kwargs.get(name) is not None:
                part[name] = kwargs[name][sum(tiles[:first]) : sum(tiles[:last])]
        return part


def lengthens(text: Any) -> bool:
    """Whether ``lengthen`` applies to a language model with this configuration."""
    return (text.rope_parameters or {}).get("rope_type", "default") in _LENGTHENS.values()


def lengthen(language_model: Any, more: int) -> bool:
    """Give rotary embeddings ``more`` positions: text after a reduced image is further on than its place.

    Existing entries stay the same, bit for bit. False where there is no rotary embedding of a known class.
    """
    known = [one for one in language_model.modules() if type(one) in _LENGTHENS]
    for rotary in known:
        if not hasattr(rotary, "lengthened"):
            own = rotary.cos_sin_cache
            rotary.max_position_embeddings += more
            rotary.cos_sin_cache = torch.cat((own, rotary._compute_cos_sin_cache().to(own)[len(own) :]))
            rotary.lengthened = True  # layers share one
    return bool(known)


class LlavaProcessor(SequentialProcessor, llava_onevision.LlavaOnevisionMultiModalProcessor):
    """Images by budget, videos whole."""

    def sizes(self, images: Any, made: Any) -> list[int]:  # noqa: ARG002
        """By the size of each image."""
        both = (images.get_image_size(at) for at in range(len(images)))
        return [self.info.get_num_image_tokens(image_width=one.width, image_height=one.height) for one in both]


class InternVLProcessor(SequentialProcessor, internvl.InternVLMultiModalProcessor):
    """Images by budget, videos whole."""


class InternS1Processor(SequentialProcessor, interns1.InternS1MultiModalProcessor):
    """Images by budget, videos whole."""


@MULTIMODAL_REGISTRY.register_processor(
    LlavaProcessor,
    info=llava_onevision.LlavaOnevisionProcessingInfo,
    dummy_inputs=llava_onevision.LlavaOnevisionDummyInputsBuilder,
)
class DeletionLlavaOneVision(
    SequentialModel, llava_onevision.LlavaOnevisionForConditionalGeneration, SupportsMRoPE, SupportsMultiModalPruning
):
    """A view of the whole image and tiles, with a newline after each row, which can be dropped as well."""

    def part(self, kwargs: Mapping[str, Any], first: int, last: int) -> dict[str, Any]:
        """Every input has one entry for each image."""
        names = ("pixel_values", "image_sizes", "image_embeds")
        own = {name: kwargs[name][first:last] for name in names if kwargs.get(name) is not None}
        return {**kwargs, **own}


@MULTIMODAL_REGISTRY.register_processor(
    InternVLProcessor, info=internvl.InternVLProcessingInfo, dummy_inputs=internvl.InternVLDummyInputsBuilder
)
class DeletionInternVL(TiledModel, internvl.InternVLChatModel, SupportsMRoPE, SupportsMultiModalPruning):
    """Checkpoints in InternVL's own format."""


@MULTIMODAL_REGISTRY.register_processor(
    InternS1Processor, info=interns1.InternS1ProcessingInfo, dummy_inputs=interns1.InternS1DummyInputsBuilder
)
class DeletionInternS1(TiledModel, interns1.InternS1ForConditionalGeneration, SupportsMRoPE, SupportsMultiModalPruning):
    """InternVL checkpoints in the format of transformers."""
