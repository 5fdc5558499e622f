"""Is the fast forward the stock model? Logits on ragged grids, with and without a system message, and gradients.

PYTHONPATH=src:. python -m training.check --device cpu     # fp32, difference under 1e-4
PYTHONPATH=src:. python -m training.check --device cuda    # bf16 against fp32, under 3e-2
"""

from __future__ import annotations

import argparse

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from training.attention import PrefixAttention
from training.examples import LENGTH
from training.forward import AFTER, Prefix
from training.forward_llava import Canvas
from training.reader import ID
from training.reader_llava import PATCH, SIDE, TILE

from training import architectures


def stock_images(x: Tensor, geo: Prefix) -> dict[str, Tensor]:
    """One image's patches as the stock model takes them from its own processor."""
    if isinstance(geo, Canvas):
        tiles = x.view(-1, SIDE, SIDE, 3, PATCH, PATCH).permute(0, 3, 1, 4, 2, 5).reshape(1, -1, 3, TILE, TILE)
        return {"pixel_values": tiles, "image_sizes": torch.tensor([[geo.height, geo.width]], device=x.device)}
    pixels = x.view(geo.tokens * 4, 3, 1, 14, 14).expand(-1, -1, 2, -1, -1).reshape(geo.tokens * 4, -1)
    return {"pixel_values": pixels, "image_grid_thw": torch.tensor([[1, geo.gh * 2, geo.gw * 2]], device=x.device)}


def stock_logits(model: torch.nn.Module, x: Tensor, question: Tensor, geo: Prefix) -> Tensor:
    """The stock model on one image's patches and one question's ids (L,) -> (L, vocabulary)."""
    ids = torch.tensor([*geo.lead, *[ID["<|image_pad|>"]] * geo.tokens, *AFTER], device=x.device)
    ids = torch.cat([ids, question])[None]
    inputs = stock_images(x, geo)
    if not isinstance(geo, Canvas):
        inputs["mm_token_type_ids"] = (ids == ID["<|image_pad|>"]).int()
    out = model(input_ids=ids, attention_mask=torch.ones_like(ids), **inputs)
    return out.logits[0, -len(question) :]


@torch.no_grad()
def forward_difference(device: str, size: str, gh: int, gw: int, b: int, nq: int, system: bool) -> float:
    """Relative difference of fast (bf16 on a GPU) and stock fp32 logits on random pixels and questions."""
    kind = architectures.of(size)
    model = kind.new_model(size).to(device)
    qa = torch.randint(8, 110, (b, nq, LENGTH), device=device)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    fast = kind.forward(model.to(dtype))
    geo = fast.geometry(gh, gw, system, torch.device(device))
    x = geo.show(torch.randint(256, (b, gh * 28, gw * 28, 3), device=device), torch.float32, noise=False, colour=False)
    states, _ = fast.decode(fast.encode(x.to(dtype), geo), qa, geo)
    logits = F.linear(states, model.lm_head.weight).view(b, nq, LENGTH, -1).float()
    model.float()
    reference = [[stock_logits(model, x[i], qa[i, j], geo) for j in range(nq)] for i in range(b)]
    expected = torch.stack([torch.stack(row) for row in reference])
    return ((logits - expected).norm() / expected.norm()).item()


def gradient_difference() -> float:
    """Worst relative gradient difference of the two-part attention from a dense fp32 reference (CUDA only)."""
    b, prefix, nq, h, d = 2, 37, 3, 6, 64
    total = nq * LENGTH
    shapes = [(b, total, h, d)] * 3 + [(b, prefix, h, d)] * 2
    q, k, v, kp, vp = leaves = [torch.randn(s, device="cuda", dtype=torch.bfloat16, requires_grad=True) for s in shapes]
    go = torch.randn(shapes[0], device="cuda", dtype=torch.bfloat16)
    got = torch.autograd.grad(PrefixAttention.apply(q, k, v, kp, vp, nq), leaves, go)
    block = torch.arange(nq, device="cuda").repeat_interleave(LENGTH)
    own = (block[:, None] == block[None]) & torch.ones(total, total, device="cuda", dtype=torch.bool).tril()
    mask = torch.cat([torch.ones(total, prefix, device="cuda", dtype=torch.bool), own], 1)
    keys, values = torch.cat([kp, k], 1).float(), torch.cat([vp, v], 1).float()
    dense = (t.transpose(1, 2) for t in (q.float(), keys, values))
    out = F.scaled_dot_product_attention(*dense, attn_mask=mask).transpose(1, 2)
    want = torch.autograd.grad(out, leaves, go.float())
    return max(((g.float() - w.float()).norm() / w.float().norm()).item() for g, w in zip(got, want, strict=True))


def main() -> None:
    """Print every difference; fail above the bar."""
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--device", default="cuda")
    a = p.parse_args()
    cases = [("base", 7, 6, 2, 2, False), ("base", 9, 5, 1, 3, True), ("small", 5, 7, 1, 2, False)]
    cases += [("llava", 6, 10, 2, 2, False), ("llava", 20, 13, 1, 3, True), ("llava", 35, 25, 1, 1, False)]
    if a.device == "cuda":
        cases += [("base", 36, 27, 3, 8, True), ("llava", 36, 27, 3, 8, True)]
    bar = 3e-2 if a.device == "cuda" else 1e-4
    for case in cases:
        difference = forward_difference(a.device, *case)
        print(case, f"relative difference {difference:.1e}", flush=True)
        assert difference < bar, difference  # NaN fails too
    if a.device == "cuda":
        difference = gradient_difference()
        print(f"gradients of the two-part attention: {difference:.1e}", flush=True)
        assert difference < 2e-2, difference


if __name__ == "__main__":
    main()
