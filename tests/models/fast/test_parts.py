"""The parts of the fast path: when it is used, and what its encoder, weights, buckets and cache guarantee."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any, cast

import pytest
import torch
from tests.models.fast.captured import CAPTURABLE, FakeGraphs, fresh, requests
from tests.models.tiny import FAMILIES, image_processor, picture, tiny

from stakes.errors import BadInput
from stakes.models.fast import torch_ops
from stakes.models.fast.decoder import FastDecoder
from stakes.models.fast.layers import fuse, supports
from stakes.models.fast.state import StaticCache, column_bucket, pack_varlen, pad_to_bucket, row_bucket, token_bucket
from stakes.models.fast.vision_packed import PackedEncoder
from stakes.models.local.image_cache import EncodedCache
from stakes.vision.deletion.exact import pack


@torch.inference_mode()
def test_a_captured_encoder_sees_the_image_that_it_is_given() -> None:
    visual = tiny("qwen2_5_vl").model.model.visual
    encoder = PackedEncoder(visual, CAPTURABLE)
    encoder.graphs = cast(Any, FakeGraphs())
    encoder.graphs.device = torch.device("cpu")
    for seed in range(3):
        seen = image_processor("qwen2_5_vl")(images=[picture(150, 120, seed)], return_tensors="pt")
        shapes = [tuple(row) for row in seen["image_grid_thw"].tolist()]
        expected = PackedEncoder(visual)(seen["pixel_values"], shapes)
        torch.testing.assert_close(encoder(seen["pixel_values"], shapes), expected)
    assert len(encoder.graphs.works) == 1  # type: ignore[attr-defined]


@pytest.mark.parametrize("count", [1, 4])
@torch.inference_mode()
def test_images_encoded_in_one_call_have_the_stock_encoders_features(count: int) -> None:
    model = tiny("qwen2_5_vl")
    pages = [picture(*size, seed=i) for i, size in enumerate([(150, 120), (260, 130), (64, 300), (224, 224)][:count])]
    inputs = model.processor.images(images=pages, return_tensors="pt")
    pixels, grid = inputs["pixel_values"], inputs["image_grid_thw"]
    expected = torch.cat(model.model.model.get_image_features(pixels, grid, return_dict=True).pooler_output)
    near: dict[str, Any] = {"atol": 1e-5 * float(expected.abs().max()), "rtol": 1e-5}
    visual = model.model.model.visual
    shapes = [tuple(row) for row in grid.tolist()]
    torch.testing.assert_close(PackedEncoder(visual)(pixels, shapes), expected, **near)
    encoded = fresh("qwen2_5_vl", fast=True).encode_many(pages, [False] * count)
    torch.testing.assert_close(torch.cat([one.features for one in encoded]), expected, **near)
    wrong = PackedEncoder(visual)(pixels, [(t, w, h) for t, h, w in shapes])
    assert (wrong - expected).abs().max() > 1e-3, "features that ignore the sizes prove nothing"


def test_an_unsupported_encoder_uses_the_stock_path() -> None:
    for family in ("qwen2_vl", "qwen3_vl"):
        assert not PackedEncoder.supports(tiny(family).model.model.visual)
    assert PackedEncoder.supports(tiny("qwen2_5_vl").model.model.visual)


def test_unsupported_layers_use_the_stock_loop() -> None:
    assert all(FastDecoder.supports(tiny(family).model) for family in FAMILIES)
    model = deepcopy(tiny("qwen2_5_vl").model)
    layer = model.model.language_model.layers[1]
    layer.mlp.act_fn = torch.nn.GELU()
    assert not supports(model.model.language_model)
    layer.mlp.act_fn = torch.nn.SiLU()
    assert supports(model.model.language_model)
    layer.extra_norm = torch.nn.Identity()
    assert not supports(model.model.language_model)


def test_on_a_cpu_the_fast_path_is_used_only_on_request() -> None:
    assert replace(tiny("qwen2_5_vl"), fast=None).fast_decoder is None
    assert fresh("qwen2_5_vl", fast=True).fast_decoder is not None


def test_a_model_that_moves_rebuilds_its_fast_path() -> None:
    model = fresh("qwen2_5_vl", fast=True)
    before = model.answer(requests(1, None, "resolution"))[0].text
    decoder, encoder = model.fast_decoder, vars(model)["_encoder"]
    model.reset_fast_path()
    model.cache = EncodedCache()
    assert model.answer(requests(1, None, "resolution"))[0].text == before
    assert model.fast_decoder is not decoder
    assert vars(model)["_encoder"] is not encoder


def test_fused_parameters_are_not_copied_again() -> None:
    whole = torch.arange(24.0).view(6, 4)
    parts = [torch.nn.Parameter(part) for part in (whole[:2], whole[2:3], whole[3:])]
    again = fuse(parts)
    assert again.data_ptr() == whole.data_ptr()
    assert torch.equal(again, whole)
    copied = fuse([parts[0], parts[2]])
    assert torch.equal(copied, torch.cat((whole[:2], whole[3:])))
    assert copied.data_ptr() != whole.data_ptr()


@torch.inference_mode()
def test_padded_prompts_fill_the_bucket_and_only_the_spare_row() -> None:
    model = fresh("qwen2_5_vl", fast=False)
    batch = pack([model.prepare(one).prompt for one in requests(3, 5, "deletion")])
    lengths = batch.mask.sum(1).tolist()
    rotary = model.model.model.language_model.rotary_emb
    prompts = pack_varlen(batch, lengths, 4, lambda positions: rotary(batch.embeds, positions))
    size = token_bucket(sum(lengths))
    padded = pad_to_bucket(prompts, 4, 256, size)
    cu_seqlens = padded.segments.cu_seqlens
    assert len(padded.embeds) == size == cu_seqlens[-1] == sum(padded.segments.lengths)
    assert cu_seqlens.diff().tolist() == padded.segments.lengths
    assert set(padded.where[0][sum(lengths) :].tolist()) == {4}
    assert padded.last[:3].tolist() == [sum(lengths[: i + 1]) - 1 for i in range(3)]


@pytest.mark.parametrize("count", [1, 63, 64, 65, 1000, 1025, 4096, 31_104])
def test_buckets_hold_what_they_are_for_and_little_more(count: int) -> None:
    assert count <= token_bucket(count) <= max(64, count * 1.125 + 64)
    assert count <= column_bucket(count) < count + 256
    assert count <= row_bucket(count) < max(2, 2 * count)


def test_decode_attention_ignores_columns_behind_the_end() -> None:
    torch.manual_seed(0)
    query, keys, values = torch.randn(2, 4, 8), torch.randn(2, 16, 2, 8), torch.randn(2, 16, 2, 8)
    lengths = torch.tensor([5, 16])
    out = torch_ops.decode_attention(query, keys, values, lengths, 0.3)
    for row, length in enumerate(lengths.tolist()):
        for head in range(4):
            weights = (keys[row, :length, head // 2] @ query[row, head] * 0.3).softmax(0)
            torch.testing.assert_close(out[row, head], weights @ values[row, :length, head // 2])


def test_a_loaded_cache_layer_has_no_padding() -> None:
    cache = StaticCache.make(1, 2, 6, 1, torch.zeros(1), 1)
    valid = torch.tensor([[False, True, False, True], [True, True, True, True]])
    values = torch.arange(8.0).view(2, 1, 4, 1)
    cache.load_layer(0, values, values + 10, valid)
    assert cache.lengths.tolist() == [[2, 4]]
    assert cache.keys[0, 0, :2, 0, 0].tolist() == [1, 3]
    assert cache.values[0, 1, :4, 0, 0].tolist() == [14, 15, 16, 17]


def test_features_ranked_ahead_are_checked() -> None:
    """Images of a call are ranked together; features that are not finite are refused there too."""
    model = fresh("qwen2_5_vl", fast=True)
    encode = model.encode_many

    def damaged(*pages: Any) -> Any:
        encoded = encode(*pages)
        encoded[-1].features[3, 3] = float("nan")
        return encoded

    vars(model)["encode_many"] = damaged
    with pytest.raises(BadInput, match="selector 'redundancy' cannot rank tokens whose features are not all finite"):
        model.answer(requests(3, 5, "deletion"))
    assert not any(image.rankings for image in model.cache._images.values())
