"""Window attention in one kernel: right in Triton's interpreter (``claims_triton_windows``); and it compiles."""

from __future__ import annotations

import re

import pytest
from tests.interpreted import BF16, FP32, I32, compiled, run_interpreted

pytest.importorskip("triton")


def test_window_attention_equals_torch() -> None:
    run_interpreted("tests/models/fast/claims_triton_windows.py")


SIGNATURE = {"qkv": BF16, "cos": FP32, "sin": FP32, "cu_seqlens": I32, "out": BF16, "scale": "fp32"}


@pytest.mark.parametrize(("width", "block", "parts"), [(80, 64, (32, 16, 64, 16)), (64, 32, (32, 0, 64, 0))])
def test_the_kernel_compiles_for_a_gpu(width: int, block: int, parts: tuple[int, int, int, int]) -> None:
    from stakes.models.fast.triton_attention import LAUNCH, _powers_of_two, _window_kernel

    assert (*_powers_of_two(width // 2), *_powers_of_two(width)) == parts
    constants = {"HEADS": 16, "WIDTH": width, **dict(zip(("MAIN", "MORE", "WIDE", "TAIL"), parts, strict=True))}
    constants |= {"BLOCK": block, "TOGETHER": LAUNCH.heads, "STAGES": LAUNCH.stages}
    made = compiled(_window_kernel, SIGNATURE, constants, num_warps=LAUNCH.warps, maxnreg=LAUNCH.registers)
    assert made.metadata.shared <= 227 * 1024 // 3  # bytes: three programs share a multiprocessor
    assert ("wgmma" in made.asm["ptx"]) is (block == 64)
    moved = re.findall(r"(?:convert_layout|local_alloc) .*", made.asm["ttgir"])
    factors = [line for line in moved if "xf32" in line and "x1xf32" not in line]
    assert block < 64 or not factors, "rotary factors must stay where they are loaded"
