"""Tiny random checkpoints as vLLM reads them: heads of 32, which its attention on a CPU takes, and a processor."""

import json
from pathlib import Path
from typing import Any

import torch
from tests.models.tiny import QWEN, config, image_processor, tf, token_id, tokenizer

CLASSES = {"qwen2_5_vl": "Qwen2_5_VLProcessor", "qwen3_vl": "Qwen3VLProcessor"}


def save_tiny(family: str, folder: Path) -> None:
    """Write one; ``models.load(folder)`` and vLLM then have the same weights."""
    made = config(family)
    text, vision = made.text_config, made.vision_config
    text.hidden_size, text.intermediate_size, text.num_attention_heads, text.head_dim = 128, 96, 4, 32
    text.rope_parameters = {**text.rope_parameters, "mrope_section": [4, 6, 6]}
    vision.hidden_size, vision.out_hidden_size = 64, 128
    torch.manual_seed(1)
    model = tf.AutoModelForImageTextToText.from_config(made).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1 and "norm" not in name:
                torch.nn.init.normal_(parameter, std=0.12)
    model.generation_config.eos_token_id = token_id("<|im_end|>")
    model.generation_config.pad_token_id = token_id("<pad>")
    model.save_pretrained(folder)
    words = tokenizer()
    words.chat_template = QWEN
    words.save_pretrained(folder)
    (folder / "processor_config.json").write_text(json.dumps(_processor(family)))


def _processor(family: str) -> dict[str, Any]:
    images = image_processor(family)
    names = ["do_convert_rgb", "do_normalize", "do_rescale", "do_resize", "image_mean", "image_std", "merge_size"]
    names += ["patch_size", "resample", "rescale_factor", "size", "temporal_patch_size"]
    shared = {name: dict(value) if name == "size" else value for name in names if (value := getattr(images, name))}
    video = "Qwen3VLVideoProcessor" if family == "qwen3_vl" else "Qwen2VLVideoProcessor"
    return {
        "processor_class": CLASSES[family],
        "image_processor": {"image_processor_type": "Qwen2VLImageProcessor", **shared},
        "video_processor": {"video_processor_type": video, **shared},
    }
