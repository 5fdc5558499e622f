"""Deletion for the families whose image features stand in the prompt one by one, by the family's own processor.

    image   -> the processor's pixels and text for it       whole(images=[image], text=[placeholder])
            -> [N, D] features                              model.get_image_features(pixels)
    prompt  -> the chat template, with that text in place of the placeholder, as token ids
            -> the features at the N columns of the image token, less those that a selector drops

A visual token is a column of the image token: it holds one row of features. What else a processor writes around them
is text and stays:

- llava 1.5: nothing. With Pixtral's encoder, and mistral3: a break after each row of patches, an end after the last.
- llava_next: nothing. The newline after each row of tiles is among the features, so it can be deleted as well.
- internvl: a start and an end around all tiles.
- gemma3: newlines, a start and an end. Image tokens of one view see each other in both directions (``attention``).
- idefics3, smolvlm: a marker of row and column before each tile, newlines after rows of tiles.
- glm4v: a start and an end; positions are M-RoPE's.

A budget counts what the family's formula counts. Where that includes markers (Pixtral, Mistral 3, Idefics3, SmolVLM),
they count and stay, and deletion keeps ``budget - markers`` features. Where resizing does not change the tokens and a
parameter of the processor does (InternVL, Idefics3, SmolVLM), a budget by resolution is realised by ``stock``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from stakes.errors import BadInput, LedgerBreach
from stakes.models.base import Answer, Request
from stakes.models.fast.decoder import FastDecoder
from stakes.models.local.attention import attention_rule
from stakes.models.local.image_cache import Encoded
from stakes.models.local.stock import StockVLM
from stakes.models.local.vlm import LocalVLM
from stakes.vision.deletion.blank import InkFilter
from stakes.vision.geometry import count_tokens
from stakes.vision.geometry import family as named_family
from stakes.vision.geometry.patches import EdgePatches
from stakes.vision.geometry.tiles import SplitTiles

READABLE_DECODERS = {"llama", "mistral", "qwen2", "qwen3"}  # whose attention in-model selectors compute again


@dataclass
class SplicedVLM(LocalVLM):
    """A model of transformers with ``get_image_features`` and a decoder of full or sliding-window attention."""

    several_images: ClassVar[bool] = True
    processor: Any

    def encode(self, image: Any, *, exact: bool, attention: bool, ink: InkFilter | None = None) -> Encoded:  # noqa: ARG002
        """Features in the order of the prompt."""
        if attention:
            raise BadInput(
                f"this selector reads the attention of the encoder, which is not read from a "
                f"{self.model.config.model_type}; take another one, such as redundancy"
            )
        inputs, text = self.processor.read(image.convert("RGB"))
        visual = {
            name: value.to(self.device, self.model.dtype if value.is_floating_point() else None)
            for name, value in inputs.items()
        }
        out = self.model.model.get_image_features(**visual, return_dict=True).pooler_output
        features = torch.cat([part.reshape(-1, part.shape[-1]) for part in out])  # one part for each view or image
        grid = inputs["image_grid_thw"][0].tolist() if "image_grid_thw" in inputs else None
        markers = self._markers(image, text)
        if not exact and named_family(self.family).factor is None:  # a checkpoint may have its own bounds of pixels
            self._check_count(image, len(features) + markers)
        return Encoded(features, grid=grid and tuple(grid), text=text, markers=markers)

    def ids(self, question: str, *encoded: Encoded) -> Tensor:
        """[T] ids of the unpruned prompt."""
        ids: Tensor = self.processor.ids(question, *(one.text for one in encoded))
        return ids

    def positions(self, ids: Tensor, *encoded: Encoded) -> Tensor:
        """[1, T] one after another, or [3, T] by M-RoPE where the encoder gave a grid (glm4v)."""
        if encoded[0].grid is None:
            return torch.arange(len(ids))[None]
        kinds = (ids == self.processor.image_token_id).int()[None]
        grid = torch.tensor([one.grid for one in encoded])
        positions, _ = self.model.model.get_rope_index(ids[None], mm_token_type_ids=kinds, image_grid_thw=grid)
        return torch.as_tensor(positions[:, 0])

    @property
    def stock(self) -> StockVLM:
        """The same model by stock ``generate``."""
        return StockVLM(self.model, self.processor, self.family, self.max_new_tokens, self.named, self._lock)

    @property
    def menu(self) -> tuple[int, ...] | None:
        """The budgets by resolution that a parameter of its processor can take; None: any, or none."""
        return self.stock.menu

    def open_ahead(self, requests: Sequence[Request]) -> None:
        """As of every local model, unless a parameter of the processor realises budgets."""
        if self.menu is None:
            super().open_ahead(requests)

    def answer(self, requests: Sequence[Request]) -> list[Answer]:
        """One answer for each request, in order; those whose budget a parameter realises are answered one by one."""
        by_parameter = [
            self.menu is not None
            and request.mechanism == "resolution"
            and any(part.budget is not None for part in request.parts)
            for request in requests
        ]
        both = list(zip(requests, by_parameter, strict=True))
        answers = {
            True: iter(self.stock.answer([request for request, stock in both if stock])),
            False: iter(super().answer([request for request, stock in both if not stock])),
        }
        return [next(answers[stock]) for stock in by_parameter]

    def native_tokens(self, width: int, height: int, mechanism: str) -> int:
        """Tokens of an image of this size with no budget; by deletion within the bounds of the checkpoint."""
        if mechanism == "resolution" and self.menu is not None:
            return self.menu[-1]
        images = self.processor.images
        if mechanism == "resolution" or named_family(self.family).factor is None:
            return count_tokens(self.family, width, height)
        return int(images.get_number_of_image_patches(height, width, {})) // int(images.merge_size) ** 2

    @property
    def fast_decoder(self) -> FastDecoder | None:
        """None: the GPU engine is not tested with these families, so they run by their stock layers."""
        return None

    @property
    def refuses_in_model(self) -> str | None:
        """Why no selector can drop tokens inside the decoder; None where it can."""
        decoder = self.model.config.get_text_config().model_type
        if decoder not in READABLE_DECODERS:
            return f"the attention of a {decoder} decoder is not computed again for selectors"
        if attention_rule(self.model) is not None:
            return "its layers have sliding windows, whose masks are not made shorter layer by layer"
        return None

    def _markers(self, image: Any, text: str) -> int:
        """Tokens of the image's text that the family's formula counts beside the features."""
        formula = named_family(self.family).formula
        if isinstance(formula, EdgePatches):
            whole = self.processor.whole
            names = (getattr(whole, name, None) for name in ("image_break_token", "image_end_token"))
            return sum(text.count(name) for name in names if name)
        if isinstance(formula, SplitTiles):  # counted by the formula: it depends on the tokenizer how many they are
            return formula.markers(image.width, image.height)
        return 0

    def _check_count(self, image: Any, count: int) -> None:
        expected = count_tokens(self.family, image.width, image.height)
        if count != expected:
            raise LedgerBreach(
                f"an image of {image.width}x{image.height} takes {expected} tokens in {self.family}, and this "
                f"checkpoint's processor wrote {count}; give the --family that counts as it does"
            )
