"""Tiny randomly initialized models of the real classes, with a byte tokenizer and processors built in code."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import torch
import transformers
from PIL import Image
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from stakes.models import ARCHITECTURES, named_object
from stakes.models.local.processor import Processor
from stakes.models.local.vlm import LocalVLM

tf: Any = transformers  # its annotations of configurations are narrower than what they take
torch.set_num_threads(1)  # these tensors are so small that a second thread only costs

FAMILIES = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "llava_onevision")
DELETABLE = (*FAMILIES, "qwen3_vl_moe")  # its decoder is not of the fast path; the rest is qwen3_vl's
SPECIALS = (
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
    "<pad>",
)
QWEN = (
    "<|im_start|>system\nYou help.<|im_end|>\n{% for m in messages %}<|im_start|>{{ m.role }}\n{% for c in m.content %}"
    "{% if c.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ c.text }}{% endif %}{% endfor %}"
    "<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
)
LLAVA = (
    QWEN.replace("<|vision_start|>", "")
    .replace("<|vision_end|>", "")
    .replace("<|im_start|>system\nYou help.<|im_end|>\n", "")
)


@cache
def tokenizer() -> Any:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {character: i for i, character in enumerate(alphabet)}
    made = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(list(SPECIALS))
    return tf.PreTrainedTokenizerFast(
        tokenizer_object=made,
        eos_token="<|im_end|>",
        pad_token="<pad>",
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )


def token_id(token: str) -> int:
    return int(tokenizer().convert_tokens_to_ids(token))


def text_config(**more: Any) -> dict[str, Any]:
    return {
        "vocab_size": len(tokenizer()),
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 4096,
        "bos_token_id": None,
        "eos_token_id": token_id("<|im_end|>"),
        "pad_token_id": token_id("<pad>"),
        "tie_word_embeddings": False,
        **more,
    }


def config(family: str) -> Any:
    vision: dict[str, Any]
    ids = {
        "image_token_id": token_id("<|image_pad|>"),
        "video_token_id": token_id("<|video_pad|>"),
        "vision_start_token_id": token_id("<|vision_start|>"),
        "vision_end_token_id": token_id("<|vision_end|>"),
    }
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [1, 1, 2]}
    if family == "qwen2_vl":
        vision = {"depth": 3, "embed_dim": 32, "hidden_size": 32, "num_heads": 2, "mlp_ratio": 2, "patch_size": 14}
        return tf.Qwen2VLConfig(text_config=text_config(rope_parameters=rope), vision_config=vision, **ids)
    if family == "qwen2_5_vl":
        vision = {"depth": 3, "hidden_size": 32, "out_hidden_size": 32, "num_heads": 2, "intermediate_size": 48}
        vision |= {"patch_size": 14, "window_size": 56, "fullatt_block_indexes": [1], "tokens_per_second": 2}
        return tf.Qwen2_5_VLConfig(text_config=text_config(rope_parameters=rope), vision_config=vision, **ids)
    if family in ("qwen3_vl", "qwen3_vl_moe"):
        vision = {"depth": 4, "hidden_size": 32, "out_hidden_size": 32, "num_heads": 2, "intermediate_size": 48}
        vision |= {"patch_size": 16, "num_position_embeddings": 64, "deepstack_visual_indexes": [0, 1, 2]}
        rope = {**rope, "mrope_interleaved": True}
        text = text_config(rope_parameters=rope, head_dim=8)
        if family == "qwen3_vl":
            return tf.Qwen3VLConfig(text_config=text, vision_config=vision, **ids)
        text |= {"moe_intermediate_size": 24, "num_experts": 4, "num_experts_per_tok": 2}
        return tf.Qwen3VLMoeConfig(text_config=text, vision_config=vision, **ids)
    vision = {"model_type": "siglip_vision_model", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3}
    vision |= {"num_attention_heads": 2, "image_size": 28, "patch_size": 7, "vision_use_head": False}
    return tf.LlavaOnevisionConfig(
        text_config={"model_type": "qwen2", **text_config()},
        vision_config=vision,
        image_token_id=ids["image_token_id"],
        video_token_id=ids["video_token_id"],
        image_grid_pinpoints=[[28 * i, 28 * j] for i in range(1, 4) for j in range(1, 4)],
    )


def image_processor(family: str) -> Any:
    if family == "llava_onevision":
        pins = config(family).image_grid_pinpoints
        return tf.LlavaOnevisionImageProcessorPil(size={"height": 28, "width": 28}, image_grid_pinpoints=pins)
    patch = config(family).vision_config.patch_size
    size = {"shortest_edge": 4 * (2 * patch) ** 2, "longest_edge": 100 * (2 * patch) ** 2}
    return tf.Qwen2VLImageProcessorPil(patch_size=patch, merge_size=2, size=size)


@cache
def tiny(family: str, attention: str = "sdpa") -> LocalVLM:
    """One model per family and attention implementation, with the same weights every time."""
    torch.manual_seed(1)
    with torch.inference_mode(False):  # a test in inference mode would leave weights that no other test can use
        made = tf.AutoModelForImageTextToText.from_config(config(family), attn_implementation=attention).eval()
    with torch.inference_mode(False), torch.no_grad():
        for name, parameter in made.named_parameters():
            # With the default initialization attention is nearly uniform.
            if parameter.dim() > 1 and "norm" not in name:
                torch.nn.init.normal_(parameter, std=0.25)
            elif name.endswith("bias"):
                torch.nn.init.normal_(parameter, std=0.2)
    made.generation_config.eos_token_id = token_id("<|im_end|>")
    made.generation_config.pad_token_id = token_id("<pad>")
    template = LLAVA if family == "llava_onevision" else QWEN
    processor = Processor(image_processor(family), tokenizer(), template, made.config.image_token_id)
    architecture, name = ARCHITECTURES[family]
    vlm: LocalVLM = named_object(architecture)(model=made, processor=processor, family=name, max_new_tokens=8)
    return vlm


def picture(width: int, height: int, seed: int = 0) -> Image.Image:
    """Noise in blocks: no two parts are equal."""
    noise = torch.randint(
        0, 255, (max(1, height // 5), max(1, width // 5), 3), generator=torch.Generator().manual_seed(seed)
    )
    return Image.fromarray(noise.to(torch.uint8).numpy()).resize((width, height))


def blank(width: int, height: int) -> Image.Image:
    return Image.new("RGB", (width, height), "white")


def stock_processor(family: str) -> Any:
    """Transformers' own processor, except that it may do without the video part, which needs torchvision."""
    stem = {
        "qwen2_vl": "Qwen2VL",
        "qwen2_5_vl": "Qwen2_5_VL",
        "qwen3_vl": "Qwen3VL",
        "qwen3_vl_moe": "Qwen3VL",
        "llava_onevision": "LlavaOnevision",
    }
    base = getattr(tf, f"{stem[family]}Processor")

    def check(self: Any, name: str, argument: Any) -> Any:
        return None if argument is None else base.check_argument_for_proper_class(self, name, argument)

    cls = type(base.__name__, (base,), {"check_argument_for_proper_class": check})
    more: dict[str, Any] = {}
    if family == "llava_onevision":
        vision = config(family).vision_config
        more = {"num_image_tokens": (vision.image_size // vision.patch_size) ** 2, "image_token": "<|image_pad|>"}
        more |= {"vision_feature_select_strategy": "full", "video_token": "<|video_pad|>"}
    return cls(image_processor(family), tokenizer(), None, chat_template=tiny(family).processor.template, **more)


def stock_inputs(family: str, images: list[Image.Image], questions: list[str]) -> dict[str, Any]:
    """What a user of transformers would pass to ``generate``."""
    processor = stock_processor(family)
    texts = [
        processor.apply_chat_template(
            [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": f"{question} Answer briefly."}]}],
            add_generation_prompt=True,
            tokenize=False,
        )
        for question in questions
    ]
    return dict(processor(text=texts, images=[[i] for i in images], return_tensors="pt", padding=True))


def save_tiles(folder: Path, tile: int = 252, side: int = 12, cap: int = 18) -> Path:
    """A random LLaVA-OneVision checkpoint with these tiles; by default those of the family reader-llava."""
    torch.manual_seed(1)
    made = config("llava_onevision")
    made.vision_config.image_size, made.vision_config.patch_size = tile, tile // side
    made.image_grid_pinpoints = [[tile * i, tile * j] for i in range(1, 7) for j in range(1, 7)]
    made.vision_aspect_ratio = f"anyres_max_{cap}"
    tf.AutoModelForImageTextToText.from_config(made).save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    size = {"height": tile, "width": tile}
    tf.LlavaOnevisionImageProcessorPil(size=size, image_grid_pinpoints=made.image_grid_pinpoints).save_pretrained(
        folder
    )
    (folder / "chat_template.jinja").write_text(LLAVA, encoding="utf-8")
    return folder
