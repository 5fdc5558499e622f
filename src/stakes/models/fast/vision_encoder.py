"""The stock encoder of the Qwen-VL families, run faster: the same numbers, up to float32 rounding.

Inside ``with fast_encoder(visual):`` three things of ONE instance run another way; outside nothing has changed.

* Patch embedding. Kernel and stride are equal, so the stock ``Conv3d`` meets every pixel once and is a matrix product
  with the flattened kernel; oneDNN's convolution takes 3 times as long. A still image is the same frame twice, so one
  frame with the sum of the kernel's frames is enough:  x . k1 + x . k2 = x . (k1 + k2).
* Windows. Stock sdpa runs window by window (about 60 calls per block on a page); windows of one size are a batch, and
  the rows of a batch are independent. ``windows_by_size`` makes the encoder put equal windows next to each other (their
  order is free: they do not see each other), so that a batch is a view, and a page has at most 4 sizes.
* RoPE. Queries and keys are rotated together, in 3 passes over them instead of 10:
  [a, b] -> [a cos - b sin, b cos + a sin].

An attention that is not sdpa, or a module with other parts, is not changed.
"""

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from itertools import groupby
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear, scaled_dot_product_attention


@contextmanager
def fast_encoder(visual: Any) -> Iterator[None]:
    """Run one encoder this way for the length of the block."""
    forwards: list[tuple[Any, Any]] = [(visual.patch_embed, embed_patches)] if accepts_one_frame(visual) else []
    forwards += [(block.attn, window_attention) for block in visual.blocks if _is_stock_sdpa(block.attn)]
    try:
        for module, forward in forwards:
            module.forward = partial(forward, module)
        yield
    finally:
        for module, _ in forwards:
            module.__dict__.pop("forward", None)


def accepts_one_frame(visual: Any) -> bool:
    """Whether, inside ``fast_encoder``, a still image may be given as one frame."""
    module = visual.patch_embed
    proj = getattr(module, "proj", None)
    same = isinstance(proj, torch.nn.Conv3d) and proj.kernel_size == proj.stride and proj.groups == 1
    return same and "forward" not in module.__dict__  # else this instance was changed already


def embed_patches(module: Any, hidden_states: Tensor) -> Tensor:
    """[P, 3 * frames * patch * patch], or one frame of it, -> [P, D]."""
    kernel: Tensor = module.proj.weight  # [D, 3, frames, patch, patch]
    if hidden_states.shape[-1] * kernel.shape[2] == kernel[0].numel():
        if kernel.dtype in (torch.float32, torch.float64):
            kernel = kernel.sum(2)
        else:  # a sum of kernels would be rounded to 16 bits, by more than all that follows
            frames = hidden_states.view(len(hidden_states), kernel.shape[1], 1, -1)
            hidden_states = frames.expand(-1, -1, kernel.shape[2], -1)
    flat = hidden_states.reshape(-1, kernel[0].numel()).to(kernel.dtype)
    return linear(flat, kernel.flatten(1), module.proj.bias)


def window_attention(
    module: Any, hidden_states: Tensor, cu_seqlens: Tensor, position_embeddings: tuple[Tensor, Tensor], **_: Any
) -> Tensor:
    """[P, D] -> [P, D], attention within each window of ``cu_seqlens``; neighbors of one length in one call."""
    count = len(hidden_states)
    states = module.qkv(hidden_states).view(count, 3, module.num_heads, -1)
    rotated = apply_rope(states[:, :2], *position_embeddings).to(states.dtype)
    out = states.new_empty(count, module.num_heads, states.shape[-1])
    start = 0
    for length, same in groupby(cu_seqlens.diff().tolist()):
        windows = len(list(same))
        rows = slice(start, start + windows * length)
        query, key, value = (
            x[rows].view(windows, length, module.num_heads, -1).transpose(1, 2)
            for x in (rotated[:, 0], rotated[:, 1], states[:, 2])
        )
        part = scaled_dot_product_attention(query, key, value, scale=module.scaling)
        out[rows].view(windows, length, module.num_heads, -1).copy_(part.transpose(1, 2))
        start = rows.stop
    result: Tensor = module.proj(out.view(count, -1))
    return result


