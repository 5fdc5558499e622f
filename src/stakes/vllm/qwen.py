"""Qwen2.5-VL and Qwen3-VL of vLLM with a budget for each image."""

from typing import Any

from vllm.model_executor.models import qwen2_5_vl, qwen3_vl, qwen3_vl_moe
from vllm.multimodal import MULTIMODAL_REGISTRY

from stakes.vllm.model import DeletionModel
from stakes.vllm.processor import DeletionProcessor


class Qwen25Processor(DeletionProcessor, qwen2_5_vl.Qwen2_5_VLMultiModalProcessor):
    """Images by budget, videos whole."""


class Qwen3Processor(DeletionProcessor, qwen3_vl.Qwen3VLMultiModalProcessor):
    """Images by budget, videos whole."""


@MULTIMODAL_REGISTRY.register_processor(
    Qwen25Processor,
    info=qwen2_5_vl.Qwen2_5_VLProcessingInfo,
    dummy_inputs=qwen2_5_vl.Qwen2_5_VLDummyInputsBuilder,
)
class DeletionQwen25VL(DeletionModel, qwen2_5_vl.Qwen2_5_VLForConditionalGeneration):
    """Its encoder's rows are what the language model reads."""

    def __init__(self, *, vllm_config: Any, prefix: str = "") -> None:
        super().__init__(vllm_config=vllm_config, prefix=prefix)
        self.feature_size = self.config.vision_config.out_hidden_size


@MULTIMODAL_REGISTRY.register_processor(
    Qwen3Processor, info=qwen3_vl.Qwen3VLProcessingInfo, dummy_inputs=qwen3_vl.Qwen3VLDummyInputsBuilder
)
class DeletionQwen3VL(DeletionModel, qwen3_vl.Qwen3VLForConditionalGeneration):
    """Its encoder's rows hold the deepstack features behind those that the language model reads first."""

    def __init__(self, *, vllm_config: Any, prefix: str = "model") -> None:
        super().__init__(vllm_config=vllm_config, prefix=prefix)
        self.feature_size = self.visual_dim


@MULTIMODAL_REGISTRY.register_processor(
    Qwen3Processor, info=qwen3_vl_moe.Qwen3VLMoeProcessingInfo, dummy_inputs=qwen3_vl.Qwen3VLDummyInputsBuilder
)
class DeletionQwen3VLMoe(DeletionModel, qwen3_vl_moe.Qwen3VLMoeForConditionalGeneration):
    """The same with a mixture of experts."""

    def __init__(self, *, vllm_config: Any, prefix: str = "") -> None:
        super().__init__(vllm_config=vllm_config, prefix=prefix)
        self.feature_size = self.visual_dim
