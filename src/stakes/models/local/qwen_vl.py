"""Qwen2-VL, Qwen2.5-VL and Qwen3-VL: dynamic resolution, 2 x 2 merged patches, M-RoPE."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stakes.models.base import Request
from stakes.models.fast import ops_for
from stakes.models.fast.patches import PatchTable
from stakes.models.fast.vision_encoder import (
    accepts_kept_tokens,
    accepts_one_frame,
    fast_encoder,
    keep_arguments,
    windows_by_size,
)
from stakes.models.fast.vision_packed import PackedEncoder
from stakes.models.local.ahead import ink_filter
from stakes.models.local.image_cache import Encoded, OpenedImage, PagePixels, thread_map
from stakes.models.local.vlm import LocalVLM, captured_inputs
from stakes.vision.deletion.blank import InkFilter, Kept, value_range
from stakes.vision.geometry import count_tokens
from stakes.vision.selectors.attention import apply_rope, attention_received


class PackedPatches(NamedTuple):
    """Patches of several images one after another, [P, C]; by image (t, h, w), and what its encoder reads of them."""

    patches: Tensor
    grid: list[tuple[int, int, int]]
    kept: list[Kept | None]


@dataclass
class QwenVL(LocalVLM):
    """The Qwen-VL families. ``attention_block``: where encoder attention is read, VisionZip's second to last.

    Where that block uses windows (Qwen2.5-VL), the last block with attention over the whole image is read instead.
    """

    several_images: ClassVar[bool] = True
    attention_block: int = -2

    def encode(self, image: Any, *, exact: bool, attention: bool, ink: InkFilter | None = None) -> Encoded:
        """Merged features in reading order; Qwen3-VL's deepstack features with them."""
        if self._encoder is not None and not attention:
            (encoded,) = self.encode_many([image], [exact], ink=[ink])
            return encoded
        visual, module = self.model.model.visual, self._attention_module
        with self._lock:  # leaving ``fast_encoder`` would change another thread's pass
            pixels, shape = self._pixels(image, exact, accepts_one_frame(visual))
            kept = None if ink is None else ink.keep(*self._levels(pixels), shape[2] // self._merge)
            pixels, grid, arguments = self._inputs(pixels, shape, None if kept is None else kept.tokens)
            with captured_inputs(module, enabled=attention) as inputs, fast_encoder(visual):
                out = self.model.model.get_image_features(pixels, grid, return_dict=True, **arguments)
        levels = getattr(out, "deepstack_features", None) or ()
        deepstack = tuple(level if isinstance(level, Tensor) else torch.cat(tuple(level)) for level in levels)
        order = arguments.get("window_index")
        received, keys = self._attention(module, inputs, order) if attention else (None, None)
        return Encoded(
            torch.cat(tuple(out.pooler_output)), shape, deepstack, received, keys, kept=kept, whole=self._tokens(shape)
        )

    def encode_many(
        self,
        images: Sequence[Any],
        exact: Sequence[bool],
        pixels: Sequence[PagePixels | None] = (),
        ink: Sequence[InkFilter | None] = (),
    ) -> list[Encoded]:
        """Several images in one call where the encoder allows it."""
        if self._encoder is None:
            return super().encode_many(images, exact, ink=ink)
        with self._lock:
            packed = self.pack_patches(images, exact, pixels, ink)
            tokens = [None if one is None else one.tokens for one in packed.kept]
            features = self._encoder(packed.patches, packed.grid, tokens)
        whole = [self._tokens(shape) for shape in packed.grid]
        parts = torch.split(features, [n if one is None else len(one) for n, one in zip(whole, tokens, strict=True)])
        own = [part.clone() for part in parts] if len(parts) > 1 else parts  # a view would hold the features of all
        return [
            Encoded(part, shape, kept=kept, whole=count)
            for part, shape, kept, count in zip(own, packed.grid, packed.kept, whole, strict=True)
        ]

    def pack_patches(
        self,
        images: Sequence[Any],
        exact: Sequence[bool],
        pixels: Sequence[PagePixels | None] = (),
        ink: Sequence[InkFilter | None] = (),
    ) -> PackedPatches:
        """Images -> their patches one after another in the encoder's own dtype.

        Neighbors of one size go to the device as bytes, and are looked up in one table. Images that the table does not
        take are left to the processor, one by one. ``ink``: what to leave out of each image.
        """
        filters = list(ink) or [None] * len(images)
        kept: list[Kept | None] = []
        table, dtype = self.processor.patch_table, self.model.model.visual.patch_embed.proj.weight.dtype
        parts: list[Tensor] = []
        grid: list[tuple[int, int, int]] = []
        for some, pages in same_size_runs(table, images, exact, pixels):
            if table is not None and pages:
                parts.append(table.patchify_stack(upload_pages(pages, self.device), dtype))
                own = filters[len(kept) : len(kept) + len(pages)]
                kept += kept_of_pages(table.side, pages, own)
                grid += [table.grid(image) for image in some]
            else:
                values, shape = self._pixels(some[0], exact[len(grid)], False)
                one = filters[len(kept)]
                kept.append(None if one is None else one.keep(*self._levels(values), shape[2] // self._merge))
                parts.append(values.to(self.device, dtype))
                grid.append(shape)
        width = max(part.shape[1] for part in parts)  # one frame, unless the processor was used
        patches = parts[0] if len(parts) == 1 else torch.cat([_repeat_frame(part, width) for part in parts])
        return PackedPatches(patches, grid, kept)

    def _inputs(
        self, pixels: Tensor, shape: tuple[int, int, int], kept: Tensor | None
    ) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Patches, size and further arguments of the stock encoder; ``kept``: [m] the tokens to read, None for all.

        The size of an image with dropped tokens is that of one row of them: it says how many features to expect.
        """
        visual, unit = self.model.model.visual, self._merge**2
        pixels = pixels.to(self.device)
        if kept is None:
            return pixels, torch.tensor([shape], device=self.device), windows_by_size(visual, [shape])
        pixels = pixels.view(-1, unit, pixels.shape[1])[kept.to(self.device)].flatten(0, 1)
        size = torch.tensor([[1, self._merge, self._merge * len(kept)]], device=self.device)
        arguments = keep_arguments(visual, shape, kept)
        return pixels, size, {name: value.to(self.device) for name, value in arguments.items()}

    def _levels(self, pixels: Tensor) -> tuple[Any, Any]:
        """Least and greatest level of each token and channel, of [P, C] patches."""
        images = self.processor.images
        return value_range(pixels, self._merge**2, images.image_mean, images.image_std)

    @cached_property
    def _encoder(self) -> PackedEncoder | None:
        """The encoder of whole batches: on the fast path, where it supports the model's encoder."""
        visual = self.model.model.visual
        if self.fast_decoder is None or not PackedEncoder.supports(visual):
            return None
        return PackedEncoder(visual, ops_for(self.device))

    def _pixels(self, image: Any, exact: bool, one_frame: bool) -> tuple[Tensor, tuple[int, int, int]]:
        """[P, C] patches of an image, in one frame where ``one_frame`` allows it, and (t, h, w) of them."""
        table = self.processor.patch_table
        patches = table.patchify(image, exact=exact, device=self.device) if table is not None and one_frame else None
        if table is not None and patches is not None:
            return patches, table.grid(image)
        count_tokens(self.family, image.width, image.height)  # refuses, in words, what the processor would
        side = self._patch * self._merge
        # The processor's own resizing is the identity on a fitted size; the bounds make sure that it does nothing else.
        size = {"size": {"shortest_edge": side * side, "longest_edge": image.width * image.height}} if exact else {}
        inputs = self.processor.images(images=[image], return_tensors="pt", **size)
        frames, rows, columns = inputs["image_grid_thw"][0].tolist()
        return inputs["pixel_values"], (frames, rows, columns)

    def ready(self, request: Request, image: OpenedImage) -> OpenedImage:
        """With its pixels where the device copies them from without waiting, and its blank tokens looked for."""
        table = self.processor.patch_table
        if image.pixels is None or table is None or not table.accepts(image.image, exact=image.key[2]):
            return image
        image.pixels.keep(table.side, ink_filter(self, request))
        return image._replace(pixels=image.pixels.page_locked()) if self.device.type == "cuda" else image

    def positions(self, ids: Tensor, *encoded: Encoded) -> Tensor:
        """[3, T] M-RoPE: text counts on, an image spans (t, h, w) from where the text stopped."""
        columns = (ids == self.processor.image_token_id).numpy()
        return torch.from_numpy(rope_positions(columns, [one.grid for one in encoded if one.grid], self._merge))

    @property
    def refuses_blank(self) -> str | None:
        """An encoder that derives everything from an image's size cannot be given some of its tokens."""
        if accepts_kept_tokens(self.model.model.visual):
            return None
        return "this version of transformers takes no positions for the encoder; install a newer one"

    @property
    def _patch(self) -> int:
        return int(self.model.config.vision_config.patch_size)

    @property
    def _merge(self) -> int:
        return int(self.model.config.vision_config.spatial_merge_size)

    def _tokens(self, shape: tuple[int, int, int]) -> int:
        """Merged tokens of an image of (t, h, w) patches."""
        frames, rows, columns = shape
        return frames * rows * columns // self._merge**2

    @property
    def _attention_module(self) -> Any:
        """The attention of the block whose attention selectors read."""
        visual = self.model.model.visual
        full = getattr(visual.config, "fullatt_block_indexes", None)
        index = range(len(visual.blocks))[self.attention_block]
        return visual.blocks[index if full is None or index in full else max(full)].attn

    def _attention(self, module: Any, inputs: dict[str, Any], order: Tensor | None) -> tuple[Tensor, Tensor]:
        """Attention received [N] and head-mean keys [N, h], averaged over merge groups, in reading order.

        ``order``: [N] the tokens as the encoder has them; None: in reading order. Qwen2.5-VL's encoder works window by
        window from its first block to its merger; read in that order, a score would belong to some other part of the
        page.
        """
        hidden = inputs["hidden_states"]
        query, key, _ = module.qkv(hidden).view(len(hidden), 3, module.num_heads, -1).unbind(1)
        cos, sin = inputs["position_embeddings"]
        rotated_query, rotated_key = (apply_rope(x.float(), cos.float(), sin.float()) for x in (query, key))
        lengths = inputs["cu_seqlens"].diff().tolist()
        received = attention_received(rotated_query, rotated_key, lengths, module.scaling)
        received = received.view(-1, self._merge**2).mean(1)
        keys = key.mean(1).view(len(received), self._merge**2, -1).mean(1)
        if order is None:
            return received, keys
        back = torch.argsort(order).to(received.device)
        return received[back], keys[back]


def rope_positions(columns: NDArray[np.bool_], grid: Sequence[tuple[int, int, int]], merge: int) -> NDArray[np.int64]:
    """[3, T] M-RoPE positions of a prompt; ``columns``: [T] where image tokens are, ``grid``: patches of each image.

    Stock ``get_rope_index`` gives the same (tests compare them) in fifteen times the time, while the GPU waits.
    """
    positions = np.empty((3, len(columns)), dtype=np.int64)
    at = after = 0
    for frames, height, width in grid:
        rows, across = height // merge, width // merge
        first = at + int(columns[at:].argmax())
        positions[:, at:first] = np.arange(after, after + first - at)
        after, end = after + first - at, first + frames * rows * across
        each = positions[:, first:end].reshape(3, frames, rows, across)
        each[:] = np.indices((frames, rows, across)) + after
        at, after = end, after + max(frames, rows, across)
    positions[:, at:] = np.arange(after, after + len(columns) - at)
    return positions


def same_size_runs(
    table: PatchTable | None, images: Sequence[Any], exact: Sequence[bool], pixels: Sequence[PagePixels | None] = ()
) -> Iterator[tuple[list[Any], list[PagePixels]]]:
    """Runs of neighbors of one size with their pixels; an image that the table refuses is alone, without."""
    items = list(zip(images, exact, pixels or [None] * len(images), strict=True))

    def size(at: int) -> Any:
        image, fitted, _ = items[at]
        return image.size if table is not None and table.accepts(image, exact=fitted) else at

    for name, places in groupby(range(len(items)), size):
        run = [items[at] for at in places]
        refused = isinstance(name, int)
        pages = [] if refused else [known or PagePixels(np.asarray(image)) for image, _, known in run]
        yield [image for image, _, _ in run], pages


def upload_pages(pages: Sequence[PagePixels], device: torch.device) -> Tensor:
    """Pages of one size -> [n, H, W, 3] bytes on the device, by copies that are asynchronous on CUDA."""
    stack = torch.empty(len(pages), *pages[0].values.shape, dtype=torch.uint8, device=device)
    if device.type != "cuda":
        np.stack([np.asarray(page.values) for page in pages], out=stack.numpy())
        return stack
    for place, page in zip(stack, thread_map(PagePixels.page_locked, pages), strict=True):
        place.copy_(page.values, non_blocking=True)
    return stack


def kept_of_pages(side: int, pages: Sequence[PagePixels], filters: Sequence[InkFilter | None]) -> list[Kept | None]:
    """What the encoder reads of each page; pages that were not opened ahead are looked through in threads."""
    new = [(page, ink) for page, ink in zip(pages, filters, strict=True) if not page.is_known(side, ink)]
    thread_map(lambda one: one[0].keep(side, one[1]), new)
    return [page.keep(side, ink) for page, ink in zip(pages, filters, strict=True)]


def _repeat_frame(pixels: Tensor, width: int) -> Tensor:
    """[P, 3 * patch * patch] of one frame as [P, ``width``], the frame repeated as in a video."""
    if pixels.shape[1] == width:
        return pixels
    once = pixels.view(len(pixels), 3, 1, -1)
    return once.expand(-1, -1, width // pixels.shape[1], -1).reshape(len(pixels), width)
