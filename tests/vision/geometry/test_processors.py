"""Each local family equals its own Hugging Face processor.

The processors are the real classes, built with the numbers of the published checkpoints (the families' sources) and
a tokenizer of a few words. A thousand sizes go through the processors' own size functions, and some through the whole
processor, as images, counting the tokens of the text that comes out. Comments say where a size function is wrong.
"""

import importlib.util
import random
from collections.abc import Callable
from functools import cache, partial

import pytest
from PIL import Image
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
    *[(1, 1), (1, 3), (3, 1), (5, 4), (20, 3), (13, 200), (28, 28), (29, 27), (100, 100), (384, 384), (385, 384)],
    *[(300, 200), (448, 448), (449, 447), (512, 300), (640, 480), (700, 1), (1000, 3), (1000, 750), (1024, 100)],
    *[(364, 1000), (100, 1500), (1540, 28), (1600, 66), (827, 1170), (6000, 200), (6000, 1), (1, 6000)],
]
SPLIT = [f"<row_{i}_col_{j}>" for i in range(1, 7) for j in range(1, 7)]


def _qwen(module: str, name: str, patch: int, least: int, most: int) -> Built:
    size = {"shortest_edge": least, "longest_edge": most}
    images = model_module("qwen2_vl.image_processing_pil_qwen2_vl").Qwen2VLImageProcessorPil(
        patch_size=patch, size=size
    )
    words = small_tokenizer(
        "<|vision_start|>", "<|vision_end|>", image_token="<|image_pad|>", video_token="<|video_pad|>"
    )
    processor = without_parts(getattr(model_module(f"{module}.processing_{module}"), name))
    return Built(processor(images, words, None), "<|image_pad|>")


def _llava() -> Built:
    images = model_module("llava_onevision.image_processing_pil_llava_onevision").LlavaOnevisionImageProcessorPil()
    words = small_tokenizer(image_token="<image>", video_token="<video>")
    processor = without_parts(model_module("llava_onevision.processing_llava_onevision").LlavaOnevisionProcessor)
    return Built(processor(images, words, None, num_image_tokens=729, vision_feature_select_strategy="full"), "<image>")


def _internvl() -> Built:
    size = {"height": 448, "width": 448}
    images = model_module("got_ocr2.image_processing_pil_got_ocr2").GotOcr2ImageProcessorPil(size=size)
    named = {"start_image_token": "<img>", "end_image_token": "</img>", "context_image_token": "<IMG_CONTEXT>"}
    words = small_tokenizer(**named, video_token="<video>")
    processor = without_parts(model_module("internvl.processing_internvl").InternVLProcessor)
    return Built(processor(images, words, None), "<IMG_CONTEXT>", around=2)


def _idefics3() -> Built:
    images = model_module("idefics3.image_processing_pil_idefics3").Idefics3ImageProcessorPil()
    words = small_tokenizer("<fake_token_around_image>", "<image>", "<end_of_utterance>", "<global-img>", *SPLIT)
    return Built(model_module("idefics3.processing_idefics3").Idefics3Processor(images, words), "<image>")


def _smolvlm() -> Built:
    size, tile = {"longest_edge": 2048}, {"longest_edge": 512}
    pil = model_module("smolvlm.image_processing_pil_smolvlm")
    images = pil.SmolVLMImageProcessorPil(size=size, max_image_size=tile)
    specials = ["<fake_token_around_image>", "<end_of_utterance>", "<global-img>", *SPLIT]
    words = small_tokenizer(*specials, image_token="<image>", video_token="<video>")
    module = model_module("smolvlm.processing_smolvlm")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "num2words", module.num2words or str)  # a package for words in video prompts only
        return Built(without_parts(module.SmolVLMProcessor)(images, words, None, image_seq_len=64), "<image>")


def _gemma3() -> Built:
    size = {"height": 896, "width": 896}
    images = model_module("gemma3.image_processing_pil_gemma3").Gemma3ImageProcessorPil(size=size)
    named = {"image_token": "<image_soft_token>", "boi_token": "<start_of_image>", "eoi_token": "<end_of_image>"}
    processor = model_module("gemma3.processing_gemma3").Gemma3Processor(images, small_tokenizer(**named))
    return Built(processor, "<start_of_image>", around=4)


def _gemma4() -> Built:
    images = model_module("gemma4.image_processing_pil_gemma4").Gemma4ImageProcessorPil()
    named = {"image_token": "<|image|>", "boi_token": "<|image>", "eoi_token": "<image|>"}
    sound = {"audio_token": "<|audio|>", "boa_token": "<|audio>", "eoa_token": "<audio|>"}
    processor = without_parts(model_module("gemma4.processing_gemma4").Gemma4Processor)
    return Built(processor(None, images, small_tokenizer(**named, **sound), None), "<|image|>", around=2)


