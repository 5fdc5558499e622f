"""Tiny random models of types whose tokens follow the size of the image or a parameter of the processor."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from tests.models.local.stock_types import (
    AT,
    CLIP,
    END,
    FIXED,
    IMAGE,
    MROPE,
    START,
    TEMPLATE,
    VIDEO,
    clip,
    llama,
    random_model,
    siglip,
    square,
    without_video,
    words,
)
from tests.models.tiny import QWEN, text_config, tf, token_id
from tests.vision.geometry.processors import without_parts


def qwen_like(kind: str) -> tuple[Any, Any]:
    """Types whose images go through Qwen2-VL's processor."""
    ids = AT | {"video_token_id": token_id(VIDEO)}
    ids |= {"vision_start_token_id": token_id(START), "vision_end_token_id": token_id(END)}
    vision: dict[str, Any] = {"depth": 2, "hidden_size": 32, "out_hidden_size": 32, "num_heads": 2}
    vision |= {"intermediate_size": 48}
    if kind in ("qwen3_5", "qwen3_5_moe"):
        text = text_config(head_dim=16, num_hidden_layers=2, layer_types=["linear_attention", "full_attention"])
        text |= {"linear_key_head_dim": 8, "linear_value_head_dim": 8, "linear_num_key_heads": 2}
        text |= {"linear_num_value_heads": 2}
        text["rope_parameters"] = MROPE | {"partial_rotary_factor": 0.5, "mrope_interleaved": True}
        vision |= {"num_position_embeddings": 64, "patch_size": 16}
        cls = tf.Qwen3_5Config
        if kind == "qwen3_5_moe":
            cls = tf.Qwen3_5MoeConfig
            text |= {"moe_intermediate_size": 24, "num_experts": 4, "num_experts_per_tok": 2}
            text |= {"shared_expert_intermediate_size": 24}
        size = {"shortest_edge": 65536, "longest_edge": 16777216}
        images = tf.Qwen2VLImageProcessorPil(patch_size=16, merge_size=2, size=size)
        made = cls(text_config=text, vision_config=vision, **ids)
        return made, without_parts(tf.Qwen3VLProcessor)(images, words(), None, chat_template=QWEN)
    size = {"shortest_edge": 3136, "longest_edge": 12845056}
    images = tf.Qwen2VLImageProcessorPil(patch_size=14, merge_size=2, size=size)
    vision |= {"num_key_value_heads": 1, "fullatt_block_indexes": [1]}
    text = text_config(num_hidden_layers=2, layer_types=["full_attention"] * 2, model_type="exaone4")
    made = tf.Exaone4_5_Config(text_config=text, vision_config=vision, **AT, video_token_id=token_id(VIDEO))
    return made, without_parts(tf.Exaone4_5_Processor)(images, words(), None, chat_template=QWEN)


def video_llama(_: str) -> tuple[Any, Any]:
    text = llama(model_type="qwen2")
    made = tf.VideoLlama3Config(
        text_config=text, vision_config=CLIP | {"patch_size": 14}, **AT, video_token_id=token_id(VIDEO)
    )
    images = tf.VideoLlama3ImageProcessorPil(patch_size=14)
    return made, without_parts(tf.VideoLlama3Processor)(images, words(), None, chat_template=QWEN)


def glm(kind: str) -> tuple[Any, Any]:
    ids = AT | {"video_token_id": token_id(VIDEO), "image_start_token_id": token_id(START)}
    ids |= {"image_end_token_id": token_id(END), "video_start_token_id": 1, "video_end_token_id": 2}
    vision = {"depth": 2, "hidden_size": 32, "out_hidden_size": 32, "num_heads": 2, "intermediate_size": 48}
    text = text_config(num_hidden_layers=2, head_dim=8, rope_parameters=MROPE | {"partial_rotary_factor": 1.0})
    own = words()
    if kind == "glm4v_moe":
        text |= {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "n_shared_experts": 1}
        made = tf.Glm4vMoeConfig(text_config=text, vision_config=vision, **ids)
    elif kind == "glm46v":
        inner = {"model_type": "glm4v_text"} | text, {"model_type": "glm4v_vision"} | vision
        made = tf.Glm46VConfig(text_config=inner[0], vision_config=inner[1], **ids)
        processor = without_parts(tf.Glm46VProcessor)
        return made, processor(tf.Glm46VImageProcessorPil(), own, None, chat_template=QWEN)
    elif kind == "glm_ocr":
        made = tf.GlmOcrConfig(text_config=text, vision_config=vision, **ids)
    else:
        made = tf.Glm4vConfig(text_config=text, vision_config=vision, **ids)
    return made, without_parts(tf.Glm4vProcessor)(tf.Glm4vImageProcessorPil(), own, None, chat_template=QWEN)


def internvl(kind: str) -> tuple[Any, Any]:
    own = words(start_image_token=START, end_image_token=END, context_image_token=IMAGE)
    images = tf.GotOcr2ImageProcessorPil(**square(448), max_patches=12, crop_to_patches=True)
    vision = CLIP | {"image_size": [448, 448], "patch_size": [14, 14]}
    text = llama(model_type="qwen2")
    made = tf.InternVLConfig(text_config=text, vision_config=vision, image_seq_length=256, **AT)
    return made, without_parts(tf.InternVLProcessor)(images, own, None, chat_template=TEMPLATE)


