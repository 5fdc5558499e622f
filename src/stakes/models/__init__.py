"""Models that answer questions about images: on this machine, by hub name or folder, or behind a server, by address."""

from importlib import import_module
from pathlib import Path
from typing import Any

from stakes.errors import BadInput
from stakes.models.base import MAX_NEW_TOKENS, VLM, Answer, Request

__all__ = ["VLM", "Answer", "Request", "load"]

# model_type of a checkpoint's config.json -> (class, the family's name in geometry)
ARCHITECTURES = {
    "qwen2_vl": ("stakes.models.local.qwen_vl:QwenVL", "qwen2-vl"),
    "qwen2_5_vl": ("stakes.models.local.qwen_vl:QwenVL", "qwen2.5-vl"),
    "qwen3_vl": ("stakes.models.local.qwen_vl:QwenVL", "qwen3-vl"),
    "qwen3_vl_moe": ("stakes.models.local.qwen_vl:QwenVL", "qwen3-vl"),
    "llava_onevision": ("stakes.models.local.llava_onevision:LlavaOneVision", "llava-onevision"),
}
# model_type of a checkpoint that is run by its own processor, deletion included (``models.local.spliced``)
SPLICED = {"gemma3", "glm4v", "idefics3", "internvl", "llava", "llava_next", "mistral3", "smolvlm"}
# model_type of a checkpoint that is run by its own processor or by stock ``generate`` -> its family, where the type has
# one: a llava may have any encoder, and the tiles of an smolvlm differ by checkpoint
FAMILIES = {
    "deepseek_ocr2": "deepseek-ocr-2",
    "gemma3": "gemma3",
    "gemma3n": "gemma3n",
    "gemma4": "gemma4",
    "glm46v": "glm-4.6v",
    "glm4v": "glm-4.1v",
    "glm4v_moe": "glm-4.5v",
    "idefics3": "idefics3",
    "internvl": "internvl",
    "kimi_k25": "kimi-k2.5",
    "lfm2_vl": "lfm2-vl",
    "llama4": "llama4",
    "llava_next": "llava-next",
    "llava_next_video": "llava-next",
    "minicpmv4_6": "minicpm-v-4.6",
    "minicpmv4_7": "minicpm-v-4.7",
    "mistral3": "mistral3",
    "paddleocr_vl": "paddleocr-vl",
    "qwen3_5": "qwen3.5",
    "qwen3_5_moe": "qwen3.5",
}
# model_type -> why its visual tokens cannot be counted in its prompt
REFUSED = {
    "blip": "it writes captions, and its images are read by cross-attention",
    "diffusion_gemma": "it writes by block diffusion, not token by token",
    "evolla": "it reads proteins, not images",
    "git": "its images are put before the prompt inside the model",
    "idefics": "its images are read by cross-attention, and the prompt holds none of their tokens",
    "instructblipvideo": "it reads videos",
    "kosmos-2": "its prompt marks an image's tokens by a mask, not by an id",
    "kosmos-2.5": "its prompt marks an image's tokens by a mask, not by an id",
    "mllama": "its images are read by cross-attention, and the prompt holds one token for each",
    "mistral4": "it reads text alone",
    "pi0": "it answers with actions of a robot",
    "pix2struct": "its images are read by an encoder of their own, and the prompt holds none of their tokens",
    "pp_formulanet": "its images are read by an encoder of their own, and the prompt holds none of their tokens",
    "udop": "its images are read together with the words and boxes of an OCR engine",
    "vision-encoder-decoder": "its images are read by an encoder of their own, and there may be no prompt",
}
# name before a colon -> loader; in a package below this one, so imported by name
LOADERS = {"ocr": "stakes.legibility.model:load_ocr"}


def load(
    name_or_path: str,
    *,
    device: str | None = None,
    dtype: Any = None,
    max_new_tokens: int | None = None,
    family: str | None = None,
    **endpoint: Any,
) -> Any:
    """A model that answers: "embedded" (shipped inside), a hub name, a local folder, or an OpenAI-compatible address.

    "ocr", or "ocr:qwen3-vl" for another family's tokens, only reads text: it measures legibility, not a VLM's error
    (``stakes.legibility``).

    ``device``: "cuda" where there is one, else "cpu". ``dtype``: a torch dtype or its name; bfloat16 on a GPU, float32
    on a CPU. ``max_new_tokens``: answer length; by default the checkpoint's own where it names one, else 16.
    ``family``: what counts the tokens behind an address, or of a checkpoint whose type does not say it. ``endpoint``:
    options of ``EndpointVLM``, for an address only: model, api_key, concurrency, timeout_s, tries and more. Returns a
    ``LocalVLM``, a ``StockVLM`` (any other type that transformers loads: resolution only) or an ``EndpointVLM``, whose
    ``named`` says how it was loaded.
    """
    from stakes.models.identity import ModelName

    name = str(name_or_path)
    if name.startswith(("http://", "https://")):
        from stakes.models.endpoint import EndpointVLM

        if device is not None or dtype is not None:
            raise BadInput(f"{name!r} is an address, and its server chose device and dtype; leave them out")
        length = MAX_NEW_TOKENS if max_new_tokens is None else max_new_tokens
        of_server = endpoint if family is None else {"family": family, **endpoint}
        return EndpointVLM(name, max_new_tokens=length, **of_server)
    if endpoint:
        raise BadInput(f"{', '.join(endpoint)} is for an http(s) address, and {name!r} is none; leave it out")
    if name.partition(":")[0] in LOADERS:
        if any(option is not None for option in (device, dtype, max_new_tokens, family)):
            raise BadInput(f"{name!r} reads on the CPU; device, dtype, answer length and family are not for it")
        model = named_object(LOADERS[name.partition(":")[0]])(name)
        model.named = ModelName(name=name)
        return model
    from stakes.models.embedded import SHIPPED, shipped_folder
    from stakes.models.loading import load_local

    if name.startswith("embedded") and name not in SHIPPED and not Path(name).exists():
        raise BadInput(f"no reader called {name!r} ships with stakes; there is {', '.join(SHIPPED)}")
    folder = str(shipped_folder(name)) if name in SHIPPED else name
    model = load_local(folder, device, dtype, max_new_tokens, family)
    model.named = ModelName(name=name, max_tokens=max_new_tokens, family=family)
    return model


def named_object(path: str) -> Any:
    """The object that "module:name" names."""
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)
