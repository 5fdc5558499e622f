"""Deletion inside vLLM, with a budget and a selector for each request; vLLM finds it as a plugin (``register``).

    vllm serve MODEL --trust-request-mm-kwargs
    {"messages": […], "mm_processor_kwargs": {"stakes_budget": 304, "stakes_selector": "redundancy"}}

A prompt gets exactly ``budget`` placeholder tokens for an image. The image is encoded whole, the selector reduces the
encoder's output, kept tokens keep their M-RoPE positions, and text goes on after the unpruned image. Only vLLM imports
the modules beside this one and ``budgets``.
"""

import logging
from importlib.metadata import PackageNotFoundError, version

# What the plugin overrides is not an interface that vLLM keeps stable, so it is checked version by version.
TESTED = ("0.32",)
# architecture -> the class that takes its place
DELETES = {
    "Qwen2_5_VLForConditionalGeneration": "stakes.vllm.qwen:DeletionQwen25VL",
    "Qwen3VLForConditionalGeneration": "stakes.vllm.qwen:DeletionQwen3VL",
    "Qwen3VLMoeForConditionalGeneration": "stakes.vllm.qwen:DeletionQwen3VLMoe",
}
# These have 1-D positions, which vLLM derives from the place in the prompt: a kept token could not keep its own.
REFUSES = {
    "LlavaOnevisionForConditionalGeneration": "stakes.vllm.refused:PlainLlavaOneVision",
    "InternVLChatModel": "stakes.vllm.refused:PlainInternVL",
    "InternVLForConditionalGeneration": "stakes.vllm.refused:PlainInternS1",
}


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
    from vllm import ModelRegistry

    for architecture, name in (DELETES | REFUSES).items():
        ModelRegistry.register_model(architecture, name)


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
