"""Qwen2-VL, Qwen2.5-VL and Qwen3-VL: dynamic resolution, 2 x 2 merged patches, M-RoPE."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stakes.models.fast.ops import chosen
from stakes.models.fast.patches import Patches
from stakes.models.fast.vision_encoder import by_size, faster, takes_one_frame, windows
from stakes.models.fast.vision_packed import PackedEncoder
from stakes.models.local.image_cache import Encoded, side_by_side
from stakes.models.local.vlm import LocalVLM
from stakes.vision.geometry import count_tokens
from stakes.vision.selectors.attention import received, rotate

# How do the pages of a call become one heap of patches?
#
# Neighbours of one size go to the device in one copy, as bytes, and are looked up in one table (``patches``).
# Page-locked
# memory lets the host go on meanwhile: it comes from torch's own allocator, which lends it to nobody else before the
# copy
# is over. What the table does not know is left to the processor, image by image.


def runs(
    patches: Patches | None, images: Sequence[Any], exact: Sequence[bool], pixels: Sequence[Any] = ()
) -> Iterator[tuple[list[Any], list[Any]]]:
    """Neighbours that the table takes together, with their pixels [H, W, 3]; one alone and no pixels: none takes it."""
    known = pixels or [None] * len(images)
    asked = list(zip(images, exact, known, strict=True))

    def size(at: int) -> Any:
        image, fitted, _ = asked[at]
        return image.size if patches is not None and patches.takes(image, exact=fitted) else at

    for name, places in groupby(range(len(asked)), size):
        some = [asked[at] for at in places]
        if isinstance(name, int):
            yield [some[0][0]], []
        else:
            yield [image for image, _, _ in some], [np.asarray(i) if known is None else known for i, _, known in some]


def stacked(pages: Sequence[Any], device: torch.device) -> Tensor:
    """Pages [H, W, 3] of one size -> [n, H, W, 3] bytes on the device, by one copy, which on CUDA nobody waits for."""
    locked = device.type == "cuda"
    stack = torch.empty(len(pages), *pages[0].shape, dtype=torch.uint8, pin_memory=locked)
    side_by_side(np.copyto, list(stack.numpy()), pages)
    return stack.to(device, non_blocking=locked)  # memory that is not locked may be gone before it has been read


@dataclass
class QwenVL(LocalVLM):
    """The Qwen-VL families. ``attention_block``: where encoder attention is read, VisionZip's second to last.

    Where that block attends in windows (Qwen2.5-VL), the last block that attends to the whole image is read instead.
    """

    attention_block: int = -2

    def encode(self, image: Any, *, exact: bool, attention: bool) -> Encoded:
        """Merged features, reading order; Qwen3-VL's deepstack features with them."""
        if self._encoder is not None and not attention:
            (found,) = self.encode_many([image], [exact])
            return found
        visual = self.model.model.visual
        with self._one_at_a_time:  # who leaves ``faster`` would change another's pass in its middle
            pixels, shape = self._pixels(image, exact, takes_one_frame(visual))
            grid = torch.tensor([shape], device=self.device)
            with self._listening(attention) as heard, faster(visual):
                out = self.model.model.get_image_features(
                    pixels.to(self.device), grid, return_dict=True, **by_size(visual, [shape])
                )
        levels = getattr(out, "deepstack_features", None) or ()
        deepstack = tuple(level if isinstance(level, Tensor) else torch.cat(tuple(level)) for level in levels)
        looks, keys = self._attention(heard, shape) if attention else (None, None)
        return Encoded(torch.cat(tuple(out.pooler_output)), shape, deepstack, looks, keys)

    def encode_many(self, images: Sequence[Any], exact: Sequence[bool], pixels: Sequence[Any] = ()) -> list[Encoded]:
        """Several images in one call where the encoder allows it."""
        encoder = self._encoder
        if encoder is None:
            return super().encode_many(images, exact)
        with self._one_at_a_time:
            heap, grid = self.heap(images, exact, pixels)
            features = encoder(heap, grid)
        counts = [t * h * w // self._merge**2 for t, h, w in grid]
        parts = torch.split(features, counts)
        own = [part.clone() for part in parts] if len(parts) > 1 else parts  # or each would keep the features of all
        return [Encoded(part, shape) for part, shape in zip(own, grid, strict=True)]

    def heap(
        self, images: Sequence[Any], exact: Sequence[bool], pixels: Sequence[Any] = ()
    ) -> tuple[Tensor, list[tuple[int, int, int]]]:
        """Images -> their patches one after another, [P, C] in the encoder's own dtype, and (t, h, w) of each."""
        patches, kind = self.processor.patches, self.model.model.visual.patch_embed.proj.weight.dtype
        parts: list[Tensor] = []
        grid: list[tuple[int, int, int]] = []
        for some, pages in runs(patches, images, exact, pixels):
            if patches is not None and pages:
                parts.append(patches.of_stack(stacked(pages, self.device), kind))
                grid += [patches.grid(image) for image in some]
            else:
                values, shape = self._pixels(some[0], exact[len(grid)], False)
                parts.append(values.to(self.device, kind))
                grid.append(shape)
        frames = max(part.shape[1] for part in parts)  # one frame, unless the processor had to be asked
        return parts[0] if len(parts) == 1 else torch.cat([_frames(part, frames) for part in parts]), grid

    @cached_property
    def _encoder(self) -> PackedEncoder | None:
        """The encoder that takes a batch in one call: on the fast path, where it knows the model's."""
        visual = self.model.model.visual
        ops = chosen(self.device)
        return PackedEncoder(visual, ops) if self.fast_decoder is not None and PackedEncoder.takes(visual) else None

    def _pixels(self, image: Any, exact: bool, one_frame: bool) -> tuple[Tensor, tuple[int, int, int]]:
        """[P, C] patches of an image, in one frame where that is enough, and (t, h, w) of them."""
        patches = self.processor.patches
        found = patches.of(image, exact=exact, device=self.device) if patches is not None and one_frame else None
        if patches is not None and found is not None:
            return found, patches.grid(image)
        count_tokens(self.family, image.width, image.height)  # refuses, in words, what the processor would
        side = self._patch * self._merge
        # The processor's own resizing is the identity on a fitted size; the bounds make sure that it does nothing else.
        size = {"size": {"shortest_edge": side * side, "longest_edge": image.width * image.height}} if exact else {}
        inputs = self.processor.images(images=[image], return_tensors="pt", **size)
        frames, rows, columns = inputs["image_grid_thw"][0].tolist()
        return inputs["pixel_values"], (frames, rows, columns)

    def positions(self, ids: Tensor, encoded: Encoded) -> Tensor:
        """[3, T] M-RoPE: text counts on, an image spans (t, h, w) from where the text stopped."""
        kinds = (ids == self.processor.image_token_id).int()[None]
        grid = torch.tensor([encoded.grid], device=ids.device)
        found, _ = self.model.model.get_rope_index(ids[None], mm_token_type_ids=kinds, image_grid_thw=grid)
        return torch.as_tensor(found[:, 0])

    @property
    def _patch(self) -> int:
        return int(self.model.config.vision_config.patch_size)

    @property
    def _merge(self) -> int:
        return int(self.model.config.vision_config.spatial_merge_size)

    @contextmanager
    def _listening(self, attention: bool) -> Iterator[dict[str, Any]]:
        """Catch what enters one block's attention while the block lasts."""
        visual = self.model.model.visual
        full = getattr(visual.config, "fullatt_block_indexes", None)
        index = range(len(visual.blocks))[self.attention_block]
        index = index if full is None or index in full else max(full)
        module = visual.blocks[index].attn
        heard: dict[str, Any] = {"module": module}

        def hook(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            heard.update(kwargs, hidden=args[0] if args else kwargs["hidden_states"])

        handle = module.register_forward_pre_hook(hook, with_kwargs=True) if attention else None
        try:
            yield heard
        finally:
            if handle is not None:
                handle.remove()

    def _attention(self, heard: dict[str, Any], grid: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """Attention received [N] and head-mean keys [N, h], averaged over merge groups, in reading order."""
        module, hidden = heard["module"], heard["hidden"]
        query, key, _ = module.qkv(hidden).view(len(hidden), 3, module.num_heads, -1).unbind(1)
        cos, sin = heard["position_embeddings"]
        key_plain = key
        query, key = (rotate(x.float(), cos.float(), sin.float()) for x in (query, key))
        lengths = heard["cu_seqlens"].diff().tolist()
        groups = self._merge**2
        looks = received(query, key, lengths, module.scaling).view(-1, groups).mean(1)
        keys = key_plain.mean(1).view(len(looks), groups, -1).mean(1)
        back = self._reading_order(grid).to(looks.device)
        return looks[back], keys[back]

    def _reading_order(self, grid: tuple[int, ...]) -> Tensor:
        """[N] where each merged token of the page stands in encoder order.

        Qwen2.5-VL's encoder works window by window from its first block to its merger. Read in that order, a score
        belongs to some other part of the page.
        """
        return torch.argsort(torch.cat(windows(self.model.model.visual, [grid])))


def _frames(pixels: Tensor, width: int) -> Tensor:
    """[P, 3 * patch * patch] of one frame as [P, ``width``]: the frame once or, to look like a film, again."""
    if pixels.shape[1] == width:
        return pixels
    once = pixels.view(len(pixels), 3, 1, -1)
    return once.expand(-1, -1, width // pixels.shape[1], -1).reshape(len(pixels), width)
