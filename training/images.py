"""How do pixels become patches? Resize to a token grid, light augmentation, normalise, cut; all on the device.

Resizing is two matrix products with the weights of the antialiased bicubic filter, which is what Pillow and so the
reader's processor use. The weights are read off ``F.interpolate`` applied to the identity. On an H200 two products in
TF32 are several times faster than the interpolation kernel on a batch of colour pages.
"""

from __future__ import annotations

import math
import random
from functools import lru_cache

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from training.reader import MEAN, STD


@lru_cache(maxsize=512)
def bicubic(source: int, target: int, device: torch.device) -> Tensor:
    """(target, source) weights along one axis."""
    eye = torch.eye(source)[None, None]
    w = F.interpolate(eye, (target, source), mode="bicubic", antialias=True, align_corners=False)
    return w[0, 0].to(device)


@lru_cache
def channel(values: tuple[float, ...], device: torch.device) -> Tensor:
    """(3, 1) constants, made once: ``torch.tensor(..., device="cuda")`` in a step would wait for the device."""
    return torch.tensor(values, device=device).view(3, 1)


def resize(x: Tensor, height: int, width: int) -> Tensor:
    """(b, H, W, 3) in 0..1 -> (b, height, 3, width) in 0..1, rounded to 8 bits as Pillow does after each pass."""
    return scale(x.transpose(2, 3), height, width)


def scale(x: Tensor, height: int, width: int) -> Tensor:
    """``resize`` of rows whose colours come before their columns: (b, H, 3, W) -> (b, height, 3, width)."""
    b, h, _, w = x.shape
    if w != width:
        x = x @ bicubic(w, width, x.device).T
        x = (x * 255).round_().clamp_(0, 255) / 255
    if h != height:
        x = (bicubic(h, height, x.device) @ x.reshape(b, h, 3 * width)).view(b, height, 3, width)
        x = (x * 255).round_().clamp_(0, 255) / 255
    return x


def augment(x: Tensor, colour: bool) -> Tensor:
    """Blur, paper and ink tint, noise on (b, H, 3, W) in 0..1; ``colour`` pages keep their hue, half have no noise."""
    b, device = x.shape[0], x.device

    def rand(*shape: int) -> Tensor:
        return torch.rand(*shape, device=device)

    if random.random() < 0.3:
        soft = F.avg_pool2d(x.transpose(1, 2), 3, 1, 1, count_include_pad=False).transpose(1, 2)
        x = torch.lerp(x, soft, 0.5 * rand(b, 1, 1, 1) * (rand(b, 1, 1, 1) < 0.7))
    channels = 1 if colour else 3
    paper, ink = 1 - 0.1 * rand(b, 1, channels, 1), 0.08 * rand(b, 1, channels, 1)
    x = ink + x * (paper - ink)
    return x + torch.randn_like(x) * (0.03 * rand(b, 1, 1, 1) * (rand(b, 1, 1, 1) < 0.5))


def smooth(b: int, height: int, width: int, low: float, high: float, device: torch.device) -> Tensor:
    """(b, height, width, 1) levels that change slowly over each page."""
    small = low + (high - low) * torch.rand(b, 1, 5, 3, device=device)
    return F.interpolate(small, (height, width), mode="bilinear", align_corners=True).permute(0, 2, 3, 1)


def relight(image: Tensor) -> Tensor:
    """Pages (b, H, W, 3) in bytes under other light: half are shaded, a third are faded in places; bytes again."""
    b, h, w, _ = image.shape
    device = image.device
    chosen = torch.rand(2, b, 1, 1, 1, device=device)
    fade = smooth(b, h, w, -0.3, 0.6, device).clamp_(min=0) * (chosen[0] < 0.35)
    light = 1 - smooth(b, h, w, 0.0, 0.35, device) * (chosen[1] < 0.5)
    x = image.half()
    x = (x + fade.half() * (235 - x).clamp_(min=0)) * light.half()
    return x.round_().clamp_(0, 255).to(torch.uint8)


def normalise(x: Tensor) -> Tensor:
    """(b, H, 3, W) in 0..1 -> zero mean and unit variance over natural images, channel by channel."""
    return (x - channel(MEAN, x.device)) / channel(STD, x.device)


def patches(x: Tensor, gh: int, gw: int, dtype: torch.dtype) -> Tensor:
    """(b, gh * 28, 3, gw * 28) in 0..1 -> normalised (b, cells, 4, 588), the processor's order of patches."""
    b = x.shape[0]
    x = normalise(x).to(dtype).view(b, gh, 2, 14, 3, gw, 2, 14).permute(0, 1, 5, 2, 6, 4, 3, 7)
    return x.reshape(b, gh * gw, 4, 588)


def grid_for(budget: int, width: int, height: int, stretch: float = 0.15) -> tuple[int, int]:
    """The (rows, columns) with most tokens <= budget whose aspect is within the stretch, then least stretch.

    This is what ``stakes.fit`` does; pages are never enlarged.
    """
    best = (0, 0.0, 1, 1)
    for gh in range(1, height // 28 + 1):
        for gw in range(1, width // 28 + 1):
            off = abs(math.log((gw / gh) / (width / height)))
            if gh * gw <= budget and off <= math.log(1 + stretch):
                best = max(best, (gh * gw, -off, gh, gw))
    return best[2], best[3]


def random_grid(budget: float, width: int, height: int, rng: random.Random) -> tuple[int, int]:
    """A grid of about ``budget`` tokens with the aspect off by up to 14 %: budgets at run time stretch pages too."""
    scale = math.sqrt(budget * 784 / (width * height))
    turn = math.exp(rng.uniform(-0.065, 0.065))
    gh = max(2, min(height // 28, round(height / 28 * scale * turn)))
    gw = max(2, min(width // 28, round(width / 28 * scale / turn)))
    return gh, gw
