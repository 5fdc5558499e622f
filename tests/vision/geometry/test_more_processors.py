"""More local families equal their own Hugging Face processors, in the way of ``test_processors``."""

from collections.abc import Callable
from functools import cache, partial
from types import SimpleNamespace

import pytest
from tests.vision.geometry.processors import (
    Built,
    mine,
    model_module,
    or_refusal,
    sizes,
    small_tokenizer,
    without_parts,
)

from stakes.errors import BadInput
from stakes.vision.geometry import count_tokens

pytest.importorskip("transformers")
numpy = pytest.importorskip("numpy")

SIZES = [
    *[
        (1, 1),
        (3, 1),
        (20, 3),
        (13, 200),
        (28, 28),
        (29, 27),
        (336, 336),
        (384, 385),
        (300, 200),
        (448, 449),
        (512, 300),
    ],
    *[(640, 480), (769, 100), (1000, 750), (827, 1170), (100, 1500), (1, 700), (3000, 20)],
]
SPLIT = [f"<row_{i}_col_{j}>" for i in range(1, 7) for j in range(1, 7)]
PAIR = {"image_token": "<image>", "video_token": "<video>"}
# The tokenizer of Gemma 3n and PaliGemma has more named tokens than their prompts use.
GEMMA = {"image_token": "<image_soft_token>", "boi_token": "<start_of_image>", "eoi_token": "<end_of_image>"}
SOUND = {"audio_token": "<audio_soft_token>", "boa_token": "<start_of_audio>", "eoa_token": "<end_of_audio>"}


def _qwen35() -> Built:
    size = {"shortest_edge": 65536, "longest_edge": 16777216}
    images = model_module("qwen2_vl.image_processing_pil_qwen2_vl").Qwen2VLImageProcessorPil(patch_size=16, size=size)
    words = small_tokenizer(
        "<|vision_start|>", "<|vision_end|>", image_token="<|image_pad|>", video_token="<|video_pad|>"
    )
    auto = model_module("auto.processing_auto").PROCESSOR_MAPPING_NAMES
    assert auto["qwen3_5"] == auto["qwen3_5_moe"] == "Qwen3VLProcessor"
    processor = without_parts(model_module("qwen3_vl.processing_qwen3_vl").Qwen3VLProcessor)
    return Built(processor(images, words, None), "<|image_pad|>")


def _llava() -> Built:
    images = model_module("clip.image_processing_pil_clip").CLIPImageProcessorPil(
        size={"shortest_edge": 336}, crop_size={"height": 336, "width": 336}
    )
    options = {"patch_size": 14, "vision_feature_select_strategy": "default", "num_additional_image_tokens": 1}
    processor = model_module("llava.processing_llava").LlavaProcessor
    return Built(processor(images, small_tokenizer(image_token="<image>"), **options), "<image>")


def _llava_next() -> Built:
    images = model_module("llava_next.image_processing_pil_llava_next").LlavaNextImageProcessorPil(
        size={"shortest_edge": 336}, crop_size={"height": 336, "width": 336}
    )
    options = {"patch_size": 14, "vision_feature_select_strategy": "default", "num_additional_image_tokens": 1}
    processor = model_module("llava_next.processing_llava_next").LlavaNextProcessor
    return Built(processor(images, small_tokenizer(image_token="<image>"), **options), "<image>")


def _internvl() -> Built:
    size = {"height": 448, "width": 448}
    images = model_module("got_ocr2.image_processing_pil_got_ocr2").GotOcr2ImageProcessorPil(size=size)
    named = {"start_image_token": "<img>", "end_image_token": "</img>", "context_image_token": "<IMG_CONTEXT>"}
    processor = without_parts(model_module("internvl.processing_internvl").InternVLProcessor)
    return Built(processor(images, small_tokenizer(**named, video_token="<video>"), None), "<IMG_CONTEXT>", around=2)


