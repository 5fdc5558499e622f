"""Deletion inside vLLM, with a budget and a selector for each request; vLLM finds it as a plugin (``register``).

    vllm serve MODEL --trust-request-mm-kwargs
    {"messages": […], "mm_processor_kwargs": {"stakes_budget": 304, "stakes_selector": "redundancy"}}

A prompt gets exactly ``budget`` placeholder tokens for an image. The image is encoded whole, the selector reduces the
encoder's output, kept tokens keep their M-RoPE positions, and text goes on after the unpruned image. Only vLLM imports
the modules beside this one and ``budgets``.
"""

import logging
from importlib.metadata import PackageNotFoundError, version
from typing import Any

# What the plugin overrides is not an interface that vLLM keeps stable, so it is checked version by version.
TESTED = ("0.32",)
# architecture -> the class that takes its place
DELETES = {
    "Qwen2_5_VLForConditionalGeneration": "stakes.vllm.qwen:DeletionQwen25VL",
    "Qwen3VLForConditionalGeneration": "stakes.vllm.qwen:DeletionQwen3VL",
    "Qwen3VLMoeForConditionalGeneration": "stakes.vllm.qwen:DeletionQwen3VLMoe",
}
# the same with 1-D positions
NUMBERED = {
    "LlavaOnevisionForConditionalGeneration": "stakes.vllm.sequential:DeletionLlavaOneVision",
    "InternVLChatModel": "stakes.vllm.sequential:DeletionInternVL",
    "InternVLForConditionalGeneration": "stakes.vllm.sequential:DeletionInternS1",
}


class OwnPositions:
    """What vLLM asks about the configuration of a model: that requests have positions of their own.

    vLLM looks for an M-RoPE section in a model's configuration and in that of its language model. It is set in
    the first only; the rotary embedding is built from the second.
    """

    @staticmethod
    def verify_and_update_model_config(model_config: Any) -> None:
        """Add an M-RoPE section to this configuration."""
        model_config.hf_config.mrope_section = [1, 1, 1]

    @staticmethod
    def verify_and_update_config(vllm_config: Any) -> None:
        """Change nothing else."""


def register() -> None:
    """Put the classes of this package in the place of vLLM's; in a vLLM of another version, log why not."""
    found = installed()
    if found is None or not tested(found):
        logging.getLogger("vllm.stakes").error(
            "stakes deletes no visual tokens in vLLM %s, as it was tested with %s only; a stakes_budget has no effect",
            found,
            ", ".join(f"{one}.x" for one in TESTED),
        )
        return
    from vllm.model_executor.models.config import MODELS_CONFIG_MAP

    from vllm import ModelRegistry

    for architecture, name in (DELETES | NUMBERED).items():
        ModelRegistry.register_model(architecture, name)
    for architecture in NUMBERED:
        MODELS_CONFIG_MAP[architecture] = OwnPositions


def installed() -> str | None:
    """The version of vLLM here; None without it."""
    try:
        return version("vllm")
    except PackageNotFoundError:
        return None


def tested(found: str) -> bool:
    """Whether a version of vLLM is one of those that the plugin was tested with.

    >>> tested("0.32.1+cpu"), tested("0.33.0")
    (True, False)
    """
    return found.startswith(tuple(f"{one}." for one in TESTED))
