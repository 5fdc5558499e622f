"""Tiny randomly initialized models of the families that ``SplicedVLM`` runs, with their own processors."""

from __future__ import annotations

import inspect
import json
from functools import cache
from pathlib import Path
from typing import Any

import torch
from tests.models.tiny import QWEN, text_config, tf, token_id, tokenizer

from stakes.models.local.spliced import SplicedVLM
from stakes.models.local.stock_processor import PixtralImages, WholeProcessor

# type, or type and encoder -> the family of its tokens, with the numbers of the tiny model
SPLICED = {
    "llava": "per_image=16",
    "llava-pixtral": "like=pixtral,longest_edge=56,patch=7",
    "llava_next": "like=llava-next,tile=28,side=4",
    "internvl": "tile=28,tiles=4,per_tile=4",
    "gemma3": "per_image=16",
    "idefics3": "like=idefics3,longest_edge=56,tile=28,per_tile=4",
    "smolvlm": "like=smolvlm2,longest_edge=56,tile=28,per_tile=4",
    "mistral3": "like=mistral3,longest_edge=70,patch=14",
    "glm4v": "like=glm-4.1v,min_pixels=3136,max_pixels=39200",
}
# The same with sliding windows that are shorter than a prompt: in all layers, and in some.
WINDOWS: dict[str, dict[str, Any]] = {
    "mistral3": {"sliding_window": 24},
    "internvl": {"sliding_window": 24, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]},
}
TEMPLATE = QWEN.replace("<|vision_start|>", "").replace("<|vision_end|>", "")
IMAGE = "<|image_pad|>"
MARKS: list[str] = [
    "<image>",
    "<fake_token_around_image>",
    "<end_of_utterance>",
    "<global-img>",
    "[IMG_BREAK]",
    "[IMG_END]",
]
MARKS += [f"<row_{i}_col_{j}>" for i in range(1, 7) for j in range(1, 7)]
VISION: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}


@cache
def words() -> Any:
    """The byte tokenizer, with the names and markers that processors look for."""
    names = {"image_token": IMAGE, "boi_token": "<|vision_start|>", "eoi_token": "<|vision_end|>"}
    names |= {"start_image_token": "<|vision_start|>", "end_image_token": "<|vision_end|>"}
    names |= {"context_image_token": IMAGE, "video_token": "<|video_pad|>"}
    made = tf.PreTrainedTokenizerFast(
        tokenizer_object=type(tokenizer().backend_tokenizer).from_str(tokenizer().backend_tokenizer.to_str()),
        eos_token="<|im_end|>",
        pad_token="<pad>",
        padding_side="left",
        extra_special_tokens=names,
    )
    made.add_special_tokens({"additional_special_tokens": MARKS})
    return made


def images_only(base: Any) -> Any:
    """A processor class that may do without its part for videos, which needs torchvision."""

    def check(self: Any, name: str, argument: Any) -> Any:
        return None if argument is None else base.check_argument_for_proper_class(self, name, argument)

    return type(base.__name__, (base,), {"check_argument_for_proper_class": check})


