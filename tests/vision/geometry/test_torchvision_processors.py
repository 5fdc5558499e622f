"""Local families whose processors need torchvision equal their own size arithmetic.

Where torchvision is missing, the modules are imported with an empty one in its place, and only their size arithmetic
runs, which does not use it.
"""

import importlib.util
import sys
from collections.abc import Callable
from functools import cache
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from tests.vision.geometry.processors import mine, model_module, or_refusal, sizes
from tests.vision.geometry.test_more_processors import COUNTERS as MORE
from tests.vision.geometry.test_processors import BUILDERS

from stakes.errors import BadInput
from stakes.vision.geometry import count_tokens, families

pytest.importorskip("transformers")


@cache
def _without_torchvision(name: str) -> Any:
    """A module that imports torchvision's functions for pixels; its sizes need none of them."""
    with pytest.MonkeyPatch.context() as stub:
        if importlib.util.find_spec("torchvision") is None:
            for part in ("torchvision", "torchvision.transforms", "torchvision.transforms.v2"):
                stub.setitem(sys.modules, part, ModuleType(part))
            functional = SimpleNamespace(resize=lambda image, _: image, pad=lambda image, *_, **__: image)
            sys.modules["torchvision.transforms.v2"].functional = functional  # type: ignore[attr-defined]
        return model_module(name)


def _llama4(width: int, height: int) -> int:
    torch, llama4 = importlib.import_module("torch"), _without_torchvision("llama4.image_processing_llama4")
    size = importlib.import_module("transformers.image_utils").SizeDict(height=336, width=336)
    canvases = torch.tensor(llama4.find_supported_resolutions(max_num_chunks=16, patch_size=size))
    canvas = llama4.get_best_fit((height, width), canvases)
    processor = model_module("llama4.processing_llama4").Llama4Processor
    text = processor._prompt_split_image(None, [int(side) // 336 for side in canvas], (336 // 14) ** 2 // 4)
    return str(text).count("<|") - 2


def _phi4(width: int, height: int) -> int:
    torch, phi4 = (
        importlib.import_module("torch"),
        _without_torchvision("phi4_multimodal.image_processing_phi4_multimodal"),
    )
    processor = object.__new__(phi4.Phi4MultimodalImageProcessor)
    image = torch.zeros(1).expand(3, height, width)
    _, mask = processor.dynamic_preprocess(image, 448, 14, 32)
    shown = mask[0::2, 0::2]  # tiles have an even number of patches, so that this is every tile's own [0::2, 0::2]
    return 256 + 1 + int(shown.sum()) + int(shown[:, 0].sum()) + 16


def _lfm2(width: int, height: int) -> int:
    module = _without_torchvision("lfm2_vl.image_processing_lfm2_vl")
    images = object.__new__(module.Lfm2VlImageProcessor)
    numbers = {"max_image_tokens": 256, "encoder_patch_size": 16, "downsample_factor": 2}
    w, h = images.smart_resize(height, width, min_image_tokens=64, **numbers)
    columns = rows = 1
    if images._is_image_too_large(height, width, max_pixels_tolerance=2.0, **numbers):
        columns, rows, *_ = images._get_grid_layout(height, width, min_tiles=2, max_tiles=10, tile_size=512)
    processor = model_module("lfm2_vl.processing_lfm2_vl").Lfm2VlProcessor
    named = {"image_start_token": "<s>", "image_end_token": "<e>", "image_thumbnail_token": "<t>", "image_token": "<i>"}
    self = SimpleNamespace(**named)
    one = processor._compute_tokens_per_tile(self, 512, 16, 2)
    whole = processor._compute_tokens_for_image(self, [h, w], 16, 2)
    return str(processor._build_image_tokens(self, rows, columns, one, whole, True, True)).count("<") - 2


def _kimi(width: int, height: int) -> int:
    module = _without_torchvision("kimi_k25.image_processing_kimi_k25")
    images = object.__new__(module.Kimi_K25ImageProcessor)
    return int(images.get_number_of_image_patches(height, width)) // 4


COUNTERS: dict[str, Callable[[int, int], int]] = {
    "llama4": _llama4,
    "phi-4-multimodal": _phi4,
    "lfm2-vl": _lfm2,
    "kimi-k2.5": _kimi,
}


@pytest.mark.parametrize("name", COUNTERS)
def test_a_thousand_sizes_count_as_the_processors_arithmetic(name: str) -> None:
    chosen = sizes(1000, seed=3)
    theirs = [or_refusal(COUNTERS[name], *size) for size in chosen]
    assert [mine(name, *size) for size in chosen] == theirs
    assert theirs.count(None) < 300  # the comparison is of numbers, not of failures


def test_phi4_refuses_thin_images_by_name() -> None:
    with pytest.raises(BadInput, match="6000x2 .*; crop it"):
        count_tokens("phi-4-multimodal", 6000, 2)


def test_every_family_is_compared_with_its_processor_or_marked() -> None:
    """``reader-llava`` is this project's own; its model is tested with it."""
    compared = {*COUNTERS, *MORE, *BUILDERS, "reader-llava"}
    assert {name for name, one in families().items() if not one.documented} == compared
