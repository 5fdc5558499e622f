"""The attention that VisionZip reads is the encoder's own, in reading order."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch
from tests.models.tiny import FAMILIES, picture, tiny

from stakes.models.fast.vision_encoder import windows_by_size


@pytest.mark.parametrize("size", [(150, 120), (260, 130)])
@torch.inference_mode()
def test_qwen2_5_reading_order_undoes_the_window_order(size: tuple[int, int]) -> None:
    """Each merged token's own position factors, caught in encoder order, come back in reading order."""
    model: Any = tiny("qwen2_5_vl")
    caught: dict[str, Any] = {}
    handle = model.model.model.visual.blocks[0].attn.register_forward_pre_hook(
        lambda _, args, kwargs: caught.update(kwargs), with_kwargs=True
    )
    try:
        encoded = model.encode(picture(*size), exact=False, attention=False)
    finally:
        handle.remove()
    rows, columns = encoded.grid[1] // 2, encoded.grid[2] // 2
    assert max(rows, columns) > 2, "one window would show nothing"
    sines = caught["position_embeddings"][1].view(rows * columns, 4, -1)[:, 0]  # the group's upper left patch
    inverse = model.model.model.visual.rotary_pos_emb.inv_freq
    half = len(inverse)
    read = sines[windows_by_size(model.model.model.visual, [encoded.grid])["window_index"].argsort()]
    where = torch.arange(rows * columns)
    expected = torch.cat(
        (torch.sin(2 * (where // columns)[:, None] * inverse), torch.sin(2 * (where % columns)[:, None] * inverse)), 1
    )
    torch.testing.assert_close(read[:, : 2 * half], expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
@torch.inference_mode()
def test_attention_received_equals_the_weights_of_an_eager_encoder(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model: Any = tiny(family, "eager")
    image = picture(150, 120)
    if family == "llava_onevision":
        module, merge = model._block.self_attn, 1
    else:
        blocks = model.model.model.visual.blocks
        module, merge = blocks[1 if family == "qwen2_5_vl" else -2].attn, 4
    inner = sys.modules[type(module).__module__]
    caught: list[torch.Tensor] = []
    stock = inner.eager_attention_forward

    def spy(owner: Any, *args: Any, **kwargs: Any) -> Any:
        out, weights = stock(owner, *args, **kwargs)
        if owner is module:
            caught.append(weights)
        return out, weights

    monkeypatch.setattr(inner, "eager_attention_forward", spy)
    encoded = model.encode(image, exact=False, attention=True)
    weights = torch.cat(caught)  # [tiles or 1, H, P, P]
    received = weights.mean((1, 2)).view(-1, merge).mean(1)
    if family == "llava_onevision":
        base = received[: weights.shape[-1]]
        torch.testing.assert_close(encoded.received[: len(base)], base, atol=1e-6, rtol=1e-4)
        assert (encoded.received == 0).sum() == len(
            encoded.features[(encoded.features == model.model.model.image_newline).all(1)]
        )
    else:
        order = windows_by_size(model.model.model.visual, [encoded.grid]).get(
            "window_index", torch.arange(len(received))
        )
        torch.testing.assert_close(encoded.received, received[order.argsort()], atol=1e-6, rtol=1e-4)
        torch.testing.assert_close(encoded.received.sum() * merge, torch.tensor(1.0))
    assert encoded.keys.shape[0] == len(encoded.features)
