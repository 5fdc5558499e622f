"""How are the weights moved? Muon for the matrices inside the blocks, AdamW for everything else.

Both keep fp32 masters; the model itself is bf16 on a GPU. Muon orthogonalises each matrix's momentum by five
Newton-Schulz steps (Jordan et al. 2024); equal shapes are stacked, so a step is a few batched products instead of one
per matrix. Query, key and value of the encoder's fused ``qkv`` are three matrices to it.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


@torch.no_grad()
def newton_schulz(g: Tensor) -> Tensor:
    """Nearest orthogonal matrices to a stack ``(n, rows, cols)``, roughly: singular values end in 0.7-1.2."""
    x = g.bfloat16() if g.is_cuda else g  # CPUs are slow in bf16
    flip = x.shape[-2] > x.shape[-1]
    x = x.mT if flip else x
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        a = x @ x.mT
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return (x.mT if flip else x).float()


class Optimizer:
    """``step(lr)`` after ``backward()``; ``tensors()`` names every buffer, so that a run can be resumed."""

    def __init__(self, model: nn.Module, heads: nn.Module, decay: float = 0.03) -> None:
        self.decay, self.t = decay, 0
        self.muon: dict[tuple[int, int], list[tuple[nn.Parameter, tuple[int, int, int]]]] = {}
        self.adam: list[nn.Parameter] = []
        for name, p in [*model.named_parameters(), *heads.named_parameters()]:
            if not p.requires_grad:
                continue
            if p.ndim == 2 and any(part in name for part in (".blocks.", ".layers.", "merger.mlp", "projector")):
                k = 3 if "qkv" in name else 1
                shape = (k, p.shape[0] // k, p.shape[1])
                self.muon.setdefault(shape[1:], []).append((p, shape))
            else:
                self.adam.append(p)
        self.masters = [torch.cat([p.detach().float().view(s) for p, s in ps]) for ps in self.muon.values()]
        self.momenta = [torch.zeros_like(m) for m in self.masters]
        self.adam_masters = [p.detach().float().clone() for p in self.adam]
        self.first = [torch.zeros_like(p) for p in self.adam_masters]
        self.second = [torch.zeros_like(p) for p in self.adam_masters]

    def tensors(self) -> dict[str, Tensor]:
        """Every buffer by a stable name; the tensors are the live ones, so ``copy_`` into them restores a run."""
        lists = {
            "muon": self.masters,
            "momentum": self.momenta,
            "adam": self.adam_masters,
            "first": self.first,
            "second": self.second,
        }
        return {f"{name}.{i}": t for name, ts in lists.items() for i, t in enumerate(ts)}

    @torch.no_grad()
    def publish(self) -> None:
        """Copy the masters into the model's own (bf16) parameters."""
        for ps, master in zip(self.muon.values(), self.masters, strict=True):
            torch._foreach_copy_([p.view(s) for p, s in ps], list(master.split([s[0] for _, s in ps])))
        torch._foreach_copy_(self.adam, self.adam_masters)

    @torch.no_grad()
    def step(self, lr: float) -> None:
        """One update from the gradients, which are dropped afterwards."""
        self.t += 1
        for (shape, ps), master, momentum in zip(self.muon.items(), self.masters, self.momenta, strict=True):
            g = torch.cat([p.grad.view(s) for p, s in ps]).float()
            momentum.lerp_(g, 0.05)
            update = newton_schulz(g.lerp(momentum, 0.95))
            # 0.2 * sqrt(max) gives the update the size of an AdamW one, so that both share a learning rate
            master.mul_(1 - lr * self.decay).add_(update, alpha=-lr * 0.2 * math.sqrt(max(shape)))
        g = [p.grad.float() for p in self.adam]
        norm = torch.stack(torch._foreach_norm(g)).norm()
        torch._foreach_mul_(g, 1.0 / norm.clamp(min=1.0))
        b1, b2 = 0.9, 0.98
        torch._foreach_lerp_(self.first, g, 1 - b1)
        torch._foreach_mul_(self.second, b2)
        torch._foreach_addcmul_(self.second, g, g, 1 - b2)
        root = torch._foreach_sqrt(self.second)
        torch._foreach_div_(root, math.sqrt(1 - b2**self.t))
        torch._foreach_add_(root, 1e-8)
        torch._foreach_addcdiv_(self.adam_masters, self.first, root, -lr / (1 - b1**self.t))
        self.publish()
        for p in [*self.adam, *(p for ps in self.muon.values() for p, _ in ps)]:
            p.grad = None
