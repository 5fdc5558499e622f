"""The GPU engine: the stock model's arithmetic in fewer and faster kernels.

What it is for. Transformers' ``generate`` leaves most of a GPU idle at the batch sizes of visual question answering: it
pads prompts, launches several hundred small kernels per token from Python, copies its KV cache at every step and runs
the image encoder one image at a time. This package does the same computation near the limit of the hardware
(``benchmarks/latency.py`` measures both beside that limit). It changes no result: the tokens that stay, their positions
and the answers are the same with and without it.

When it is used. ``LocalVLM.fast_decoder`` is the one place that decides: on a CUDA GPU, or with ``fast=True``, and only
where every decoder layer has the parts that the families here share (``layers.supports``). The packed encoder also
needs Qwen2.5-VL's own encoder (``PackedEncoder.supports``). Any other model, and any CPU, runs ``models.local`` as it
is. ``patches`` and ``vision_encoder`` are faster on a CPU too and are used there as well.

What happens to a batch of requests on a GPU:

1. ``patches``         pixels become patches by one table lookup, pages of one size together
2. ``vision_packed``   all images go through the encoder in one varlen batch, windows side by side
3. ``state``           prompts are packed without padding and rounded up to a bucket of tokens
4. ``layers``          prefill writes keys and values into a static KV cache; only last tokens pass the last layer
5. ``decoder``         one captured step is replayed for each token; the host learns two steps late which rows ended

The other files:

* ``cuda_graphs``      captures work once and replays it in one call
* ``torch_ops``        the operations between matrix products in torch: the reference, and the fallback without Triton
* ``triton_ops``       the same operations as Triton kernels: norms, RoPE with the KV-cache write, SwiGLU, GEMV, and
                       products of a few rows in parts, which a norm adds up
* ``triton_attention`` attention on the KV cache (split KV), and RoPE with attention for windows of patches
* ``vision_encoder``   the stock encoder with a faster patch embedding and window attention, for single images

How it is held to the stock model. On a CPU the same code runs without graphs and with ``torch_ops``; tests compare its
tokens with ``generate`` and its logits with ``local.generate.greedy`` for every family (tests/models/fast). The Triton
kernels run there in Triton's interpreter against ``torch_ops``. tests/models/fast/test_gpu*.py repeat this on a real
GPU: kernels against float64, tokens against ``generate``, in float32.
"""

from typing import Any

import torch


def ops_for(device: torch.device) -> Any:
    """The module of operations for a device: ``triton_ops`` on a GPU that has Triton, else ``torch_ops``."""
    from stakes.models.fast import torch_ops

    if device.type != "cuda":
        return torch_ops
    try:
        from stakes.models.fast import triton_ops
    except ImportError:  # torch without Triton, as on some platforms
        return torch_ops
    return triton_ops