def _pixtral(patch: int, merge: int, edge: int) -> Built:
    pil = model_module("pixtral.image_processing_pil_pixtral")
    with pytest.MonkeyPatch.context() as stub:
        if importlib.util.find_spec("torchvision") is None:  # the module asks for it, though the PIL twin is enough
            stub.setitem(importlib.import_module("sys").modules, f"{pil.__package__}.image_processing_pixtral", pil)
        processor = model_module("pixtral.processing_pixtral").PixtralProcessor
    images = pil.PixtralImageProcessorPil(patch_size=patch, size={"longest_edge": edge})
    words = small_tokenizer("[IMG_BREAK]", "[IMG_END]", image_token="[IMG]")
    return Built(processor(images, words, patch_size=patch, spatial_merge_size=merge), "[IMG]")


BUILDERS: dict[str, Callable[[], Built]] = {
    "qwen2-vl": partial(_qwen, "qwen2_vl", "Qwen2VLProcessor", 14, 3136, 12845056),
    "qwen2.5-vl": partial(_qwen, "qwen2_5_vl", "Qwen2_5_VLProcessor", 14, 3136, 12845056),
    "qwen3-vl": partial(_qwen, "qwen3_vl", "Qwen3VLProcessor", 16, 65536, 16777216),
    "llava-onevision": _llava,
    "internvl": _internvl,
    "idefics3": _idefics3,
    "smolvlm": _smolvlm,
    "gemma3": _gemma3,
    "gemma4": _gemma4,
    "pixtral": partial(_pixtral, 16, 1, 1024),
    "mistral3": partial(_pixtral, 14, 2, 1540),
}


@cache
def _built(name: str) -> Built:
    return BUILDERS[name]()


def _by_size(name: str, width: int, height: int) -> int:
    """What the processor's own size functions say."""
    built = _built(name)
    if name == "smolvlm":  # it has no counter: the tiles that it cuts, and the text that it writes for them
        _, rows, columns = built.processor.image_processor.get_number_of_image_patches(height, width)
        return _smolvlm_text(rows, columns)
    if name in {"pixtral", "mistral3"}:  # its counter takes images 1 or 3 pixels high for channels-first ones
        processor = built.processor
        patch = processor.patch_size * processor.spatial_merge_size
        image = numpy.broadcast_to(numpy.uint8(0), (3, height, width))
        size = model_module("pixtral.image_processing_pil_pixtral").get_resize_output_image_size(
            image, processor.image_processor.size["longest_edge"], patch, "channels_first"
        )
        if 0 in size:
            raise ValueError("no image can be resized to nothing; see test_thin_images_break_the_whole_processor")
        return str(processor.replace_image_token({"image_sizes": [size]}, 0)).count("[")
    return built.counted(width, height) - (built.around if name == "internvl" else 0)


@cache
def _smolvlm_text(rows: int, columns: int) -> int:
    processor = _built("smolvlm").processor
    text = processor.replace_image_token({"rows": [[rows]], "cols": [[columns]]}, 0)
    return len(processor.tokenizer(text)["input_ids"])


@pytest.mark.parametrize("name", BUILDERS)
def test_a_thousand_sizes_count_as_the_processor_counts_them(name: str) -> None:
    chosen = sizes(1000, seed=3)
    theirs = [or_refusal(partial(_by_size, name), *size) for size in chosen]
    assert [mine(name, *size) for size in chosen] == theirs
    assert theirs.count(None) < 300  # the comparison is of numbers, not of failures


@pytest.mark.parametrize("name", BUILDERS)
def test_whole_processors_write_that_many_tokens(name: str) -> None:
    for width, height in SIZES:
        theirs = or_refusal(_built(name).really, width, height)
        assert mine(name, width, height) == theirs, (width, height)


def test_thin_images_break_the_whole_processor_and_are_refused_by_name() -> None:
    for name, width, height in [
        ("qwen2.5-vl", 6000, 20),
        ("qwen3-vl", 20, 6000),
        ("pixtral", 6000, 2),
        ("pixtral", 2, 6000),
        ("mistral3", 1, 6000),
    ]:
        assert or_refusal(_built(name).really, width, height) is None
        with pytest.raises(BadInput, match=f"{width}x{height} .*; crop it"):
            count_tokens(name, width, height)


def test_qwen_bounds_are_those_of_the_processor_call() -> None:
    built, generator = _built("qwen2.5-vl"), random.Random(5)
    for width, height in sizes(300, seed=4):
        bounds = {"min_pixels": generator.randint(1, 300_000), "max_pixels": generator.randint(784, 3_000_000)}
        theirs = or_refusal(partial(built.counted, **bounds), width, height)
        assert or_refusal(partial(count_tokens, "qwen2.5-vl", **bounds), width, height) == theirs
    size = {"shortest_edge": 3136, "longest_edge": 576 * 784}
    out = built.processor(text=[built.image], images=[Image.new("RGB", (1654, 2339))], size=size)
    assert len(out["input_ids"][0]) == count_tokens("qwen2.5-vl", 1654, 2339, max_pixels=576 * 784) == 560


def test_pixtrals_own_counter_is_wrong_for_images_three_pixels_high() -> None:
    """Why the size function is used above. When this fails, transformers has fixed its counter."""
    built = _built("pixtral")
    assert (built.counted(1000, 3), built.really(1000, 3)) == (126, 64)
    assert count_tokens("pixtral", 1000, 3) == 64
