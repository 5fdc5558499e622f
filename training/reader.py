"""What is the reader? Its sizes, its character vocabulary and the folder it is saved to, in stock Hugging Face classes.

    model = new_model("base")              # about 9M parameters, 18 MB as bf16
    save(model, "runs/reader/export")      # a normal Qwen2.5-VL folder, shards of at most 12 MB

The LLaVA-OneVision reader stands beside this file (``reader_llava.py``); vocabulary and pages are the same.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerFast
from transformers.models.qwen2_5_vl.configuration_qwen2_5_vl import Qwen2_5_VLConfig
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VLForConditionalGeneration

SPECIALS = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
    "<|unk|>",
]
# Frequent fixed strings get one token each, so that a question costs few tokens; all else is one token a character.
MACROS = [
    "system\n",
    "user\n",
    "assistant\n",
    "You are a helpful assistant.",
    " Answer briefly.",
    "\nAnswer the question using a single word or phrase.",
    "What is the ",
    "How much is the ",
    "How much was the ",
    "When is the ",
    "When was the ",
    "Who is the ",
    "How many ",
    "What ",
    "Which ",
    "Who ",
    "Give the ",
    "Read the ",
    " is given?",
    " is printed?",
    " is the ",
    " in the ",
    " of the ",
    " number",
    " name",
]
CHARS = ["\n"] + [chr(c) for c in range(32, 127)]
VOCAB = SPECIALS + MACROS + CHARS
ID = {token: i for i, token in enumerate(VOCAB)}
VOCAB_SIZE = 144  # VOCAB rounded up to a multiple of 16
SYSTEM = [ID["<|im_start|>"], ID["system\n"], ID["You are a helpful assistant."], ID["<|im_end|>"], ID["\n"]]
TAIL = [ID["<|im_end|>"], ID["\n"], ID["<|im_start|>"], ID["assistant\n"]]

TOKEN = 28 * 28  # pixels of one visual token: 2 x 2 patches of 14 x 14
MIN_TOKENS, MAX_TOKENS = 16, 1300
MEAN, STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)

# Images before text in whatever order they came, since the reader was only ever shown that order. A system message
# is printed when there is one; there is no default one.
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for c in message['content'] %}"
    "{% if c['type'] == 'image' or 'image' in c or 'image_url' in c %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif c['type'] == 'video' or 'video' in c %}<|vision_start|><|video_pad|><|vision_end|>{% endif %}{% endfor %}"
    "{% for c in message['content'] %}{% if 'text' in c %}{{ c['text'] }}{% endif %}{% endfor %}"
    "{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

# vision: depth, width, heads, mlp, blocks with full attention; text: layers, width, heads, key-value heads, mlp
SIZES: dict[str, dict[str, Any]] = {
    "base": {"vision": (5, 192, 3, 512, (2,)), "text": (5, 384, 6, 2, 640)},
    "small": {"vision": (4, 128, 2, 320, (2,)), "text": (4, 256, 4, 2, 384)},
}
# head_dim 64 has 32 frequencies, theta ** (-i / 32), which M-RoPE gives out in order to time, height and width. Both
# page axes need a few fast ones, to tell neighbours apart, and some axis must have slow ones: they carry content, the
# same from any distance, without which no question finds its label. 2 + 4 + 26 at theta 500 gives the height 0.68-0.38
# rad a token and the width 0.31 down to 0.002. At theta 1e6 the width would be constant. At theta 10 with [2, 15, 15]
# everything turns by 0.11 rad or more: the encoder learnt its characters as fast, but answers stayed at 97 % error for
# 1,300 steps on cards, where theta 500 was at 75 % after 350 and at 53 % after 1,100.
MROPE_SECTION, THETA = [2, 4, 26], 500.0


def build_config(size: str = "base") -> Qwen2_5_VLConfig:
    """Config of one size; ``head_dim`` is 64 everywhere.

    The encoder has 3 heads of 64, not 6 of 32: its one full-attention block then costs half on a CPU (0.09 s less
    for a page of 972 tokens on two cores).
    """
    depth, vision_dim, vision_heads, vision_mlp, full = SIZES[size]["vision"]
    return Qwen2_5_VLConfig(
        text_config=text_config(SIZES[size]["text"], {"rope_theta": THETA, "mrope_section": MROPE_SECTION}),
        vision_config={
            "depth": depth,
            "hidden_size": vision_dim,
            "intermediate_size": vision_mlp,
            "num_heads": vision_heads,
            "patch_size": 14,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "window_size": 112,
            "out_hidden_size": SIZES[size]["text"][1],
            "fullatt_block_indexes": list(full),
            "initializer_range": 0.04,
            "in_channels": 3,
        },
        image_token_id=ID["<|image_pad|>"],
        video_token_id=ID["<|video_pad|>"],
        vision_start_token_id=ID["<|vision_start|>"],
        vision_end_token_id=ID["<|vision_end|>"],
        tie_word_embeddings=False,
    )


def text_config(text: tuple[int, int, int, int, int], rope: dict[str, Any]) -> dict[str, Any]:
    """Config of a reader's language model, of either family: its sizes, as in ``SIZES``, and what its RoPE turns by."""
    layers, dim, heads, kv_heads, mlp = text
    return {
        "vocab_size": VOCAB_SIZE,
        "hidden_size": dim,
        "intermediate_size": mlp,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-6,
        "initializer_range": 0.04,
        "max_window_layers": layers,
        "rope_parameters": {"rope_type": "default", **rope},
        "bos_token_id": ID["<|endoftext|>"],
        "eos_token_id": ID["<|im_end|>"],
        "pad_token_id": ID["<|endoftext|>"],
    }


