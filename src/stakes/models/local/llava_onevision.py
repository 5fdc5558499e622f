"""LLaVA-OneVision: a SigLIP view of the whole image plus AnyRes tiles, with a newline token after each row."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from stakes.models.local.image_cache import Encoded
from stakes.models.local.vlm import LocalVLM, captured_inputs
from stakes.vision.deletion.blank import InkFilter
from stakes.vision.geometry import families
from stakes.vision.geometry.tiles import AnyRes
from stakes.vision.selectors.attention import attention_received


@dataclass
class LlavaOneVision(LocalVLM):
    """LLaVA-OneVision. ``attention_block``: where encoder attention is read, VisionZip's second to last."""

    attention_block: int = -2

    def __post_init__(self) -> None:
        """A checkpoint with other tiles than the published one (our own reader) counts by its own family."""
        config = self.model.config
        tile, patch = config.vision_config.image_size, config.vision_config.patch_size
        cap = int(config.vision_aspect_ratio.rpartition("_")[2])  # anyres_max_9
        formula = AnyRes(tile, tile // patch, max(map(max, config.image_grid_pinpoints)) // tile, cap)
        self.family = next((name for name, one in families().items() if one.formula == formula), self.family)

    def encode(self, image: Any, *, exact: bool, attention: bool, ink: InkFilter | None = None) -> Encoded:  # noqa: ARG002
        """Projected features in the order of the prompt: base view, then tile rows with newlines."""
        inputs = self.processor.images(images=[image], return_tensors="pt")
        pixels = inputs["pixel_values"].to(self.device, self.model.model.vision_tower.dtype)
        sizes = inputs["image_sizes"].to(self.device)
        module = self._block.self_attn
        with captured_inputs(module, enabled=attention) as inputs:
            out = self.model.model.get_image_features(pixels, sizes, return_dict=True)
        received, keys = self._attention(module, inputs["hidden_states"], sizes) if attention else (None, None)
        return Encoded(out.pooler_output[0], received=received, keys=keys)

    def positions(self, ids: Tensor, *encoded: Encoded) -> Tensor:  # noqa: ARG002
        """[1, T]: one after another."""
        return torch.arange(len(ids), device=ids.device)[None]

    @property
    def _block(self) -> Any:
        tower = self.model.model.vision_tower
        return getattr(tower, "vision_model", tower).encoder.layers[self.attention_block]

    def _attention(self, module: Any, hidden: Tensor, sizes: Tensor) -> tuple[Tensor, Tensor]:
        """Attention received [N] and head-mean keys [N, h], packed exactly as the features are.

        ``hidden``: [tiles, P, D]; attention stays within each tile. Newline tokens receive none.
        """
        tiles, patches, _ = hidden.shape
        shape = (tiles * patches, module.num_heads, -1)
        query, key = module.q_proj(hidden).view(shape), module.k_proj(hidden).view(shape)
        received = attention_received(query.float(), key.float(), [patches] * tiles, module.head_dim**-0.5)
        pack = self.model.model.pack_image_features
        aspect = self.model.config.vision_aspect_ratio
        packed = []
        for values in (received.view(tiles, patches, 1), key.mean(1).view(tiles, patches, -1)):
            newline = values.new_zeros(values.shape[-1])
            features, _ = pack([values], sizes, image_newline=newline, vision_aspect_ratio=aspect)
            packed.append(features[0])
        return packed[0][:, 0], packed[1]
