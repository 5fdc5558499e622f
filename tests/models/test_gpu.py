"""On a real GPU: kernels say what their references say, the greedy order is exact, and tokens are stock's.

python -m pytest tests/models/test_gpu.py          # one CUDA GPU; skips without
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tests.models.recorded import QUESTIONS, requests
from tests.models.tiny import FAMILIES, stock_inputs, tiny
from torch import Tensor

from stakes.errors import BadInput
from stakes.models import Request
from stakes.models.fast import torch_ops as plain_ops
from stakes.models.fast.cuda_graphs import Graphs
from stakes.models.fast.decoder import FastDecoder
from stakes.models.fast.ops import chosen
from stakes.models.local.image_cache import EncodedCache
from stakes.models.local.vlm import LocalVLM
from stakes.vision.selectors import redundancy as reference
from stakes.vision.selectors.base import Scene
from stakes.vision.selectors.redundancy import Redundancy

DEVICE = torch.device("cuda")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
D, HEADS, KEY_HEADS, HEAD, W = 3584, 28, 4, 128, 18944  # of the 7B model
KINDS = [(torch.float32, 1e-5), (torch.bfloat16, 1e-2)]


def far(found: Tensor, truth: Tensor) -> float:
    """Relative, by norm."""
    return float((found.double() - truth.double()).norm() / truth.double().norm())


def drawn(*shape: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(*shape, device=DEVICE, dtype=dtype)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("rows", [1, 3, 32, 1000])
@pytest.mark.parametrize(("dtype", "error"), KINDS)
def test_operations_between_products_are_the_plain_ones(dtype: torch.dtype, error: float, rows: int) -> None:
    """Against plain torch in float64; what rounds a factor to its own kind, against plain torch in that kind."""
    ops = chosen(DEVICE)
    x, more, weight, both = (drawn(*shape, dtype=dtype) for shape in ((rows, D), (rows, D), (D,), (rows, 2 * W)))
    wide = plain_ops.add_norm(x.double(), more.double(), weight.double(), 1e-6)
    found = ops.add_norm(x, more, weight, 1e-6)
    assert max(far(*pair) for pair in zip(found, wide, strict=True)) < error
    assert far(ops.norm(x, weight, 1e-6), plain_ops.norm(x.double(), weight.double(), 1e-6)) < error
    assert far(ops.gated(both), plain_ops.gated(both.double())) < error
    widths = [HEADS * HEAD, KEY_HEADS * HEAD, KEY_HEADS * HEAD]
    query, key, value = (
        part.view(rows, -1, HEAD) for part in torch.split(drawn(rows, sum(widths), dtype=dtype), widths, -1)
    )
    cos, sin = drawn(rows, HEAD, dtype=dtype), drawn(rows, HEAD, dtype=dtype)
    where = torch.arange(rows, device=DEVICE) % 4, torch.arange(rows, device=DEVICE)
    ours, theirs = ([drawn(4, 1024, KEY_HEADS, HEAD, dtype=dtype).zero_() for _ in range(2)] for _ in range(2))
    one = ops.place(query, key, value, cos, sin, tuple(ours), *where)
    other = plain_ops.place(query, key, value, cos, sin, (theirs[0], theirs[1]), *where)
    assert max(far(*pair) for pair in zip([*one, *ours], [*other, *theirs], strict=True)) < error
    factors = cos.float(), sin.float()
    assert far(ops.turn(query, *factors), plain_ops.turn(query, *factors)) < error


@pytest.mark.parametrize("rows", [1, 3, 32])
@pytest.mark.parametrize(("dtype", "error"), KINDS)
def test_a_decoding_step_attends_and_multiplies_as_plain_torch(dtype: torch.dtype, error: float, rows: int) -> None:
    ops = chosen(DEVICE)
    query = drawn(rows, HEADS, HEAD, dtype=dtype)
    keys, values = (drawn(rows + 1, 1280, KEY_HEADS, HEAD, dtype=dtype)[:-1] for _ in range(2))
    lengths = torch.randint(1, 1280, (rows,), device=DEVICE, dtype=torch.int32)
    truth = plain_ops.attend_cached(query.double(), keys.double(), values.double(), lengths, 0.1)
    assert far(ops.attend_cached(query, keys, values, lengths, 0.1), truth) < error
    x, weight, bias = drawn(rows, D, dtype=dtype), drawn(520, D, dtype=dtype), drawn(520, dtype=dtype)
    truth = plain_ops.few_rows(x.double(), weight.double(), bias.double())
    assert far(ops.few_rows(x, weight, bias), truth) < error


@pytest.mark.parametrize(("heads", "key_heads", "head", "causal"), [(28, 4, 128, True), (16, 16, 80, False)])
def test_packed_attention_keeps_sequences_apart(heads: int, key_heads: int, head: int, causal: bool) -> None:
    lengths = [700, 1, 0, 299]
    ends = torch.tensor([0, 700, 701, 701, 1000], device=DEVICE, dtype=torch.int32)
    three = [drawn(1000, n, head, dtype=torch.bfloat16) for n in (heads, key_heads, key_heads)]
    query, key, value = (x.double() for x in three)
    truth = plain_ops.attend_packed(query, key, value, ends, lengths, 1024, 0.09, causal)
    assert far(chosen(DEVICE).attend_packed(*three, ends, lengths, 1024, 0.09, causal), truth) < 1e-2


def encoder_states(
    lengths: list[int], dtype: torch.dtype = torch.bfloat16
) -> tuple[tuple[Tensor, Tensor, Tensor], Tensor]:
    """Queries, keys and values of a 7B model's encoder, [S, 16, 80] in its own strides, and their ends."""
    turned, states = drawn(sum(lengths), 32, 80, dtype=dtype), drawn(sum(lengths), 3, 16, 80, dtype=dtype)
    ends = torch.tensor([0, *np.cumsum(lengths).tolist()], device=DEVICE, dtype=torch.int32)
    return (turned[:, :16], turned[:, 16:], states[:, 2]), ends