def apply_rope(states: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """[P, 2, heads, h] queries and keys, rotated by [P, h] factors, as float32."""
    states, cos, sin = states.float(), cos.float()[:, None, None], sin.float()[:, None, None]
    half = states.shape[-1] // 2
    first, second = states[..., :half], states[..., half:]
    out = states * cos
    out[..., :half].addcmul_(second, sin[..., :half], value=-1)
    out[..., half:].addcmul_(first, sin[..., half:])
    return out


def window_indices(visual: Any, grid: Sequence[Sequence[int]]) -> list[Tensor]:
    """The windows of an encoder's attention: [n] indices of their merged tokens, equal sizes next to each other.

    ``grid``: by image (t, h, w) patches. An encoder without windows has one per image.
    """
    merge = visual.spatial_merge_size
    windows, offset = [], 0
    for frames, rows, columns in grid:
        page = offset + torch.arange(frames * rows * columns // merge**2).view(-1, columns // merge)
        side = max(page.shape)
        if getattr(visual.config, "fullatt_block_indexes", None) is not None:
            side = visual.window_size // merge // visual.patch_size
        windows += [part.reshape(-1) for band in torch.split(page, side, 0) for part in torch.split(band, side, 1)]
        offset += page.numel()
    return sorted(windows, key=len, reverse=True) if _accepts_window_order() else windows


def windows_by_size(visual: Any, grid: Sequence[Sequence[int]]) -> dict[str, Tensor]:
    """Arguments for an encoder with windows that make equal ones neighbors; none for an encoder without.

    ``window_index``: [N] which merged token comes next. ``cu_window_seqlens``: patches up to each window. These are the
    stock ones with whole windows moved; the stock encoder undoes ``window_index`` at its end.
    """
    if getattr(visual.config, "fullatt_block_indexes", None) is None:
        return {}
    windows = window_indices(visual, grid)
    ends = torch.tensor([0, *(len(window) for window in windows)]).cumsum(0) * visual.spatial_merge_size**2
    return {"window_index": torch.cat(windows), "cu_window_seqlens": ends.int()}


def keep_arguments(visual: Any, shape: tuple[int, int, int], kept: Tensor) -> dict[str, Tensor]:
    """Arguments with which the stock encoder reads [m] merged tokens of an image as if their places were unchanged.

    The encoder is given the patches of those tokens alone; what it would derive from the image's size is passed.
    """
    from transformers import vision_utils

    merge, size = visual.spatial_merge_size, torch.tensor([shape])
    patches = (kept[:, None] * merge**2 + torch.arange(merge**2)).flatten()
    arguments = {
        "position_ids": vision_utils.get_vision_position_ids(size, merge)[patches],
        "cu_seqlens": torch.tensor([0, len(patches)], dtype=torch.int32),
    }
    if getattr(visual.config, "fullatt_block_indexes", None) is not None:
        order, lengths = keep_windows(window_indices(visual, [shape]), kept)
        ends = torch.tensor([0, *lengths]).cumsum(0) * merge**2
        arguments |= {"window_index": order, "cu_window_seqlens": ends.int()}
    if hasattr(visual, "num_grid_per_side"):  # Qwen3-VL: learned positions, interpolated to the image's size
        names = ("interp_indices", "interp_weights")
        found = vision_utils.get_vision_interpolation_indices_and_weights(
            size,
            visual.num_grid_per_side,
            mode=visual.interpolation_mode,
            align_corners=visual.interpolation_align_corners,
            spatial_merge_size=merge,
        )
        arguments |= {name: one[patches] for name, one in zip(names, found, strict=True)}
    return arguments


def keep_windows(windows: Sequence[Tensor], kept: Tensor) -> tuple[Tensor, list[int]]:
    """The windows of [m] sorted tokens: [m] which of them comes next, and how many each window has; no empty ones.

    Windows of one size are neighbors, the largest first.
    """
    tokens = torch.cat(list(windows))
    owners = torch.repeat_interleave(torch.arange(len(windows)), torch.tensor([len(one) for one in windows]))
    places = torch.full((len(tokens),), -1)
    places[kept] = torch.arange(len(kept))
    places = places[tokens]
    owners, places = owners[places >= 0], places[places >= 0]
    lengths = torch.bincount(owners, minlength=len(windows))
    rank = torch.argsort(torch.argsort(lengths, descending=True, stable=True))
    order = places[torch.argsort(rank[owners], stable=True)]
    return order, sorted((n for n in lengths.tolist() if n), reverse=True)


def accepts_kept_tokens(visual: Any) -> bool:
    """Whether this version of transformers lets the caller pass what the encoder derives from an image's size."""
    names = ["get_vision_position_ids", "get_vision_cu_seqlens"]
    if hasattr(visual, "pos_embed"):
        names.append("get_vision_interpolation_indices_and_weights")
        if not hasattr(visual, "interpolation_mode"):
            return False
    return _accepts_window_order() and all(map(_accepts_given_values, names))


def _accepts_window_order() -> bool:
    """Whether this version of transformers lets the caller choose the order of windows."""
    return _accepts_given_values("get_vision_window_index")


@cache
def _accepts_given_values(name: str) -> bool:
    """Whether transformers has a function of this name that returns what its caller passes; asked for every image."""
    try:
        from transformers import vision_utils
    except ImportError:
        return False
    function = getattr(vision_utils, name, None)
    return function is not None and "kwargs" in inspect.signature(function).parameters


def _is_stock_sdpa(module: Any) -> bool:
    parts = all(hasattr(module, name) for name in ("qkv", "proj", "num_heads", "scaling"))
    return parts and module.config._attn_implementation == "sdpa" and "forward" not in module.__dict__