def new_model(size: str = "base", seed: int = 1) -> Qwen2_5_VLForConditionalGeneration:
    """A stock model with unit-gain matrices and damped residual branches (the default 0.02 learns slower here)."""
    torch.manual_seed(seed)
    model = Qwen2_5_VLForConditionalGeneration(build_config(size))
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.ndim == 2 and (".blocks." in name or ".layers." in name or "merger" in name):
                p.normal_(0, 0.8 / math.sqrt(p.shape[1]))
                if name.endswith(("o_proj.weight", "down_proj.weight", "attn.proj.weight")):
                    p.mul_(0.3)
            elif "patch_embed" in name:
                p.normal_(0, 1 / math.sqrt(p[0].numel()))
    return model


_PIECES = re.compile("|".join(re.escape(m) for m in sorted(MACROS, key=len, reverse=True)) + "|.", re.DOTALL)


def encode(text: str) -> list[int]:
    """Token ids of ``text``; equals the saved tokenizer (tested), but needs no tokenizer in the render workers."""
    return [ID.get(piece, ID["<|unk|>"]) for piece in _PIECES.findall(text)]


def build_tokenizer() -> PreTrainedTokenizerFast:
    """The vocabulary as a stock fast tokenizer: BPE without merges is one token a character."""
    tok = Tokenizer(models.BPE(vocab=dict(ID), merges=[], unk_token="<|unk|>"))
    tok.decoder = decoders.Fuse()
    tok.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in SPECIALS])
    tok.add_tokens([AddedToken(t, special=False, normalized=False) for t in MACROS])
    return PreTrainedTokenizerFast(
        tokenizer_object=tok,
        unk_token="<|unk|>",
        pad_token="<|endoftext|>",
        eos_token="<|im_end|>",
        additional_special_tokens=SPECIALS[1:7],
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
        model_max_length=4096,
        padding_side="left",
    )


def save(model: PreTrainedModel, folder: str, processor: Callable[[str], None] | None = None) -> None:
    """Write the normal folder: config, generation config, bf16 safetensors, and what ``processor`` writes.

    It is written beside its place and then renamed, so that a killed run never leaves half a folder.
    """
    new = folder + ".new"
    shutil.rmtree(new, ignore_errors=True)
    os.makedirs(new)
    model.generation_config = GenerationConfig(
        eos_token_id=ID["<|im_end|>"], pad_token_id=ID["<|endoftext|>"], max_new_tokens=40, do_sample=False
    )
    state = {k: v.to(torch.bfloat16) for k, v in model.state_dict().items()}
    model.save_pretrained(new, max_shard_size="12MB", state_dict=state)
    config = Path(new, "config.json")  # names the dtype in memory, of the whole and of its parts: fp32 on a CPU
    named = json.loads(config.read_text()) | {"dtype": "bfloat16"}
    for part in named.values():
        if isinstance(part, dict):
            part.pop("dtype", None)
    config.write_text(json.dumps(named, indent=2) + "\n")
    (processor or save_processor)(new)
    for file in os.scandir(new):
        os.chmod(file, 0o644)  # safetensors writes files that only their owner can read
    shutil.rmtree(folder, ignore_errors=True)
    os.rename(new, folder)


def save_processor(folder: str) -> None:
    """Tokenizer, chat template and image settings; written as JSON, since without torchvision no processor exists."""
    build_tokenizer().save_pretrained(folder)
    pixels = {"shortest_edge": MIN_TOKENS * TOKEN, "longest_edge": MAX_TOKENS * TOKEN}
    images = {
        "do_convert_rgb": True,
        "do_normalize": True,
        "do_rescale": True,
        "do_resize": True,
        "image_mean": list(MEAN),
        "image_std": list(STD),
        "merge_size": 2,
        "patch_size": 14,
        "resample": 3,
        "rescale_factor": 1 / 255,
        "size": pixels,
        "temporal_patch_size": 2,
    }
    config = {
        "image_processor": {"image_processor_type": "Qwen2VLImageProcessor", **images},
        "processor_class": "Qwen2_5_VLProcessor",
        "video_processor": {"video_processor_type": "Qwen2VLVideoProcessor", "do_sample_frames": False, **images},
    }
    with open(os.path.join(folder, "processor_config.json"), "w") as f:
        json.dump(config, f, indent=2)
    with open(os.path.join(folder, "chat_template.jinja"), "w") as f:
        f.write(CHAT_TEMPLATE)