def parts(kind: str) -> tuple[Any, Any]:
    """A configuration and the family's processor."""
    text = text_config(vocab_size=len(words()), num_hidden_layers=3)
    at = {"image_token_id": token_id(IMAGE)}
    llama = {"model_type": "llama", **text}
    if kind in ("llava", "llava_next"):
        pins = [[28, 56], [56, 28], [56, 56], [84, 28], [28, 84]]
        size: dict[str, Any] = {"size": {"shortest_edge": 28}, "crop_size": {"height": 28, "width": 28}}
        vision = VISION | {"model_type": "clip_vision_model", "image_size": 28, "patch_size": 7}
        both = {"text_config": llama, "vision_config": vision, **at}
        more: dict[str, Any] = {"patch_size": 7}
        more |= {"vision_feature_select_strategy": "default", "num_additional_image_tokens": 1}
        more |= {"tokenizer": words(), "chat_template": TEMPLATE, "image_token": IMAGE}
        if kind == "llava":
            return tf.LlavaConfig(**both), tf.LlavaProcessor(tf.CLIPImageProcessorPil(**size), **more)
        images = tf.LlavaNextImageProcessorPil(**size, image_grid_pinpoints=pins)
        return tf.LlavaNextConfig(**both, image_grid_pinpoints=pins), tf.LlavaNextProcessor(images, **more)
    if kind in ("llava-pixtral", "mistral3"):
        vision = VISION | {"model_type": "pixtral", "image_size": 70, "patch_size": 7, "head_dim": 16}
        both = {"text_config": {**text, "model_type": "mistral", "sliding_window": None, "head_dim": 8}}
        both |= {"vision_config": vision, "vision_feature_layer": -1, **at}
        merge, edge = (1, 56) if kind == "llava-pixtral" else (2, 70)
        images = tf.PixtralImageProcessorPil(patch_size=7, size={"longest_edge": edge})
        more = {"patch_size": 7, "spatial_merge_size": merge, "image_token": IMAGE, "chat_template": TEMPLATE}
        processor = PixtralImages(images, words(), **more)
        if kind == "mistral3":
            return tf.Mistral3Config(**both, spatial_merge_size=merge), processor
        return tf.LlavaConfig(**both, vision_feature_select_strategy="full"), processor
    if kind == "internvl":
        size = {"image_size": [28, 28], "patch_size": [7, 7]}
        made = tf.InternVLConfig(text_config={"model_type": "qwen2", **text}, vision_config=VISION | size, **at)
        images = tf.GotOcr2ImageProcessorPil(size={"height": 28, "width": 28}, max_patches=4, crop_to_patches=True)
        return made, images_only(tf.InternVLProcessor)(images, words(), None, 4, TEMPLATE)
    if kind == "gemma3":
        vision = VISION | {"image_size": 28, "patch_size": 7, "vision_use_head": False}
        text |= {"head_dim": 8, "sliding_window": 12, "layer_types": ["sliding_attention", "full_attention"] * 2}
        text |= {"num_hidden_layers": 4, "query_pre_attn_scalar": 8}
        ids = at | {"boi_token_index": token_id("<|vision_start|>"), "eoi_token_index": token_id("<|vision_end|>")}
        made = tf.Gemma3Config(text_config=text, vision_config=vision, mm_tokens_per_image=16, **ids)
        images = tf.Gemma3ImageProcessorPil(size={"height": 28, "width": 28})
        return made, tf.Gemma3Processor(images, words(), TEMPLATE.replace(IMAGE, "<|vision_start|>"), 16)
    if kind in ("idefics3", "smolvlm"):
        vision = VISION | {"image_size": 28, "patch_size": 7}
        image = "<image>" if kind == "idefics3" else IMAGE
        mark = {"image_token_id": words().convert_tokens_to_ids(image)}
        configured = {"text_config": llama, "vision_config": vision, "scale_factor": 2, **mark}
        size = {"size": {"longest_edge": 56}, "max_image_size": {"longest_edge": 28}}
        template = TEMPLATE.replace(IMAGE, image)
        if kind == "idefics3":
            return tf.Idefics3Config(**configured), tf.Idefics3Processor(
                tf.Idefics3ImageProcessorPil(**size), words(), 4, template
            )
        return tf.SmolVLMConfig(**configured), images_only(tf.SmolVLMProcessor)(
            tf.SmolVLMImageProcessorPil(**size), words(), None, 4, template
        )
    vision = {"depth": 2, "hidden_size": 32, "out_hidden_size": 32, "num_heads": 2, "intermediate_size": 48}
    vision |= {"patch_size": 14, "image_size": 56}
    rope = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [1, 1, 2], "partial_rotary_factor": 1.0}
    ids = at | {"video_token_id": token_id("<|video_pad|>")}
    ids |= {"image_start_token_id": token_id("<|vision_start|>"), "image_end_token_id": token_id("<|vision_end|>")}
    made = tf.Glm4vConfig(text_config=text | {"rope_parameters": rope}, vision_config=vision, **ids)
    images = tf.Glm4vImageProcessorPil(size={"shortest_edge": 2 * 3136, "longest_edge": 2 * 39200})
    return made, images_only(tf.Glm4vProcessor)(images, words(), None, QWEN)  # a start and an end, as GLM's


@cache
def spliced(kind: str, attention: str = "sdpa") -> Any:
    """One model of each type and attention implementation, with the same weights every time.

    "mistral3+windows" is a mistral3 with the settings of ``WINDOWS``.
    """
    kind, _, windows = kind.partition("+")
    made, processor = parts(kind)
    for name, value in (WINDOWS[kind] if windows else {}).items():
        setattr(made.get_text_config(), name, value)
    torch.manual_seed(1)
    with torch.inference_mode(False), torch.no_grad():
        model = tf.AutoModelForImageTextToText.from_config(made, attn_implementation=attention).eval()
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1 and "norm" not in name:
                torch.nn.init.normal_(parameter, std=0.25)
            elif name.endswith("bias"):
                torch.nn.init.normal_(parameter, std=0.2)
        never = [token_id("<|im_end|>"), made.image_token_id]  # so that answers have all their steps
        model.lm_head.weight[never] = 0
    model.generation_config.eos_token_id = token_id("<|im_end|>")
    model.generation_config.pad_token_id = token_id("<pad>")
    return SplicedVLM(model, WholeProcessor(processor, made.image_token_id), SPLICED[kind], max_new_tokens=8)


def save_spliced(kind: str, folder: Path) -> Path:
    """A checkpoint as the hub has them."""
    model = spliced(kind)
    whole = model.processor.whole
    model.model.save_pretrained(folder)
    whole.tokenizer.save_pretrained(folder)
    whole.image_processor.save_pretrained(folder)
    (folder / "chat_template.jinja").write_text(whole.chat_template, encoding="utf-8")
    names = ["patch_size", "spatial_merge_size", "vision_feature_select_strategy", "num_additional_image_tokens"]
    names += ["image_token", "image_seq_length", "image_seq_len"]
    known = inspect.signature(type(whole).__init__).parameters
    stated = {name: getattr(whole, name) for name in names if name in known}
    stated["processor_class"] = type(whole).__name__.replace("PixtralImages", "PixtralProcessor")
    (folder / "processor_config.json").write_text(json.dumps(stated), encoding="utf-8")
    return folder
