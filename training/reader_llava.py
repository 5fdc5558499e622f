"""What is the second reader? A stock LLaVA-OneVision: SigLIP tiles, AnyRes canvases, Qwen2 with one-dimensional RoPE.

    model = new_model("llava")                   # 7.4M parameters, 15 MB as bf16
    adopt(model, "src/stakes/models/weights/reader")   # the language model starts from the first reader's
    save(model, "runs/llava/export")             # a normal LLaVA-OneVision folder

Vocabulary, chat template and pages are those of ``reader.py``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from training.reader import CHAT_TEMPLATE, ID, MEAN, STD, build_tokenizer, text_config
from training.reader import save as save_folder
from transformers import (
    LlavaOnevisionConfig,
    LlavaOnevisionForConditionalGeneration,
    Qwen2_5_VLForConditionalGeneration,
)

# A tile is 12 x 12 tokens of 21 pixels. 252 divides the sides of the usual page, 756 x 1008, so that its 3 x 4 tiles
# need no padding; with 336 it would be centred on a 1008 x 1008 canvas and a quarter of the encoder's work would be
# black border. 21 pixels and not 28, because one linear map must carry a whole patch: 256 channels keep 0.88 of the
# variance of forms' inked patches of 28 x 28 pixels, and 0.95 at 21 x 21.
TILE, PATCH = 252, 21
SIDE = TILE // PATCH
FAMILY = "reader-llava"  # in stakes.vision.geometry, with the same numbers (tested)
MOST_TILES, CAP = 6, 18  # canvases of 1 .. 6 tiles a side, as the published model has; infographics take 3 x 6
PINPOINTS = [[TILE * rows, TILE * columns] for rows in range(1, MOST_TILES + 1) for columns in range(1, MOST_TILES + 1)]
# LLaVA enlarges an image to its canvas; windows that fill one are shown at the size that letters have on whole pages
CROPS = {"cards": (252, 168), "panels": (504, 252), "halves": (504, 504)}
# One axis has to tell neighbours apart and still match content over 2,500 tokens: 1 rad a token down to 1.4e-5, a third
# of the 32 frequencies below one turn a page.
THETA = 1e5

# vision: depth, width, heads, mlp; text: layers, width, heads, key-value heads, mlp
SIZES: dict[str, dict[str, Any]] = {"llava": {"vision": (4, 256, 4, 512), "text": (5, 384, 6, 2, 448)}}
# Pairs of channels of the first reader's queries and keys, in the order of this one's frequencies: 0 and 1 turned with
# time, 2-5 with the height (0.68-0.38 rad a row), the others with the width. A row is 13-73 tokens long here, so the
# height's pairs go to slower slots, 14-17 (0.0065-0.0022 rad a token). Orders that differ in where they stand were
# compared by their loss before any training; after 44 steps on forms one of this kind errs on 0.33 of the questions on
# new pages, the first reader's own order on 0.88.
SLOTS = (0, 1, 7, 6, *range(8, 18), 2, 3, 4, 5, *range(18, 32))


def build_config(size: str = "llava") -> LlavaOnevisionConfig:
    """Config of one size; ``head_dim`` is 64 everywhere, and no pooling head, since tiles are read token by token."""
    depth, vision_dim, vision_heads, vision_mlp = SIZES[size]["vision"]
    return LlavaOnevisionConfig(
        text_config={
            "model_type": "qwen2",
            **text_config(SIZES[size]["text"], {"rope_theta": THETA}),
            "tie_word_embeddings": False,
        },
        vision_config={
            "model_type": "siglip_vision_model",
            "hidden_size": vision_dim,
            "intermediate_size": vision_mlp,
            "num_hidden_layers": depth,
            "num_attention_heads": vision_heads,
            "image_size": TILE,
            "patch_size": PATCH,
            "vision_use_head": False,
        },
        image_token_index=ID["<|image_pad|>"],
        video_token_index=ID["<|video_pad|>"],
        image_grid_pinpoints=PINPOINTS,
        vision_aspect_ratio=f"anyres_max_{CAP}",
        vision_feature_layer=-1,
        vision_feature_select_strategy="full",
        tie_word_embeddings=False,
    )


def new_model(size: str = "llava", seed: int = 1) -> LlavaOnevisionForConditionalGeneration:
    """A stock model with unit-gain matrices and damped residual branches.

    The encoder's last norm stands behind the layer that LLaVA reads (``vision_feature_layer=-1``), so nothing ever
    reaches it: it is frozen.
    """
    torch.manual_seed(seed)
    model = LlavaOnevisionForConditionalGeneration(build_config(size))
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.ndim == 2 and (".layers." in name or "projector" in name):
                p.normal_(0, 0.8 / math.sqrt(p.shape[1]))
                if name.endswith(("o_proj.weight", "out_proj.weight", "down_proj.weight", "fc2.weight")):
                    p.mul_(0.3)
            elif "patch_embedding.weight" in name:
                p.normal_(0, 1 / math.sqrt(p[0].numel()))
            elif "position_embedding" in name:
                p.normal_(0, 0.5)
            if name.endswith("projector.linear_2.weight"):
                p.mul_(2.4)  # visual tokens as large as the first reader's, whose language model may be adopted
    return freeze(model)


def freeze(model: LlavaOnevisionForConditionalGeneration) -> LlavaOnevisionForConditionalGeneration:
    """Mark what no gradient reaches."""
    for name, p in model.named_parameters():
        p.requires_grad_("post_layernorm" not in name)
    return model


@torch.no_grad()
def adopt(model: LlavaOnevisionForConditionalGeneration, folder: str | Path) -> None:
    """Start the language model from the first reader's: the same layers in this one's order of frequencies.

    The strongest units of each MLP stay, |gate| |up| |down|; a newline starts as the first reader's token of white.
    """
    reader = Qwen2_5_VLForConditionalGeneration.from_pretrained(folder, dtype=torch.float32)
    for layer in reader.model.language_model.layers:
        reorder(layer.self_attn, SLOTS)
        keep_strongest(layer.mlp, model.config.text_config.intermediate_size)
    source = reader.state_dict()
    for name, p in model.named_parameters():
        if name.startswith(("model.language_model.", "lm_head.")):
            p.copy_(source[name])
    white = ((1 - torch.tensor(MEAN)) / torch.tensor(STD)).repeat_interleave(2 * 14 * 14)
    seen = reader.model.visual(white.expand(16, -1), torch.tensor([[1, 4, 4]])).pooler_output
    model.model.image_newline.copy_(seen.mean(0))


def reorder(attention: nn.Module, slots: Sequence[int]) -> None:
    """Give the i-th frequency to the pair of channels ``slots[i]``, in every head (halves of a head make the pairs)."""
    for projection in (attention.q_proj, attention.k_proj):
        for p in (projection.weight, projection.bias):
            p.copy_(p.unflatten(0, (-1, 2, len(slots)))[:, :, list(slots)].flatten(0, 2))


def keep_strongest(mlp: nn.Module, n: int) -> None:
    """Cut a gated MLP down to its n strongest units."""
    strength = mlp.gate_proj.weight.norm(dim=1) * mlp.up_proj.weight.norm(dim=1) * mlp.down_proj.weight.norm(dim=0)
    units = strength.topk(n).indices.sort().values
    for projection, axis in ((mlp.gate_proj, 0), (mlp.up_proj, 0), (mlp.down_proj, 1)):
        projection.weight = nn.Parameter(projection.weight.index_select(axis, units))


def save(model: LlavaOnevisionForConditionalGeneration, folder: str) -> None:
    """Write the normal folder."""
    save_folder(model, folder, save_processor)


def save_processor(folder: str) -> None:
    """Tokenizer, chat template and image settings, as JSON: without torchvision no stock processor exists."""
    build_tokenizer().save_pretrained(folder)
    images = {
        "do_convert_rgb": True,
        "do_normalize": True,
        "do_pad": True,
        "do_rescale": True,
        "do_resize": True,
        "image_mean": list(MEAN),
        "image_std": list(STD),
        "resample": 3,
        "rescale_factor": 1 / 255,
        "size": {"height": TILE, "width": TILE},
    }
    config = {
        "image_processor": {
            "image_processor_type": "LlavaOnevisionImageProcessor",
            "image_grid_pinpoints": PINPOINTS,
            **images,
        },
        "processor_class": "LlavaOnevisionProcessor",
        "video_processor": {"video_processor_type": "LlavaOnevisionVideoProcessor", **images},
        "image_token": "<|image_pad|>",
        "video_token": "<|video_pad|>",
        "num_image_tokens": SIDE**2,
        "vision_aspect_ratio": f"anyres_max_{CAP}",
        "vision_feature_select_strategy": "full",
    }
    Path(folder, "processor_config.json").write_text(json.dumps(config, indent=2) + "\n")
    Path(folder, "chat_template.jinja").write_text(CHAT_TEMPLATE)
