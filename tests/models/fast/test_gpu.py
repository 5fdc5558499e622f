"""On a real GPU: kernels equal their references, and the greedy order is exact.

python -m pytest tests/models/fast/test_gpu.py          # one CUDA GPU; skips without
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tests.vision.selectors.distances import grid_distances
from torch import Tensor

from stakes.errors import BadInput
from stakes.models.fast import ops_for, torch_ops
from stakes.models.fast.cuda_graphs import CudaGraphs
from stakes.models.fast.torch_ops import Segments
from stakes.vision.selectors import redundancy as reference
from stakes.vision.selectors.base import Scene
from stakes.vision.selectors.redundancy import Redundancy

DEVICE = torch.device("cuda")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
D, HEADS, KEY_HEADS, HEAD, W = 3584, 28, 4, 128, 18944  # of the 7B model
KINDS = [(torch.float32, 1e-5), (torch.bfloat16, 1e-2)]


def relative_error(found: Tensor, truth: Tensor) -> float:
    """By norm."""
    return float((found.double() - truth.double()).norm() / truth.double().norm())


def random_tensor(*shape: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(*shape, device=DEVICE, dtype=dtype)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("rows", [1, 3, 32, 1000])
@pytest.mark.parametrize(("dtype", "error"), KINDS)
def test_operations_equal_the_torch_ones(dtype: torch.dtype, error: float, rows: int) -> None:
    """Against torch in float64; where factors are rounded to the model's dtype, against torch in that dtype."""
    ops = ops_for(DEVICE)
    shapes = ((rows, D), (rows, D), (D,), (rows, 2 * W))
    x, more, weight, gate_up = (random_tensor(*shape, dtype=dtype) for shape in shapes)
    wide = torch_ops.add_norm(x.double(), more.double(), weight.double(), 1e-6)
    found = ops.add_norm(x, more, weight, 1e-6)
    assert max(relative_error(*pair) for pair in zip(found, wide, strict=True)) < error
    assert relative_error(ops.norm(x, weight, 1e-6), torch_ops.norm(x.double(), weight.double(), 1e-6)) < error
    assert relative_error(ops.swiglu(gate_up), torch_ops.swiglu(gate_up.double())) < error
    widths = [HEADS * HEAD, KEY_HEADS * HEAD, KEY_HEADS * HEAD]
    qkv = torch.split(random_tensor(rows, sum(widths), dtype=dtype), widths, -1)
    heads: Any = tuple(part.view(rows, -1, HEAD) for part in qkv)
    rope = random_tensor(rows, HEAD, dtype=dtype), random_tensor(rows, HEAD, dtype=dtype)
    where = torch.arange(rows, device=DEVICE) % 4, torch.arange(rows, device=DEVICE)
    cache, expected = (
        tuple(random_tensor(4, 1024, KEY_HEADS, HEAD, dtype=dtype).zero_() for _ in range(2)) for _ in range(2)
    )
    one = ops.rope_and_write(heads, rope, cache, where)
    other = torch_ops.rope_and_write(heads, rope, (expected[0], expected[1]), where)
    assert max(relative_error(*pair) for pair in zip([*one, *cache], [*other, *expected], strict=True)) < error
    factors = rope[0].float(), rope[1].float()
    assert relative_error(ops.apply_rope(heads[0], *factors), torch_ops.apply_rope(heads[0], *factors)) < error


@pytest.mark.parametrize("rows", [1, 3, 32])
@pytest.mark.parametrize(("dtype", "error"), KINDS)
def test_decode_attention_and_skinny_gemm_equal_torch(dtype: torch.dtype, error: float, rows: int) -> None:
    ops = ops_for(DEVICE)
    query = random_tensor(rows, HEADS, HEAD, dtype=dtype)
    keys, values = (random_tensor(rows + 1, 1280, KEY_HEADS, HEAD, dtype=dtype)[:-1] for _ in range(2))
    lengths = torch.randint(1, 1280, (rows,), device=DEVICE, dtype=torch.int32)
    truth = torch_ops.decode_attention(query.double(), keys.double(), values.double(), lengths, 0.1)
    assert relative_error(ops.decode_attention(query, keys, values, lengths, 0.1), truth) < error
    x, weight, bias = (random_tensor(*shape, dtype=dtype) for shape in ((rows, D), (520, D), (520,)))
    truth = torch_ops.skinny_gemm(x.double(), weight.double(), bias.double())
    assert relative_error(ops.skinny_gemm(x, weight, bias), truth) < error


