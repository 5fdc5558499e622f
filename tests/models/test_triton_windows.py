"""Windows of patches in one kernel: right in Triton's interpreter (``claims_triton_windows``); and it compiles."""

from __future__ import annotations

import re

import pytest
from tests.interpreted import BF16, FP32, I32, compiled, hold

pytest.importorskip("triton")


def test_windows_see_what_plain_torch_lets_them_see() -> None:
    hold("tests/models/claims_triton_windows.py")


SIGNATURE = {"states": BF16, "cos": FP32, "sin": FP32, "ends": I32, "out": BF16, "scale": "fp32"}


@pytest.mark.parametrize(("width", "block", "parts"), [(80, 64, (32, 16, 64, 16)), (64, 32, (32, 0, 64, 0))])
def test_the_kernel_compiles_for_a_gpu(width: int, block: int, parts: tuple[int, int, int, int]) -> None:
    from stakes.models.fast.triton_attention import SHAPE, _parts, _windows_kernel

    assert (*_parts(width // 2), *_parts(width)) == parts
    constants = {"HEADS": 16, "WIDTH": width, **dict(zip(("MAIN", "MORE", "WIDE", "TAIL"), parts, strict=True))}
    constants |= {"BLOCK": block, "TOGETHER": SHAPE.heads, "STAGES": SHAPE.stages}
    made = compiled(_windows_kernel, SIGNATURE, constants, num_warps=SHAPE.warps, maxnreg=SHAPE.registers)
    assert made.metadata.shared <= 227 * 1024 // 3  # bytes, of which three programs share a multiprocessor's
    assert ("wgmma" in made.asm["ptx"]) is (block == 64)
    moved = re.findall(r"(?:convert_layout|local_alloc) .*", made.asm["ttgir"])
    angles = [line for line in moved if "xf32" in line and "x1xf32" not in line]
    assert block < 64 or not angles, "angles stay where they are loaded"
