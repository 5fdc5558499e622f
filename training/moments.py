"""What passes through a model's matrices? Second moments C = sum x x^T of what each linear map reads on pages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from training.batches import Batch
from training.forward import FastForward, Geometry
from training.heads import answer_loss

Sheet = tuple[Batch, Geometry]
RIDGE = 1e-3  # of a moment's mean diagonal


def judge(model: nn.Module, sheets: Iterable[Sheet]) -> tuple[float, float]:
    """Mean answer loss, and the share of answers with a wrong character."""
    fast, losses, rights = FastForward(model), [], []
    for batch, geo in sheets:
        states, _ = fast.decode(fast.encode(batch.x, geo), batch.qa, geo)
        loss, right = answer_loss(F.linear(states, model.lm_head.weight), batch.qa, batch.start, batch.end)
        losses.append(loss)
        rights.append(right[batch.asked].float())
    return torch.stack(losses).mean().item(), 1 - torch.cat(rights).mean().item()


class Moments(TorchFunctionMode):
    """While this is entered, the second moment of what every linear map of a model reads in ``FastForward``."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.maps = {id(m.weight): (name, m) for name, m in model.named_modules() if isinstance(m, nn.Linear)}
        self.of: dict[nn.Linear, Tensor] = {}

    def turn_to(self, batch: Batch, geo: Geometry) -> None:
        """Which rows count from now on: no padding behind an answer; for the head an answer and the token before it."""
        j, b = torch.arange(batch.qa.shape[2]), len(batch.qa)
        said = (j < batch.end[..., None]).flatten()
        self.told = said & (j >= batch.start[..., None] - 1).flatten()
        self.used = torch.cat([torch.ones(b * geo.prefix, dtype=torch.bool), said])

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is F.linear and id(args[1]) in self.maps:
            name, f = self.maps[id(args[1])]
            x = args[0]
            if name == "lm_head":
                x = x[self.told]
            elif "language_model" in name:
                x = x[self.used]
            elif name.endswith("merger.mlp.0"):
                x = x.reshape(4 * len(x), -1)  # four patches side by side
            self.of[f] = self.of.get(f, 0.0) + x.T @ x
        return func(*args, **(kwargs or {}))


def moments(model: nn.Module, sheets: Iterable[Sheet]) -> dict[nn.Linear, Tensor]:
    """(in, in) of every linear map, in fp64, with a ridge, so that no direction is unseen."""
    with Moments(model) as seen:
        for sheet in sheets:
            seen.turn_to(*sheet)
            judge(model, [sheet])  # for its forward
    return {f: c.double() + RIDGE * c.diagonal().mean() * torch.eye(len(c)) for f, c in seen.of.items()}