@pytest.mark.parametrize("columns", [D, W])
@pytest.mark.parametrize("rows", [1, 3, 32, 40])
@pytest.mark.parametrize(("dtype", "error"), KINDS)
def test_linear_and_norm_equal_torch(dtype: torch.dtype, error: float, rows: int, columns: int) -> None:
    """Of 2 to 32 rows in 16 bits in parts, of which every number is written."""
    x, h, weight, bias = (random_tensor(*s, dtype=dtype) for s in ((rows, D), (rows, columns), (D, columns), (D,)))
    norm = random_tensor(D, dtype=dtype)
    random_tensor(8, 40, D, dtype=torch.float32).fill_(float("nan"))  # what the parts are allocated over
    found = ops_for(DEVICE).linear_add_norm(x, h, weight, bias, norm, 1e-6)
    wide: list[Tensor] = [one.double() for one in (x, h, weight, bias, norm)]
    truth = torch_ops.linear_add_norm(wide[0], wide[1], wide[2], wide[3], wide[4], 1e-6)
    assert max(relative_error(*pair) for pair in zip(found, truth, strict=True)) < error


@pytest.mark.parametrize(("heads", "key_heads", "head", "causal"), [(28, 4, 128, True), (16, 16, 80, False)])
def test_varlen_attention_stays_within_each_sequence(heads: int, key_heads: int, head: int, causal: bool) -> None:
    segments = Segments.of([700, 1, 0, 299], DEVICE)
    qkv = [random_tensor(1000, n, head, dtype=torch.bfloat16) for n in (heads, key_heads, key_heads)]
    query, key, value = (x.double() for x in qkv)
    truth = torch_ops.varlen_attention(query, key, value, segments, 0.09, causal)
    assert relative_error(ops_for(DEVICE).varlen_attention(*qkv, segments, 0.09, causal), truth) < 1e-2


def encoder_states(
    lengths: list[int], dtype: torch.dtype = torch.bfloat16
) -> tuple[tuple[Tensor, Tensor, Tensor], Segments]:
    """Queries, keys and values of a 7B model's encoder, [S, 16, 80] in its own strides, and their segments."""
    count = sum(lengths)
    rotated, qkv = random_tensor(count, 32, 80, dtype=dtype), random_tensor(count, 3, 16, 80, dtype=dtype)
    return (rotated[:, :16], rotated[:, 16:], qkv[:, 2]), Segments.of(lengths, DEVICE)


def skip_without_cudnn() -> None:
    if torch.cuda.get_device_capability() not in torch_ops.CUDNN_CAPABILITIES:
        pytest.skip("on this GPU whole images use flash attention")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("lengths", [[3888] * 5, [1296] * 13, [516] * 32])