def _smolvlm2(longest: int, tile: int, per_tile: int) -> Built:
    images = model_module("smolvlm.image_processing_pil_smolvlm").SmolVLMImageProcessorPil(
        size={"longest_edge": longest}, max_image_size={"longest_edge": tile}
    )
    words = small_tokenizer("<fake_token_around_image>", "<end_of_utterance>", "<global-img>", *SPLIT, **PAIR)
    smolvlm = model_module("smolvlm.processing_smolvlm")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(smolvlm, "num2words", smolvlm.num2words or str)  # a package for words in video prompts only
        return Built(without_parts(smolvlm.SmolVLMProcessor)(images, words, None, image_seq_len=per_tile), "<image>")


def _glm(name: str, kind: str) -> Built:
    images = getattr(model_module(f"{name}.image_processing_pil_{name}"), f"{kind}ImageProcessorPil")()
    words = small_tokenizer("<|begin_of_video|>", "<|end_of_video|>", image_token="<|image|>", video_token="<|video|>")
    processor = without_parts(getattr(model_module(f"{name}.processing_{name}"), f"{kind}Processor"))
    return Built(processor(images, words, None), "<|image|>")


def _paddle() -> Built:
    images = model_module("paddleocr_vl.image_processing_pil_paddleocr_vl").PaddleOCRVLImageProcessorPil()
    processor = model_module("paddleocr_vl.processing_paddleocr_vl").PaddleOCRVLProcessor
    return Built(processor(images, small_tokenizer(image_token="<image>")), "<image>")


def _deepseek_ocr2() -> Built:
    images = model_module("deepseek_ocr2.image_processing_pil_deepseek_ocr2").DeepseekOcr2ImageProcessorPil()
    processor = model_module("deepseek_ocr2.processing_deepseek_ocr2").DeepseekOcr2Processor
    return Built(processor(images, small_tokenizer(image_token="<image>")), "<image>")


def _paligemma(side: int, tokens: int) -> Built:
    images = model_module("siglip.image_processing_pil_siglip").SiglipImageProcessorPil(
        size={"height": side, "width": side}
    )
    images.image_seq_length = tokens
    processor = model_module("paligemma.processing_paligemma").PaliGemmaProcessor
    # Its prompt ends with <bos> and a newline.
    words = small_tokenizer("<bos>", image_token="<image>")
    words.bos_token = "<bos>"
    return Built(processor(images, words), "<image>", around=2)


def _gemma3n() -> Built:
    images = model_module("siglip.image_processing_pil_siglip").SiglipImageProcessorPil(
        size={"height": 768, "width": 768}
    )
    processor = without_parts(model_module("gemma3n.processing_gemma3n").Gemma3nProcessor)
    return Built(processor(None, images, small_tokenizer(**GEMMA, **SOUND)), "<image_soft_token>", around=4)


def _minicpm(name: str, kind: str) -> Built:
    images = model_module("minicpmv4_6.image_processing_pil_minicpmv4_6").MiniCPMV4_6ImageProcessorPil()
    named = {
        f"{what}_{end}_token": f"<{what}_{end}>" for what in ("image", "slice", "image_id") for end in ("start", "end")
    }
    processor = without_parts(getattr(model_module(f"{name}.processing_{name}"), kind))
    video = SimpleNamespace(slice_mode=True, downsample_mode="16x", model_input_names=[])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processor, "check_argument_for_proper_class", lambda *_: None, raising=False)
        return Built(processor(images, video, small_tokenizer(**named, **PAIR)), "<image>", around=5)


BUILDERS: dict[str, Callable[[], Built]] = {
    "qwen3.5": _qwen35,
    "llava-1.5": _llava,
    "llava-next": _llava_next,
    "internvl3.5": _internvl,
    "smolvlm2": partial(_smolvlm2, 1536, 384, 81),
    "smolvlm2-500m": partial(_smolvlm2, 2048, 512, 64),
    "glm-4.1v": partial(_glm, "glm4v", "Glm4v"),
    "glm-4.5v": partial(_glm, "glm4v", "Glm4v"),
    "glm-4.6v": partial(_glm, "glm46v", "Glm46V"),
    "paddleocr-vl": _paddle,
    "deepseek-ocr-2": _deepseek_ocr2,
    "paligemma": partial(_paligemma, 224, 256),
    "paligemma-448": partial(_paligemma, 448, 1024),
    "paligemma-896": partial(_paligemma, 896, 4096),
    "gemma3n": _gemma3n,
    "minicpm-v-4.6": partial(_minicpm, "minicpmv4_6", "MiniCPMV4_6Processor"),
    "minicpm-v-4.7": partial(_minicpm, "minicpmv4_7", "MiniCPMV4_7Processor"),
}


