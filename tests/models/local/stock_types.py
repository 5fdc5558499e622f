"""Tiny random models of image-text-to-text types, each of its own class, with its own processor's class and geometry.

The tokenizer is bytes with the special tokens that the processor asks for. Images go through PIL. Where a processor has
a video part, which needs torchvision, the same class is built without it. Templates are this project's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tokenizers
import torch
from tests.models.tiny import QWEN, text_config, tf, token_id, tokenizer
from tests.vision.geometry.processors import without_parts

IMAGE, VIDEO, START, END = "<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>"
TEMPLATE = QWEN.replace(START, "").replace(END, "")
CLIP: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}
AT = {"image_token_id": token_id(IMAGE)}
MROPE = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [1, 1, 2]}


def words(*specials: str, **names: str) -> Any:
    """The byte tokenizer, with the names and special tokens that processors look for."""
    known = {"image_token": IMAGE, "boi_token": START, "eoi_token": END, "video_token": VIDEO}
    made = tf.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer().backend_tokenizer,
        eos_token="<|im_end|>",
        pad_token="<pad>",
        bos_token="<|im_start|>",
        padding_side="left",
        extra_special_tokens=known | names,
    )
    if specials:
        made.add_special_tokens({"additional_special_tokens": list(specials)})
    return made


def without_video(processor: Any) -> Any:
    """The same class, which takes a few numbers in place of a video processor."""
    return type(processor.__name__, (processor,), {"check_argument_for_proper_class": lambda *_: None})


def llama(size: int | None = None, **more: Any) -> dict[str, Any]:
    """A small Llama, with room in its vocabulary for more special tokens."""
    own = text_config(num_hidden_layers=2, model_type="llama")
    return own | {"vocab_size": size or own["vocab_size"]} | more


def clip(size: int, patch: int = 14, **more: Any) -> dict[str, Any]:
    return CLIP | {"model_type": "clip_vision_model", "image_size": size, "patch_size": patch} | more


def siglip(size: int, patch: int = 14, **more: Any) -> dict[str, Any]:
    return clip(size, patch) | {"model_type": "siglip_vision_model", "vision_use_head": False} | more


def square(side: int) -> dict[str, Any]:
    return {"size": {"height": side, "width": side}}


def llava_like(kind: str) -> tuple[Any, Any]:
    """vipllava and video_llava: CLIP at 336 or 224 pixels."""
    side = 336 if kind == "vipllava" else 224
    crop = {"size": {"shortest_edge": side}, "crop_size": {"height": side, "width": side}}
    more: dict[str, Any] = {"patch_size": 14, "vision_feature_select_strategy": "default", "image_token": IMAGE}
    more |= {"chat_template": TEMPLATE, "num_additional_image_tokens": 1}
    if kind == "vipllava":
        made = tf.VipLlavaConfig(
            text_config=llama(),
            vision_config=clip(side),
            image_token_index=token_id(IMAGE),
            vision_feature_layers=[-1, -2],
        )
        return made, tf.LlavaProcessor(tf.CLIPImageProcessorPil(**crop), words(), **more)
    made = tf.VideoLlavaConfig(
        text_config=llama(), vision_config=clip(side), image_token_index=token_id(IMAGE),
        video_token_index=token_id(VIDEO),
    )  # fmt: skip
    processor = without_parts(tf.VideoLlavaProcessor)
    return made, processor(tf.VideoLlavaImageProcessor(**crop), None, words(), **more)


def paligemma(_: str) -> tuple[Any, Any]:
    text = llama(head_dim=8, model_type="gemma")
    made = tf.PaliGemmaConfig(
        text_config=text,
        vision_config=siglip(224, projection_dim=32),
        projection_dim=32,
        image_token_index=token_id(IMAGE),
    )
    images = tf.SiglipImageProcessorPil(**square(224))
    images.image_seq_length = 256
    return made, tf.PaliGemmaProcessor(images, words(), chat_template=TEMPLATE)


def deepseek(kind: str) -> tuple[Any, Any]:
    vision = siglip(384, 16)
    if kind == "deepseek_vl":
        made = tf.DeepseekVLConfig(text_config=llama(), vision_config=vision, **AT)
        return made, tf.DeepseekVLProcessor(tf.DeepseekVLImageProcessorPil(**square(384)), words(), TEMPLATE)
    sam = {"model_type": "sam_vision_model", "hidden_size": 32, "output_channels": 8, "num_hidden_layers": 2}
    sam |= {
        "num_attention_heads": 2,
        "mlp_dim": 48,
        "global_attn_indexes": [0, 1],
        "image_size": 256,
        "patch_size": 16,
    }
    made = tf.DeepseekVLHybridConfig(text_config=llama(), vision_config=vision, high_res_vision_config=sam, **AT)
    images = tf.DeepseekVLHybridImageProcessorPil(**square(384), high_res_size={"height": 256, "width": 256})
    return made, tf.DeepseekVLHybridProcessor(images, words(), TEMPLATE)


def janus(_: str) -> tuple[Any, Any]:
    vision = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "projection_dim": 32,
        "mlp_ratio": 1.5,
    }
    vq = {"base_channels": 32, "channel_multiplier": [1, 1], "num_res_blocks": 1, "num_embeddings": 16}
    vq |= {"latent_channels": 32, "projection_dim": 32, "image_token_embed_dim": 32, "num_patches": 4}
    made = tf.JanusConfig(text_config=llama(), vision_config=vision, vq_config=vq, **AT)
    processor = tf.JanusProcessor(tf.JanusImageProcessorPil(**square(384)), words(), chat_template=TEMPLATE)
    return made, processor


def blip2(_: str) -> tuple[Any, Any]:
    former = {"vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    former |= {"intermediate_size": 48, "encoder_hidden_size": 32}
    text = {
        "model_type": "opt",
        "vocab_size": len(tokenizer()),
        "hidden_size": 32,
        "ffn_dim": 48,
        "num_hidden_layers": 2,
    }
    text |= {"num_attention_heads": 4, "word_embed_proj_dim": 32, "pad_token_id": token_id("<pad>")}
    vision = CLIP | {"image_size": 224, "patch_size": 14}
    made = tf.Blip2Config(
        vision_config=vision,
        qformer_config=former,
        text_config=text,
        num_query_tokens=32,
        image_token_index=token_id(IMAGE),
    )
    own = words()
    processor = tf.Blip2Processor(tf.BlipImageProcessorPil(**square(224)), own, num_query_tokens=32)
    processor.image_token = tokenizers.AddedToken(IMAGE, special=True)  # it asks for its content
    processor.chat_template = TEMPLATE.replace(IMAGE, "")  # it puts the image's tokens before the prompt itself
    return made, processor


def aria(_: str) -> tuple[Any, Any]:
    text = llama(model_type="aria_text", moe_num_experts=4, intermediate_size=24)
    vision = CLIP | {"model_type": "idefics3_vision", "image_size": 490, "patch_size": 14, "num_hidden_layers": 1}
    made = tf.AriaConfig(
        text_config=text, vision_config=vision, projector_patch_to_query_dict={1225: 128, 4900: 256},
        image_token_index=token_id(IMAGE),
    )  # fmt: skip
    images = tf.AriaImageProcessorPil(max_image_size=490)
    return made, tf.AriaProcessor(images, words(), chat_template=TEMPLATE, size_conversion={490: 128, 980: 256})


def idefics2(_: str) -> tuple[Any, Any]:
    own = words("<image>", "<fake_token_around_image>", "<end_of_utterance>")
    perceiver = {"hidden_size": 32, "resampler_n_heads": 2, "resampler_head_dim": 16, "num_key_value_heads": 1}
    made = tf.Idefics2Config(
        text_config=llama(len(own), model_type="mistral"), vision_config=CLIP | {"image_size": 980, "patch_size": 14},
        perceiver_config=perceiver, image_token_id=own.convert_tokens_to_ids(IMAGE),
    )  # fmt: skip
    images = tf.Idefics2ImageProcessorPil(do_image_splitting=False)
    own.image_boundary_token = "<fake_token_around_image>"
    return made, tf.Idefics2Processor(images, own, chat_template=TEMPLATE)


FIXED: dict[str, Callable[[str], tuple[Any, Any]]] = {
    "vipllava": llava_like,
    "video_llava": llava_like,
    "paligemma": paligemma,
    "deepseek_vl": deepseek,
    "deepseek_vl_hybrid": deepseek,
    "janus": janus,
    "blip-2": blip2,
    "aria": aria,
    "idefics2": idefics2,
}


def random_model(config: Any) -> Any:
    """A model of the configuration's class with random weights."""
    torch.manual_seed(1)
    model = tf.AutoModelForImageTextToText.from_config(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1 and "norm" not in name:
                torch.nn.init.normal_(parameter, std=0.25)
    model.generation_config.eos_token_id = token_id("<|im_end|>")
    model.generation_config.pad_token_id = token_id("<pad>")
    return model