def smolvlm(_: str) -> tuple[Any, Any]:
    own = words("<image>", "<fake_token_around_image>", "<global-img>", "<end_of_utterance>")
    images = tf.SmolVLMImageProcessorPil(size={"longest_edge": 1024}, max_image_size={"longest_edge": 512})
    images.video_sampling = {"fps": 1, "max_frames": 4, "video_size": {"longest_edge": 512}}
    own.fake_image_token, own.global_image_token, own.end_of_utterance_token = (
        "<fake_token_around_image>", "<global-img>", "<end_of_utterance>"
    )  # fmt: skip
    vision = CLIP | {"image_size": 512, "patch_size": 16}
    made = tf.SmolVLMConfig(
        text_config=llama(len(own)),
        vision_config=vision,
        scale_factor=4,
        image_token_id=own.convert_tokens_to_ids(IMAGE),
    )
    video = SimpleNamespace(num_frames=4, fps=1, model_input_names=[])
    return made, without_video(tf.SmolVLMProcessor)(images, own, video, 64, TEMPLATE)


def lighton(_: str) -> tuple[Any, Any]:
    vision = {"model_type": "pixtral", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    vision |= {"num_attention_heads": 2, "image_size": 1540, "patch_size": 14, "head_dim": 16}
    made = tf.LightOnOcrConfig(text_config=llama(model_type="qwen3", head_dim=8), vision_config=vision, **AT)
    images = tf.PixtralImageProcessorPil(size={"longest_edge": 1540}, patch_size={"height": 14, "width": 14})
    return made, tf.LightOnOcrProcessor(
        images, words(image_break_token=START, image_end_token=END), chat_template=TEMPLATE
    )


def minicpm(_: str) -> tuple[Any, Any]:
    names = {"image_start_token": START, "image_end_token": END, "slice_start_token": "<slice>"}
    names |= {"slice_end_token": "</slice>", "image_id_start_token": "<image_id>", "image_id_end_token": "</image_id>"}
    own = words(**names)
    text = text_config(head_dim=16, num_hidden_layers=2, layer_types=["linear_attention", "full_attention"])
    text |= {
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 8,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 2,
    }
    text |= {"model_type": "qwen3_5_text", "vocab_size": len(own)}
    text["rope_parameters"] = MROPE | {"partial_rotary_factor": 0.5}
    vision = CLIP | {"image_size": 980, "patch_size": 14, "insert_layer_id": 0}
    made = tf.MiniCPMV4_6Config(
        text_config=text, vision_config=vision, insert_layer_id=0, **AT, video_token_id=token_id(VIDEO)
    )
    images = tf.MiniCPMV4_6ImageProcessorPil()
    video = SimpleNamespace(slice_mode=True, downsample_mode="16x", model_input_names=[])
    return made, without_video(tf.MiniCPMV4_6Processor)(images, video, own, chat_template=TEMPLATE)


def gemma4(_: str) -> tuple[Any, Any]:
    text = llama(
        model_type="gemma4_text", head_dim=8, global_head_dim=8, sliding_window=64, hidden_size_per_layer_input=0
    )
    text |= {"layer_types": ["sliding_attention", "full_attention"]}
    vision = CLIP | {"num_key_value_heads": 2, "head_dim": 16, "position_embedding_size": 4096}
    made = tf.Gemma4Config(
        text_config=text, vision_config=vision, audio_config=None, **AT, boi_token_id=token_id(START),
        eoi_token_id=token_id(END), video_token_id=token_id(VIDEO),
    )  # fmt: skip
    own = words(audio_token="<audio>", boa_token="<boa>", eoa_token="<eoa>")
    processor = without_parts(tf.Gemma4Processor)(None, tf.Gemma4ImageProcessorPil(), own, None, chat_template=TEMPLATE)
    return made, processor


def aya(_: str) -> tuple[Any, Any]:
    marks = (
        "<image>",
        "<|IMG_PATCH|>",
        "<|START_OF_IMG|>",
        "<|END_OF_IMG|>",
        "<|IMG_LINE_BREAK|>",
        "TILE",
        "TILE_GLOBAL",
    )
    own = words(*marks)
    text = llama(len(own), model_type="cohere2", sliding_window=8192)
    made = tf.AyaVisionConfig(
        text_config=text, vision_config=siglip(364), image_token_index=own.convert_tokens_to_ids("<|IMG_PATCH|>")
    )
    images = tf.GotOcr2ImageProcessorPil(**square(364), crop_to_patches=True)
    return made, tf.AyaVisionProcessor(images, own, chat_template=TEMPLATE.replace(IMAGE, "<image>"), img_size=364)


def next_video(_: str) -> tuple[Any, Any]:
    size = {"size": {"shortest_edge": 336}, "crop_size": {"height": 336, "width": 336}}
    made = tf.LlavaNextVideoConfig(text_config=llama(), vision_config=clip(336), **AT, video_token_id=token_id(VIDEO))
    more = {"patch_size": 14, "vision_feature_select_strategy": "default", "num_additional_image_tokens": 1}
    processor = without_parts(tf.LlavaNextVideoProcessor)
    images = tf.LlavaNextImageProcessorPil(**size)
    return made, processor(None, images, words(), TEMPLATE, **more, image_token=IMAGE)


SIZED: dict[str, Callable[[str], tuple[Any, Any]]] = {
    "qwen3_5": qwen_like,
    "qwen3_5_moe": qwen_like,
    "exaone4_5": qwen_like,
    "video_llama_3": video_llama,
    "glm4v": glm,
    "glm4v_moe": glm,
    "glm46v": glm,
    "glm_ocr": glm,
    "internvl": internvl,
    "smolvlm": smolvlm,
    "lighton_ocr": lighton,
    "minicpmv4_6": minicpm,
    "gemma4": gemma4,
    "aya_vision": aya,
    "llava_next_video": next_video,
}


def build(kind: str) -> tuple[Any, Any]:
    """A random model of the type and its processor."""
    config, processor = (FIXED | SIZED)[kind](kind)
    return random_model(config), processor
