"""Families of vLLM that take no budget, so that a request with one is refused by name and not read whole."""

from vllm.model_executor.models import interns1, internvl, llava_onevision
from vllm.multimodal import MULTIMODAL_REGISTRY

from stakes.vllm.processor import RefusingProcessor


class PlainLlavaProcessor(RefusingProcessor, llava_onevision.LlavaOnevisionMultiModalProcessor):
    """vLLM's own, without budgets."""


class PlainInternVLProcessor(RefusingProcessor, internvl.InternVLMultiModalProcessor):
    """vLLM's own, without budgets."""


class PlainInternS1Processor(RefusingProcessor, interns1.InternS1MultiModalProcessor):
    """vLLM's own, without budgets."""


@MULTIMODAL_REGISTRY.register_processor(
    PlainLlavaProcessor,
    info=llava_onevision.LlavaOnevisionProcessingInfo,
    dummy_inputs=llava_onevision.LlavaOnevisionDummyInputsBuilder,
)
class PlainLlavaOneVision(llava_onevision.LlavaOnevisionForConditionalGeneration):
    """vLLM's own."""


@MULTIMODAL_REGISTRY.register_processor(
    PlainInternVLProcessor,
    info=internvl.InternVLProcessingInfo,
    dummy_inputs=internvl.InternVLDummyInputsBuilder,
)
class PlainInternVL(internvl.InternVLChatModel):
    """vLLM's own."""


@MULTIMODAL_REGISTRY.register_processor(
    PlainInternS1Processor,
    info=interns1.InternS1ProcessingInfo,
    dummy_inputs=interns1.InternS1DummyInputsBuilder,
)
class PlainInternS1(interns1.InternS1ForConditionalGeneration):
    """vLLM's own, for InternVL checkpoints in the format of transformers."""
