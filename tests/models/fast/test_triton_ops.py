"""Triton's operations equal torch's, in its interpreter (``claims_triton_ops``); and they compile."""

from __future__ import annotations

from typing import Any

import pytest
from tests.interpreted import BF16, FP32, I32, I64, compiled, run_interpreted

pytest.importorskip("triton")


def test_the_operations_equal_torch() -> None:
    run_interpreted("tests/models/fast/claims_triton_ops.py")


STRIDES = "q_row q_head k_row k_head v_row v_head b_row b_column b_head QH KH".split()
CASES: dict[str, tuple[str, dict[str, str], dict[str, Any], int]] = {
    "add_norm": (
        "_norm_kernel",
        {
            "x": BF16,
            "more": FP32,
            "weight": BF16,
            "total": BF16,
            "out": BF16,
            "stride": "i32",
            "D": "i32",
            "eps": "fp32",
        },
        {"PARTS": 4, "BLOCK": 4096},
        16,
    ),
    "rope_and_write": (
        "_rope_write_kernel",
        {
            **dict.fromkeys(("query", "key", "value", "cos", "sin", "q_out", "k_out", "keys", "values"), BF16),
            **dict.fromkeys(("rows", "columns"), I64),
            **dict.fromkeys(STRIDES, "i32"),
        },
        {"HEADS": 32, "HALF": 64, "BLOCK": 64, "CACHE": True, "ROUND": True},
        4,
    ),
    "apply_rope": (
        "_rope_write_kernel",
        {
            **dict.fromkeys(("query", "key", "value", "q_out", "k_out", "keys", "values", "rows", "columns"), BF16),
            **dict.fromkeys(("cos", "sin"), FP32),
            **dict.fromkeys(STRIDES, "i32"),
        },
        {"HEADS": 16, "HALF": 40, "BLOCK": 64, "CACHE": False, "ROUND": False},
        4,
    ),
    "swiglu": ("_swiglu_kernel", {"gate_up": BF16, "out": BF16, "W": "i32"}, {"BLOCK": 1024}, 4),
    "decode_attention": (
        "_decode_kernel",
        {
            **dict.fromkeys(("query", "keys", "values"), BF16),
            **{"lengths": I32, "partial": FP32, "lse": FP32, "scale": "fp32"},
            **dict.fromkeys(("s_row", "s_column", "s_head", "parts"), "i32"),
        },
        {"GROUP": 7, "ROWS": 16, "WIDTH": 128, "BLOCK": 64, "DOT": True},
        4,
    ),
    "decode_attention, parts": (
        "_merge_kernel",
        {"partial": FP32, "lse": FP32, "out": BF16, "parts": "i32"},
        {"WIDTH": 128, "PARTS_": 16},
        1,
    ),
    "gemv": (
        "_gemv_kernel",
        {**dict.fromkeys(("x", "weight", "bias", "out"), BF16), "N": "i32", "K": "i32"},
        {"HAS_BIAS": True, "BN": 8, "BK": 512},
        4,
    ),
    "split_gemm": (
        "_split_kernel",
        {
            **dict.fromkeys(("x", "weight", "bias"), BF16),
            "partial": FP32,
            **dict.fromkeys(("B", "N", "K", "size"), "i32"),
        },
        {"HAS_BIAS": True, "ROWS": 32, "BN": 64, "BK": 128},
        4,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_an_operation_compiles_for_the_7b_model_on_a_gpu(case: str) -> None:
    from stakes.models.fast import triton_attention, triton_ops

    name, signature, constants, warps = CASES[case]
    module = triton_attention if case.startswith("decode") else triton_ops
    stages = {"num_stages": triton_ops.SPLIT_STAGES} if case == "split_gemm" else {}
    made = compiled(getattr(module, name), signature, constants, num_warps=warps, **stages)
    assert made.metadata.shared <= 227 * 1024  # bytes of shared memory per program on such a GPU