def cudnn_first() -> None:
    if torch.cuda.get_device_capability() not in plain_ops.CUDNN_FIRST:
        pytest.skip("this GPU's whole images go to flash attention")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("lengths", [[3888] * 5, [1296] * 13, [516] * 32])
@torch.inference_mode()
def test_images_of_one_size_are_as_near_to_the_truth_as_by_flash(
    lengths: list[int], dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    cudnn_first()
    monkeypatch.setattr(plain_ops, "AGAIN", 0)
    three, ends = encoder_states(lengths, dtype)
    more: Any = (ends, lengths, lengths[0], 80**-0.5, False)
    query, key, value = (x.float() for x in three)
    truth = plain_ops.attend_packed(query, key, value, *more)
    alike = plain_ops.attend_alike(*three, len(lengths), 80**-0.5)
    assert alike is not None, plain_ops._refused
    found = plain_ops.attend_packed(*three, *more)
    assert torch.equal(found, alike)
    assert found.is_contiguous()
    monkeypatch.setattr(plain_ops, "LONG", 1 << 30)
    assert far(found, truth) <= 1.5 * far(plain_ops.attend_packed(*three, *more), truth)


@pytest.mark.parametrize("lengths", [[1296, 1292], [516, 3888, 516], [64] * 20])
def test_images_of_several_sizes_and_windows_are_seen_apart(lengths: list[int]) -> None:
    three, ends = encoder_states(lengths)
    query, key, value = (x.float() for x in three)
    truth = plain_ops.attend_packed(query, key, value, ends, lengths, max(lengths), 80**-0.5, False)
    assert far(plain_ops.attend_packed(*three, ends, lengths, max(lengths), 80**-0.5, False), truth) < 1e-2


@torch.inference_mode()
def test_images_of_one_size_come_to_cudnn_in_time_and_wait_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    cudnn_first()
    monkeypatch.setattr(plain_ops, "_come", Counter())
    three, ends = encoder_states([1300] * 13)
    more: Any = (ends, [1300] * 13, 1300, 80**-0.5, False)
    first = plain_ops.attend_packed(*three, *more)
    for _ in range(plain_ops.AGAIN - 1):
        assert torch.equal(plain_ops.attend_packed(*three, *more), first)
    later = plain_ops.attend_packed(*three, *more)
    assert torch.equal(later, plain_ops.attend_alike(*three, 13, 80**-0.5))  # type: ignore[arg-type]
    assert far(later, first) < 1e-2
    assert not plain_ops._refused
    assert waits(lambda: plain_ops.attend_packed(*three, *more)) == 0


@torch.inference_mode()
def test_records_are_made_again_when_all_were_forgotten() -> None:
    """A pool of memory goes with the last record in it, and torch refuses to record into it."""
    graphs, x = Graphs(DEVICE), drawn(64, 64, dtype=torch.float32)

    def clear() -> None:
        x.zero_()

    for _ in range(2):
        graphs.ready("one", lambda: x.add_(1), clear)
        x.zero_()
        for _ in range(3):
            graphs("one", lambda: x.add_(1))
        assert torch.equal(x, torch.full_like(x, 3))
        graphs.forget()


def waits(work: Callable[[], Any]) -> int:
    """How often the host waits for the GPU in it; ``set_sync_debug_mode`` tells."""
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            torch.cuda.set_sync_debug_mode("warn")
            work()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return sum("called a synchronizing CUDA operation" in str(one.message) for one in heard)


def page(count: int) -> Tensor:
    """[count, D] bfloat16 features, a quarter of them blank paper."""
    features = drawn(count, D, dtype=torch.float32) + 2 * drawn(1, D, dtype=torch.float32)
    features[::4] = features[0].clone()
    return features.bfloat16()


@pytest.mark.parametrize(("count", "keep"), [(1296, 324), (16000, 4000)])
def test_the_greedy_order_is_the_references_on_the_same_distances(count: int, keep: int) -> None:
    max_min: Any = pytest.importorskip("stakes.vision.selectors.max_min")
    features = page(count)
    distances = max_min.distances_of(features)
    start = int(np.argmax((distances.double().mean(1) + 0.5).floor().cpu().numpy()))
    rows = distances.cpu().numpy()
    expected = reference._greedy(lambda i: rows[i], count, keep, start).tolist()
    (found,) = max_min.rank([features], keep)
    assert found.tolist() == expected
    if count < 4000:
        other = page(900)
        together = max_min.rank([other, features, other], keep)
        assert together[1].tolist() == expected
        assert together[0].tolist() == together[2].tolist() == max_min.rank([other], keep)[0].tolist()


def test_a_selection_waits_for_the_gpu_once() -> None:
    pytest.importorskip("triton")
    scene = Scene(page(1296), drawn(9, D, dtype=torch.bfloat16))
    expected = Redundancy().select(scene, 324).indices
    scene.rankings.clear()
    found: list[Tensor] = []
    assert waits(lambda: found.append(Redundancy().select(scene, 324).indices)) == 1
    assert torch.equal(found[0], expected)


def test_what_is_no_number_is_refused_and_leaves_no_ranking() -> None:
    scene = Scene(page(300))
    scene.features[7, 7] = float("nan")
    for _ in range(2):
        with pytest.raises(BadInput, match="features are not all finite"):
            Redundancy().select(scene, 30)
    torch.cuda.synchronize()  # nor has it read where nothing is


def on_gpu(family: str, fast: bool, ops: Any = None) -> LocalVLM:
    one = tiny(family)
    model = replace(one, model=deepcopy(one.model).to(DEVICE), cache=EncodedCache(), fast=fast)
    if ops is not None:
        vars(model)["fast_decoder"] = FastDecoder(model.model, ops)
    return model


@pytest.mark.parametrize("ops", [plain_ops, None], ids=["plain", "chosen"])
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("family", FAMILIES)
def test_tokens_are_those_of_generate_at_the_second_time_too(family: str, count: int, ops: Any) -> None:
    """In float32. The first answer records the steps, the second replays them."""
    model = on_gpu(family, True, ops or chosen(DEVICE))
    asked = requests(count, None, "resolution")
    pages: list[Any] = [one.image for one in asked]
    inputs = {name: x.to(DEVICE) for name, x in stock_inputs(family, pages, QUESTIONS[:count]).items()}
    stock = model.model.generate(**inputs, max_new_tokens=8, do_sample=False)[:, inputs["input_ids"].shape[1] :]
    expected = [model.processor.tokenizer.decode(row, skip_special_tokens=True).strip() for row in stock]
    for selector in (None, "fastv"):
        cut = [Request(one.image, one.question, 6, "deletion", selector) for one in asked]
        plain = [answer.text for answer in on_gpu(family, False).answer(cut)]
        assert [answer.text for answer in model.answer(cut)] == plain
    for _ in range(2):
        assert [answer.text for answer in model.answer(asked)] == expected
    assert len(set(expected)) == count, "the answers say nothing if they are all alike"
