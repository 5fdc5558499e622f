"""The fast encoder and the patch table give what the stock encoder and processor give."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tests.models.tiny import FAMILIES, image_processor, picture, tiny

from stakes.models.fast.patches import learn_patch_table, to_patch_order
from stakes.models.fast.vision_encoder import (
    accepts_one_frame,
    embed_patches,
    fast_encoder,
    window_indices,
    windows_by_size,
)

QWEN = FAMILIES[:3]
SIZES = [(150, 120), (260, 130), (64, 300), (224, 224)]


def stock(model: Any, image: Image.Image) -> tuple[Any, Any]:
    inputs = model.processor.images(images=[image], return_tensors="pt")
    return inputs["pixel_values"], inputs["image_grid_thw"]


def double(family: str) -> Any:
    model = tiny(family)
    return replace(model, model=deepcopy(model.model).double())


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("family", QWEN)
@torch.inference_mode()
def test_the_fast_encoder_gives_the_features_of_the_stock_one(family: str, size: tuple[int, int]) -> None:
    for model, tolerance in ((tiny(family), 1e-5), (double(family), 1e-7)):
        image = picture(*size)
        expected = model.model.model.get_image_features(*stock(model, image), return_dict=True)
        found = model.encode(image, exact=False, attention=False)
        scale = float(expected.pooler_output[0].abs().max())
        torch.testing.assert_close(found.features, expected.pooler_output[0], atol=tolerance * scale, rtol=tolerance)
        levels = getattr(expected, "deepstack_features", None) or []
        assert len(found.deepstack) == len(levels)
        for one, (other,) in zip(found.deepstack, levels, strict=True):
            torch.testing.assert_close(one, other, atol=tolerance * float(other.abs().max()), rtol=tolerance)


@pytest.mark.parametrize("family", QWEN)
@torch.inference_mode()
def test_one_frame_is_as_close_to_the_truth_as_the_stock_convolution(family: str) -> None:
    module = tiny(family).model.model.visual.patch_embed
    pixels, _ = stock(tiny(family), picture(150, 120))
    one = pixels.view(len(pixels), 3, 2, -1)[:, :, 0].reshape(len(pixels), -1)
    truth = deepcopy(module).double()(pixels.double())
    error = (module(pixels).double() - truth).abs().max()
    for ours in (embed_patches(module, one), embed_patches(module, pixels)):
        assert (ours.double() - truth).abs().max() <= max(error, 1e-5)
    wrong = embed_patches(module, one.flip(0))
    assert (wrong.double() - truth).abs().max() > 1


@torch.inference_mode()
def test_in_16_bits_one_frame_equals_two() -> None:
    module = deepcopy(tiny("qwen2_5_vl").model.model.visual.patch_embed).bfloat16()
    pixels, _ = stock(tiny("qwen2_5_vl"), picture(150, 120))
    one = pixels.view(len(pixels), 3, 2, -1)[:, :, 0].reshape(len(pixels), -1)
    assert torch.equal(embed_patches(module, one), embed_patches(module, pixels))


@pytest.mark.parametrize("family", QWEN)
def test_patches_equal_the_processors_bit_for_bit(family: str) -> None:
    processor = image_processor(family)
    table = learn_patch_table(processor)
    assert table is not None
    side = table.side
    for columns, rows in ((3, 4), (1, 7), (9, 2)):
        image = picture(columns * side, rows * side, seed=rows)
        size = {"shortest_edge": 1, "longest_edge": image.width * image.height}
        inputs = processor(images=[image], return_tensors="pt", size=size)
        found = table.patchify(image, exact=True)
        assert found is not None
        twice = found.view(len(found), 3, 1, -1).expand(-1, -1, 2, -1).reshape(len(found), -1)
        assert torch.equal(twice, inputs["pixel_values"])
        assert list(table.grid(image)) == inputs["image_grid_thw"][0].tolist()


def test_the_table_refuses_an_image_that_the_processor_would_resize() -> None:
    table = learn_patch_table(image_processor("qwen2_5_vl"))
    assert table is not None
    assert table.patchify(picture(57, 56), exact=True) is None
    assert table.patchify(picture(28, 56), exact=False) is None, "below the smallest size"
    assert table.patchify(picture(28, 56), exact=True) is not None
    assert table.patchify(picture(28 * 11, 280), exact=False) is None, "above the largest"
    assert table.patchify(picture(280, 280), exact=False) is not None
    assert table.patchify(picture(56, 56).convert("L"), exact=True) is None


def test_a_processor_that_is_no_table_is_run_every_time() -> None:
    class Brighter:
        """Like the stock one, but the whole image decides."""

        patch_size, merge_size, temporal_patch_size = 14, 2, 2
        size = image_processor("qwen2_5_vl").size

        def __call__(self, **options: Any) -> Any:
            found = image_processor("qwen2_5_vl")(**options)
            found["pixel_values"] += np.asarray(options["images"][0]).mean() / 255
            return found

    assert learn_patch_table(Brighter()) is None
    assert learn_patch_table(image_processor("llava_onevision")) is None
    model = tiny("qwen2_5_vl")
    odd = replace(model, processor=replace(model.processor, images=Brighter()))
    page = picture(112, 112)
    with torch.inference_mode():
        expected = odd.model.model.get_image_features(*stock(odd, page), return_dict=True).pooler_output[0]
        found = odd.encode(page, exact=False, attention=False).features
        assert (model.encode(page, exact=False, attention=False).features - found).abs().max() > 0.01
    torch.testing.assert_close(found, expected, atol=1e-5 * float(expected.abs().max()), rtol=1e-5)


def test_patch_order_puts_the_patches_of_a_token_together() -> None:
    page = np.arange(4 * 8 * 3, dtype=np.uint8).reshape(4, 8, 3)
    parts = to_patch_order(torch.from_numpy(page)[None], 2, 2)  # 1 x 2 tokens of 2 x 2 patches of 2 x 2 pixels
    assert parts.shape == (8, 3, 4)
    red = page[:, :, 0]
    assert parts[1, 0].tolist() == red[0:2, 2:4].ravel().tolist()
    assert parts[2, 0].tolist() == red[2:4, 0:2].ravel().tolist()
    assert parts[4, 0].tolist() == red[0:2, 4:6].ravel().tolist()


@torch.inference_mode()
def test_windows_are_the_stock_ones_with_equal_sizes_next_to_each_other() -> None:
    from transformers.vision_utils import get_vision_window_index

    visual = tiny("qwen2_5_vl").model.model.visual
    for grid in ([1, 6, 10], [1, 4, 4], [1, 14, 6]):
        index, ends = get_vision_window_index(torch.tensor([grid]), 2, visual.window_size, visual.patch_size)
        expected = torch.split(index, (ends.diff() // 4).tolist())
        found = window_indices(visual, [grid])
        assert sorted(window.tolist() for window in found) == sorted(window.tolist() for window in expected)
        lengths = [len(window) for window in found]
        assert lengths == sorted(lengths, reverse=True)
        passed = windows_by_size(visual, [grid])
        assert passed["cu_window_seqlens"].diff().tolist() == [4 * n for n in lengths]
    assert windows_by_size(tiny("qwen3_vl").model.model.visual, [[1, 6, 10]]) == {}


@torch.inference_mode()
def test_windows_of_one_size_take_one_attention_call(monkeypatch: pytest.MonkeyPatch) -> None:
    model: Any = tiny("qwen2_5_vl")
    calls: list[tuple[int, ...]] = []
    inner = torch.nn.functional.scaled_dot_product_attention

    def spy(query: Any, *args: Any, **kwargs: Any) -> Any:
        calls.append(tuple(query.shape))
        return inner(query, *args, **kwargs)

    monkeypatch.setattr("stakes.models.fast.vision_encoder.scaled_dot_product_attention", spy)
    model.encode(picture(140, 140), exact=False, attention=False)  # 5 x 5 tokens in windows of 2 x 2
    assert [shape[0] for shape in calls] == [4, 4, 1, 1, 4, 4, 1]


def test_the_model_is_unchanged_after_the_block_also_after_an_error() -> None:
    visual = tiny("qwen2_5_vl").model.model.visual
    modules = [visual.patch_embed, *(block.attn for block in visual.blocks)]

    def fails() -> None:
        with fast_encoder(visual):
            assert all("forward" in module.__dict__ for module in modules)
            assert not accepts_one_frame(visual)
            with fast_encoder(visual):
                pass
            assert all("forward" in module.__dict__ for module in modules), "an inner block undid the outer one"
            raise KeyError

    with pytest.raises(KeyError):
        fails()
    assert not any("forward" in module.__dict__ for module in modules)
    assert accepts_one_frame(visual)


def test_an_attention_that_is_not_sdpa_is_not_changed() -> None:
    visual = tiny("qwen2_5_vl", "eager").model.model.visual
    with fast_encoder(visual):
        assert "forward" in visual.patch_embed.__dict__
        assert not any("forward" in block.attn.__dict__ for block in visual.blocks)
