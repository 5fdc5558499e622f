"""Qwen2.5-VL and Qwen3-VL of vLLM with a budget for each image."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor
from vllm.model_executor.models import qwen2_5_vl, qwen3_vl, qwen3_vl_moe
from vllm.multimodal import MULTIMODAL_REGISTRY

from stakes.vllm.model import DeletionModel
from stakes.vllm.processor import DeletionProcessor


class GridProcessor(DeletionProcessor):
    """Of images that are grids of tokens."""

    def natives(self, items: Any, made: Any) -> list[int]:  # noqa: ARG002
        """Tokens of each image without a budget."""
        return [t * h * w // self._merge**2 for t, h, w in made["image_grid_thw"].tolist()]

    def ahead(self, item: Any, budget: int) -> int:
        """An image whose side is longer than its budget takes more positions than tokens."""
        return max(0, int(max(item["image_grid_thw"].data[1:].tolist())) // self._merge - budget)

    @property
    def _merge(self) -> int:
        return int(self.info.get_hf_config().vision_config.spatial_merge_size)


class GridModel(DeletionModel):
    """Of images that are grids of tokens, with M-RoPE."""

    def part(self, kwargs: Mapping[str, Any], first: int, last: int) -> dict[str, Any]:
        """Rows of patches, and of given features."""
        sizes = [t * h * w for t, h, w in kwargs["image_grid_thw"].tolist()]
        start, end = sum(sizes[:first]), sum(sizes[:last])
        part = {**kwargs, "image_grid_thw": kwargs["image_grid_thw"][first:last]}
        for name, group in (("pixel_values", 1), ("image_embeds", self._merge**2)):
            if kwargs.get(name) is not None:
                part[name] = kwargs[name][start // group : end // group]
        return part

    def columns(self, kwargs: Mapping[str, Any], natives: list[int]) -> list[int]:  # noqa: ARG002
        """Patches in a row, by how many of them make a token."""
        return [w // self._merge for _, _, w in kwargs["image_grid_thw"].tolist()]

    def whole_positions(self, ids: list[int], features: list[Any]) -> tuple[Tensor, int]:
        """As vLLM's own class has them, which comes after ``DeletionModel``."""
        positions, delta = super(DeletionModel, self).get_mrope_input_positions(ids, features)
        return positions, delta

    @property
    def _merge(self) -> int:
        return int(self.config.vision_config.spatial_merge_size)


class Qwen25Processor(GridProcessor, qwen2_5_vl.Qwen2_5_VLMultiModalProcessor):
    """Images by budget, videos whole."""


class Qwen3Processor(GridProcessor, qwen3_vl.Qwen3VLMultiModalProcessor):
    """Images by budget, videos whole."""


@MULTIMODAL_REGISTRY.register_processor(
    Qwen25Processor,
    info=qwen2_5_vl.Qwen2_5_VLProcessingInfo,
    dummy_inputs=qwen2_5_vl.Qwen2_5_VLDummyInputsBuilder,
)
class DeletionQwen25VL(GridModel, qwen2_5_vl.Qwen2_5_VLForConditionalGeneration):
    """Its encoder's rows are what the language model reads."""

    def __init__(self, *, vllm_config: Any, prefix: str = "") -> None:
        super().__init__(vllm_config=vllm_config, prefix=prefix)
        self.feature_size = self.config.vision_config.out_hidden_size


@MULTIMODAL_REGISTRY.register_processor(
    Qwen3Processor, info=qwen3_vl.Qwen3VLProcessingInfo, dummy_inputs=qwen3_vl.Qwen3VLDummyInputsBuilder
)
class DeletionQwen3VL(GridModel, qwen3_vl.Qwen3VLForConditionalGeneration):
    """Its encoder's rows hold the deepstack features behind those that the language model reads first."""

    def __init__(self, *, vllm_config: Any, prefix: str = "model") -> None:
        super().__init__(vllm_config=vllm_config, prefix=prefix)
        self.feature_size = self.visual_dim


@MULTIMODAL_REGISTRY.register_processor(
    Qwen3Processor, info=qwen3_vl_moe.Qwen3VLMoeProcessingInfo, dummy_inputs=qwen3_vl.Qwen3VLDummyInputsBuilder
)
class DeletionQwen3VLMoe(GridModel, qwen3_vl_moe.Qwen3VLMoeForConditionalGeneration):
    """The same with a mixture of experts."""

    def __init__(self, *, vllm_config: Any, prefix: str = "") -> None:
        super().__init__(vllm_config=vllm_config, prefix=prefix)
        self.feature_size = self.visual_dim
