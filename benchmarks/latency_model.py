"""The model of ``latency.py``: Qwen2.5-VL-7B's configuration with random weights, made where they will be used.

Time does not depend on what the weights say. Each parameter is drawn on the device itself (15 GB in bfloat16, about two
seconds on an H200); nothing passes through the host's memory. The tokenizer is the tests' byte tokenizer, whose ids are
all in the vocabulary: a question takes more tokens than with the real one (``text_tokens`` in the results).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from PIL import Image, ImageChops

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.models.tiny import config as tiny_config
from tests.models.tiny import tf, token_id, tokenizer

from stakes.data import synthetic
from stakes.models.local.processor import Processor
from stakes.models.local.qwen_vl import QwenVL

NEW_TOKENS = 16
DISTINCT = 32  # synthetic pages that are drawn
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% for c in m.content %}{% if c.type == 'image' %}"
    "<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ c.text }}{% endif %}{% endfor %}<|im_end|>\n{% endfor %}"
    "<|im_start|>assistant\n"
)


def configuration() -> Any:
    """Qwen2.5-VL-7B-Instruct's, with the byte tokenizer's image tokens."""
    text = {
        "vocab_size": 152064,
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "max_position_embeddings": 128000,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": False,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [16, 24, 24]},
        "bos_token_id": None,
        "eos_token_id": token_id("<|im_end|>"),
        "pad_token_id": token_id("<pad>"),
    }
    vision = {
        "depth": 32,
        "hidden_size": 1280,
        "intermediate_size": 3420,
        "num_heads": 16,
        "out_hidden_size": 3584,
        "patch_size": 14,
        "window_size": 112,
        "fullatt_block_indexes": [7, 15, 23, 31],
        "tokens_per_second": 2,
    }
    names = ("image_pad", "video_pad", "vision_start", "vision_end")
    keys = ("image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id")
    ids = {key: token_id(f"<|{name}|>") for key, name in zip(keys, names, strict=True)}
    return tf.Qwen2_5_VLConfig(text_config=text, vision_config=vision, **ids)


def build(device: str, dtype: torch.dtype, tiny: bool) -> QwenVL:
    """A model with random weights on the device; ``tiny``: the tests' configuration instead of the 7B one."""
    config = tiny_config("qwen2_5_vl") if tiny else configuration()
    torch.manual_seed(0)
    with torch.device(device):
        made: Any = tf.AutoModelForImageTextToText.from_config(config, dtype=dtype, attn_implementation="sdpa").eval()
    made.generation_config.eos_token_id = None  # every answer has NEW_TOKENS tokens, stock's and ours
    made.config.eos_token_id = made.config.text_config.eos_token_id = None
    made.generation_config.pad_token_id = token_id("<pad>")
    images = tf.Qwen2VLImageProcessorPil(
        patch_size=14, merge_size=2, size={"shortest_edge": 4 * 28 * 28, "longest_edge": 16384 * 28 * 28}
    )
    processor = Processor(images, tokenizer(), TEMPLATE, made.config.image_token_id)
    fast = True if device == "cpu" else None  # the path that a GPU takes, to be tried on a CPU
    return QwenVL(made, processor, "qwen2.5-vl", max_new_tokens=NEW_TOKENS, batch_size=32, fast=fast)


def drawn(count: int, columns: int, rows: int, source: Path | str = "forms") -> list[Image.Image]:
    """Pages scaled to so many tokens of 28 pixels: those of a folder, or synthetic ones of a family.

    Those after the first ``DISTINCT``, or after the last file, are the same ones moved down by a pixel more each time:
    no two have the same pixels, so none is known from before.
    """
    if isinstance(source, Path):
        found: list[Image.Image] = [Image.open(path) for path in scans(source)[:count]]
    else:
        found = [synthetic.draw(source, seed, "test").image for seed in range(min(count, DISTINCT))]
    every = (page.convert("RGB").resize((28 * columns, 28 * rows)) for page in found)
    sized = list({page.tobytes(): page for page in every}.values())  # a folder may hold copies
    return [ImageChops.offset(sized[n % len(sized)], 0, n // len(sized)) for n in range(count)]


def scans(folder: Path) -> list[Path]:
    """The image files of a folder, by name."""
    found = sorted(path for path in folder.iterdir() if path.suffix.lower() in (".png", ".jpg", ".jpeg", ".webp"))
    if not found:
        raise SystemExit(f"{folder} holds no .png, .jpg, .jpeg or .webp file; name a folder of page images")
    return found
