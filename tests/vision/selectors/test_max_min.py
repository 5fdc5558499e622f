"""The greedy order by Triton equals the reference, ties included, in its interpreter (``claims_max_min``)."""

from __future__ import annotations

import pytest
from tests.interpreted import FP32, I32, I64, compiled, run_interpreted

pytest.importorskip("triton")


def test_the_order_by_triton_equals_the_reference() -> None:
    run_interpreted("tests/vision/selectors/claims_max_min.py")


@pytest.mark.parametrize("small", [True, False])
def test_the_walk_compiles_for_a_gpu(small: bool) -> None:
    from stakes.vision.selectors import max_min

    signature = {**dict.fromkeys(("keys", "distances", "means"), I32), **{"places": I64, "order": I64}}
    signature |= dict.fromkeys(("images", "steps", "N"), "i32") | dict.fromkeys(("gram", "inverse"), FP32)
    bits = {"BITS": 11 if small else 14}
    kernel, block, warps = (max_min._small_kernel, 2048, 8) if small else (max_min._large_kernel, 16384, 32)
    compiled(kernel, signature, {"BLOCK": block, **bits}, num_warps=warps)
    constants = {"SMALL_KEYS": small, "BLOCK": 1024, **bits}
    made = compiled(max_min._grid_kernel, signature, constants, num_warps=4, enable_fp_fusion=False)
    assert "fma" not in made.asm["ptx"], "a fused product would round otherwise than the reference"