@cache
def _built(name: str) -> Built:
    return BUILDERS[name]()


def _minicpm_size(name: str, width: int, height: int) -> int:
    built, options = _built(name), {"scale_resolution": 448, "patch_size": 14, "downsample_mode": "16x"}
    images = built.processor.image_processor
    grid = images.get_sliced_grid((height, width), 9, 448)
    views = [images.find_best_resize((height, width), allow_upscale=grid is None, **options)]
    if grid is not None:
        h, w = images.get_refine_size((height, width), grid, allow_upscale=True, **options)
        views += [(h // grid[0], w // grid[1])] * (grid[0] * grid[1])
    inputs = {
        "grids": [grid or [0, 0]],
        "num_patches_per_image": [len(views)],
        "target_sizes": numpy.array(views) // 14,
    }
    text = str(built.processor.replace_image_token(inputs, 0, image_token_divisor=16))
    return text.count("<") + text.count("\n") - 2


def _tiles(name: str, width: int, height: int) -> int:
    """SmolVLM2 and DeepSeek-OCR 2: the tiles that the image processor counts, and the text that is written for them."""
    processor = _built(name).processor
    if name == "deepseek-ocr-2":  # its counter takes the whole page's side for the tile's, and cuts small images too
        canvas = model_module("deepseek_ocr2.image_processing_pil_deepseek_ocr2").get_optimal_tiled_canvas
        columns, rows = canvas((height, width), (768, 768), 2, 6) if max(height, width) > 768 else (0, 0)
        local = columns * rows
        return str(processor.replace_image_token({"num_local_patches": [local]}, 0)).count("<")
    _, rows, columns = processor.image_processor.get_number_of_image_patches(height, width)
    return _smolvlm_text(name, rows, columns)


@cache
def _smolvlm_text(name: str, rows: int, columns: int) -> int:
    processor = _built(name).processor
    text = processor.replace_image_token({"rows": [[rows]], "cols": [[columns]]}, 0)
    return len(processor.tokenizer(text)["input_ids"])


def _paddle_size(width: int, height: int) -> int:
    return int(_built("paddleocr-vl").processor.image_processor.get_number_of_image_patches(height, width)) // 4


def _counted(name: str, width: int, height: int) -> int:
    return _built(name).counted(width, height) - (2 if name == "internvl3.5" else 0)


COUNTERS: dict[str, Callable[[int, int], int]] = {
    **{name: partial(_counted, name) for name in BUILDERS},
    **{name: partial(_tiles, name) for name in ("smolvlm2", "smolvlm2-500m", "deepseek-ocr-2")},
    **{name: partial(_minicpm_size, name) for name in ("minicpm-v-4.6", "minicpm-v-4.7")},
    "gemma3n": lambda *_: int(_built("gemma3n").processor.image_seq_length),
    "paddleocr-vl": _paddle_size,
}


@pytest.mark.parametrize("name", COUNTERS)
def test_a_thousand_sizes_count_as_the_processor_counts_them(name: str) -> None:
    chosen = sizes(1000, seed=3)
    theirs = [or_refusal(COUNTERS[name], *size) for size in chosen]
    wrong = [(size, mine(name, *size), n) for size, n in zip(chosen, theirs, strict=True) if mine(name, *size) != n]
    assert wrong == []
    assert theirs.count(None) < 300  # the comparison is of numbers, not of failures


@pytest.mark.parametrize("name", BUILDERS)
def test_whole_processors_write_that_many_tokens(name: str) -> None:
    for width, height in SIZES[:-3] if name == "llava-1.5" else SIZES:  # it enlarges thin images to 235,200 pixels
        assert mine(name, width, height) == or_refusal(_built(name).really, width, height), (width, height)


def test_thin_images_are_refused_by_name() -> None:
    for name, width, height in [("glm-4.6v", 6000, 1), ("paddleocr-vl", 1, 6000)]:
        with pytest.raises(BadInput, match=f"{width}x{height} .*; crop it"):
            count_tokens(name, width, height)
