"""Tiny random checkpoints as vLLM reads them: heads of 32, which its attention on a CPU takes, and a processor."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from tests.models.tiny import LLAVA, QWEN, config, image_processor, tf, token_id, tokenizer
from tests.models.tiny_spliced import TEMPLATE, parts, words

CLASSES = {"qwen2_5_vl": "Qwen2_5_VLProcessor", "qwen3_vl": "Qwen3VLProcessor", "qwen3_vl_moe": "Qwen3VLProcessor"}


def save_tiny(family: str, folder: Path) -> None:
    """Write one; ``models.load(folder)`` and vLLM then have the same weights."""
    made = parts(family)[0] if family == "internvl" else config(family)
    text, vision = made.text_config, made.vision_config
    text.hidden_size, text.intermediate_size, text.num_attention_heads, text.head_dim = 128, 96, 4, 32
    vision.hidden_size = 64
    if family == "qwen3_vl_moe":
        text.norm_topk_prob = True  # which published checkpoints state, vLLM reads and transformers 5 takes for granted
    if "mrope_section" in text.rope_parameters:
        text.rope_parameters = {**text.rope_parameters, "mrope_section": [4, 6, 6]}
        vision.out_hidden_size = 128
    torch.manual_seed(1)
    model = tf.AutoModelForImageTextToText.from_config(made).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1 and "norm" not in name:
                torch.nn.init.normal_(parameter, std=0.12)
    model.generation_config.eos_token_id = token_id("<|im_end|>")
    model.generation_config.pad_token_id = token_id("<pad>")
    model.save_pretrained(folder)
    _as_published(folder / "model.safetensors", family)
    own = words() if family == "internvl" else tokenizer()
    own.chat_template = {"internvl": TEMPLATE, "llava_onevision": LLAVA}.get(family, QWEN)
    own.save_pretrained(folder)
    (folder / "processor_config.json").write_text(json.dumps(_processor(family)))


def _as_published(path: Path, family: str) -> None:
    """SigLIP by its published names, and experts by their published axes, which vLLM 0.32 reads; transformers 5 reads
    them too and writes others.
    """
    tower, tensors = "vision_tower.", {}
    for name, tensor in load_file(path).items():
        if family == "llava_onevision" and name.startswith(tower):
            tensors[f"{tower}vision_model.{name.removeprefix(tower)}"] = tensor
        else:
            tensors[name] = tensor.transpose(1, 2).contiguous() if ".experts." in name else tensor
    save_file(tensors, path, metadata={"format": "pt"})


def _processor(family: str) -> dict[str, Any]:
    if family == "internvl":
        images = parts("internvl")[1].image_processor
        shared = _settings(images, "crop_to_patches", "max_patches", "min_patches")
        return {
            "processor_class": "InternVLProcessor", "image_seq_length": 4,
            "image_processor": {"image_processor_type": "GotOcr2ImageProcessor", **shared},
            "video_processor": {"video_processor_type": "InternVLVideoProcessor", **_settings(images)},
        }  # fmt: skip
    images = image_processor(family)
    if family == "llava_onevision":
        vision = config(family).vision_config
        shared = _settings(images, "image_grid_pinpoints", "do_pad")
        return {
            "processor_class": "LlavaOnevisionProcessor",
            "image_token": "<|image_pad|>", "video_token": "<|video_pad|>",
            "num_image_tokens": (vision.image_size // vision.patch_size) ** 2, "vision_feature_select_strategy": "full",
            "image_processor": {"image_processor_type": "LlavaOnevisionImageProcessor", **shared},
            "video_processor": {"video_processor_type": "LlavaOnevisionVideoProcessor", **_settings(images)},
        }  # fmt: skip
    shared = _settings(images, "merge_size", "patch_size", "temporal_patch_size")
    video = "Qwen2VLVideoProcessor" if family == "qwen2_5_vl" else "Qwen3VLVideoProcessor"
    return {
        "processor_class": CLASSES[family],
        "image_processor": {"image_processor_type": "Qwen2VLImageProcessor", **shared},
        "video_processor": {"video_processor_type": video, **shared},
    }


def _settings(images: Any, *more: str) -> dict[str, Any]:
    names = ["do_convert_rgb", "do_normalize", "do_rescale", "do_resize", "image_mean", "image_std"]
    names += ["resample", "rescale_factor", "size", *more]
    found = {name: getattr(images, name) for name in names if getattr(images, name, None)}
    return {name: dict(value) if name == "size" else value for name, value in found.items()}
