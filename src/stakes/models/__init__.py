"""Who answers? Models on this machine, by hub name or folder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stakes.errors import BadInput
from stakes.models.base import MAX_NEW_TOKENS, VLM, Answer, Request

if TYPE_CHECKING:
    from stakes.models.local import LocalVLM

__all__ = ["VLM", "Answer", "Request", "load"]

# model_type of a checkpoint's config.json -> (module, class, the family's name in geometry)
ARCHITECTURES = {
    "qwen2_vl": ("stakes.models.qwen_vl", "QwenVL", "qwen2-vl"),
    "qwen2_5_vl": ("stakes.models.qwen_vl", "QwenVL", "qwen2.5-vl"),
    "qwen3_vl": ("stakes.models.qwen_vl", "QwenVL", "qwen3-vl"),
    "llava_onevision": ("stakes.models.llava_onevision", "LlavaOneVision", "llava-onevision"),
}


def load(
    name_or_path: str, *, device: str | None = None, dtype: Any = None, max_new_tokens: int | None = None
) -> LocalVLM:
    """A model that answers, from a hub name or a local folder.

    ``device``: "cuda" where there is one, else "cpu". ``dtype``: a torch dtype or its name; bfloat16 on a GPU, float32
    on a CPU. ``max_new_tokens``: answer length, 16 by default.
    """
    from stakes.models.loading import load_local

    if name_or_path in ("embedded", "embedded-llava"):
        raise BadInput(f"the weights of {name_or_path!r} are not shipped yet; give a hub name or a local folder")
    if str(name_or_path).startswith(("http://", "https://")):
        raise BadInput(f"{name_or_path!r} is an address; models are loaded by hub name or from a local folder")
    return load_local(name_or_path, device, dtype, MAX_NEW_TOKENS if max_new_tokens is None else max_new_tokens)