@torch.inference_mode()
def test_cudnn_is_as_close_to_the_truth_as_flash_attention(
    lengths: list[int], dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_without_cudnn()
    monkeypatch.setattr(torch_ops, "CUDNN_AFTER", 0)
    qkv, segments = encoder_states(lengths, dtype)
    more: Any = (segments, 80**-0.5, False)
    query, key, value = (x.float() for x in qkv)
    truth = torch_ops.varlen_attention(query, key, value, *more)
    cudnn = torch_ops.cudnn_attention(*qkv, len(lengths), 80**-0.5)
    assert cudnn is not None, torch_ops._cudnn_errors
    out = torch_ops.varlen_attention(*qkv, *more)
    assert torch.equal(out, cudnn)
    assert out.is_contiguous()
    monkeypatch.setattr(torch_ops, "CUDNN_MIN_LENGTH", 1 << 30)
    assert relative_error(out, truth) <= 1.5 * relative_error(torch_ops.varlen_attention(*qkv, *more), truth)


@pytest.mark.parametrize("lengths", [[1296, 1292], [516, 3888, 516], [64] * 20])
def test_images_of_several_sizes_and_windows_are_separate_sequences(lengths: list[int]) -> None:
    qkv, segments = encoder_states(lengths)
    query, key, value = (x.float() for x in qkv)
    truth = torch_ops.varlen_attention(query, key, value, segments, 80**-0.5, False)
    assert relative_error(torch_ops.varlen_attention(*qkv, segments, 80**-0.5, False), truth) < 1e-2


@torch.inference_mode()
def test_images_of_one_size_use_cudnn_after_some_calls_without_synchronization(monkeypatch: pytest.MonkeyPatch) -> None:
    skip_without_cudnn()
    monkeypatch.setattr(torch_ops, "_shape_counts", Counter())
    qkv, segments = encoder_states([1300] * 13)
    more: Any = (segments, 80**-0.5, False)
    first = torch_ops.varlen_attention(*qkv, *more)
    for _ in range(torch_ops.CUDNN_AFTER - 1):
        assert torch.equal(torch_ops.varlen_attention(*qkv, *more), first)
    later = torch_ops.varlen_attention(*qkv, *more)
    assert torch.equal(later, torch_ops.cudnn_attention(*qkv, 13, 80**-0.5))  # type: ignore[arg-type]
    assert relative_error(later, first) < 1e-2
    assert not torch_ops._cudnn_errors
    assert synchronizations(lambda: torch_ops.varlen_attention(*qkv, *more)) == 0


@torch.inference_mode()
def test_graphs_are_captured_again_after_all_were_dropped() -> None:
    """A memory pool is freed with the last graph in it, and torch refuses to capture into it."""
    graphs, x = CudaGraphs(DEVICE), random_tensor(64, 64, dtype=torch.float32)

    def reset() -> None:
        x.zero_()

    for _ in range(2):
        graphs.capture("one", lambda: x.add_(1), reset)
        x.zero_()
        for _ in range(3):
            graphs("one", lambda: x.add_(1))
        assert torch.equal(x, torch.full_like(x, 3))
        graphs.clear()


def synchronizations(work: Callable[[], Any]) -> int:
    """How often the host waits for the GPU during the work, by ``set_sync_debug_mode``."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            torch.cuda.set_sync_debug_mode("warn")
            work()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return sum("called a synchronizing CUDA operation" in str(one.message) for one in caught)


def page(count: int) -> Tensor:
    """[count, D] bfloat16 features, a quarter of them blank paper."""
    features = random_tensor(count, D, dtype=torch.float32) + 2 * random_tensor(1, D, dtype=torch.float32)
    features[::4] = features[0].clone()
    return features.bfloat16()


@pytest.mark.parametrize(("count", "keep"), [(1296, 324), (16000, 4000)])
def test_the_greedy_order_equals_the_reference_on_the_same_distances(count: int, keep: int) -> None:
    max_min: Any = pytest.importorskip("stakes.vision.selectors.max_min")
    features = page(count)
    distances = grid_distances(*max_min.cosines(features))
    start = int(np.argmax((distances.double().mean(1) + 0.5).floor().cpu().numpy()))
    rows = distances.cpu().numpy()
    expected = reference._greedy(lambda i: rows[i], count, keep, [start]).tolist()
    (ranking,) = max_min.rank([features], keep)
    assert ranking.tolist() == expected
    if count < 4000:
        other = page(900)
        together = max_min.rank([other, features, other], keep)
        assert together[1].tolist() == expected
        assert together[0].tolist() == together[2].tolist() == max_min.rank([other], keep)[0].tolist()


def test_a_selection_synchronizes_once() -> None:
    pytest.importorskip("triton")
    scene = Scene(page(1296), random_tensor(9, D, dtype=torch.bfloat16))
    expected = Redundancy().select(scene, 324).indices
    scene.rankings.clear()
    selected: list[Tensor] = []
    assert synchronizations(lambda: selected.append(Redundancy().select(scene, 324).indices)) == 1
    assert torch.equal(selected[0], expected)


def test_features_that_are_not_finite_are_refused_and_leave_no_ranking() -> None:
    scene = Scene(page(300))
    scene.features[7, 7] = float("nan")
    for _ in range(2):
        with pytest.raises(BadInput, match="features are not all finite"):
            Redundancy().select(scene, 30)
    torch.cuda.synchronize()  # nor was any memory read out of bounds
