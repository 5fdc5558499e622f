"""Run tests of Triton's kernels on a CPU, in Triton's interpreter.

Triton decides at import whether it interprets, once per process. So these tests (files named claims_*) run in a process
of their own, and those on a real GPU (``tests/models/fast/test_gpu.py``) in this one. That process loads this file as a
plugin.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
BF16, FP32, I32, I64 = "*bf16", "*fp32", "*i32", "*i64"  # Triton's names of pointers


def run_interpreted(claims: str) -> None:
    """Every test of this file passes in the interpreter, and there is at least one."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", __name__, claims],
        cwd=ROOT,
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


def pytest_configure() -> None:
    """Let the interpreter run loops whose bounds are known only at run time, with any numpy.

    Its scalars are arrays of one element, of which Triton 3.6 takes ``int``: an error from numpy 2.4 on, where only
    arrays of no dimension convert. No kernel is changed by it, and nothing outside of the interpreter.
    """
    from triton.runtime import interpreter

    stock = interpreter._patch_lang_tensor

    def patch(tensor: Any, *scope: Any) -> None:
        stock(tensor, *scope)  # some versions have a scope that undoes this
        tensor.__index__ = lambda self: int(self.handle.data.item())

    interpreter._patch_lang_tensor = patch


def compiled(kernel: Any, signature: dict[str, str], constants: dict[str, Any], **options: Any) -> Any:
    """A kernel compiled for compute capability 9.0, which needs no GPU.

    Pointers and whole numbers are multiples of 16, as those of the 7B model are: only then are loads pipelined, which
    takes shared memory.
    """
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    kinds = {name: "constexpr" if name in constants else signature[name] for name in kernel.arg_names}
    aligned = {
        (at,): [["tt.divisibility", 16]]
        for at, name in enumerate(kernel.arg_names)
        if kinds[name].startswith("*") or kinds[name] == "i32"
    }
    source = ASTSource(fn=kernel, signature=kinds, constexprs=constants, attrs=aligned)
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
