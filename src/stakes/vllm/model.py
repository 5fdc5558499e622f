"""The part of a vLLM model that reduces the encoder's output and gives kept tokens their own positions."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from stakes.vision.selectors.base import Scene
from stakes.vllm.budgets import BUDGET, NATIVE, SELECTOR, Deletion, selector_of, unpacked
from stakes.vllm.positions import Reduced, place, shrink, unprune, with_places, without_places
from stakes.vllm.processor import deletion_of

if TYPE_CHECKING:
    Model = Any
else:
    Model = object

_LOG = logging.getLogger("vllm.stakes")
OFF = "or switch the plugin off: VLLM_PLUGINS= (empty)"


def always() -> bool:
    """In the place of one configuration's ``is_multimodal_pruning_enabled``."""
    return True


class DeletionModel(Model):
    """Mixed into a model of vLLM. ``feature_size``: what the language model reads of an encoder's row.

    vLLM's GPU workers ask for positions again after the encoder where videos are pruned. So that switch is set, on the
    configuration of this model alone, and everything that prunes videos stays off. Its CPU worker never asks; there
    rows and columns reach ``embed_input_ids``, and ``forward`` adds them to the positions of the same step.

    A family says how its encoder's inputs are cut (``part``), how wide its images are (``columns``), what the positions
    of a prompt with whole images are (``whole_positions``), and which of them its language model takes (``rotary``).
    """

    feature_size: int

    def __init__(self, *, vllm_config: Any, prefix: str = "") -> None:
        check_configuration(vllm_config)
        config = vllm_config.model_config.get_multimodal_config()
        config.is_multimodal_pruning_enabled = always  # first: with it Qwen3-VL's rotary embedding has room
        super().__init__(vllm_config=vllm_config, prefix=prefix)
        self.is_multimodal_pruning_enabled = False
        self._media_ids: set[int] = set()
        self._pending: tuple[Tensor, Tensor] | None = None
        self._most_tokens = vllm_config.scheduler_config.max_num_encoder_input_tokens

    def get_encoder_cudagraph_config(self) -> Any:
        """None of the encoder's CUDA graphs: they pass by ``embed_multimodal``."""
        return replace(super().get_encoder_cudagraph_config(), modalities=[])

    def embed_multimodal(self, **kwargs: Any) -> Any:
        """One [k, D] or, with row and column of each token, [k, D + 4] for each item."""
        budgets, packed, natives = (kwargs.pop(name, None) for name in (BUDGET, SELECTOR, NATIVE))
        if budgets is None or not any(budgets.tolist()):
            return super().embed_multimodal(**kwargs)
        found = zip(budgets.tolist(), packed, strict=True)
        own = [unpacked(budget, bytes(one.tolist())) for budget, one in found]
        columns = self.columns(kwargs, natives.tolist())
        outputs: list[Tensor] = []
        for first, last in self._chunks(natives.tolist()):
            whole = super().embed_multimodal(**self.part(kwargs, first, last))
            for output, deletion, width in zip(whole, own[first:last], columns[first:last], strict=True):
                outputs.append(output if deletion is None else self._reduced(output, deletion, width))
        return tuple(outputs)

    def part(self, kwargs: Mapping[str, Any], first: int, last: int) -> dict[str, Any]:
        """The encoder's inputs of images ``first`` to ``last``, of all of them those that there are."""
        raise NotImplementedError

    def columns(self, kwargs: Mapping[str, Any], natives: list[int]) -> list[int]:
        """The tokens in a row of each image, by which ``natives`` are numbered."""
        raise NotImplementedError

    def whole_positions(self, ids: list[int], features: list[Any]) -> tuple[Tensor, int]:
        """[3, T] of a prompt with whole images, and where decoding goes on."""
        raise NotImplementedError

    def rotary(self, positions: Tensor) -> Tensor:
        """What the language model takes of [3, T] positions."""
        return positions

    def _chunks(self, sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Runs of images that the encoder takes at once. The scheduler counts the tokens that stay, not these."""
        first = total = 0
        for at, size in enumerate(sizes):
            if at > first and total + size > self._most_tokens:
                yield first, at
                first, total = at, 0
            total += size
        yield first, len(sizes)

    def _reduced(self, output: Tensor, own: Deletion, columns: int) -> Tensor:
        """[N, D] -> [k, D + 4]. A selector sees what the language model receives first, without deepstack features."""
        features = output[:, : self.feature_size]
        if not bool(features.isfinite().all()):
            _LOG.warning("an image has features that are not finite numbers; they are ranked as 0")
            features = features.nan_to_num(0, 0, 0)
        selection = selector_of(own.selector).select(Scene(features, sample=own.sample), own.budget)
        return with_places(selection.apply(output), selection.indices, columns)

    def get_mrope_input_positions(self, input_tokens: list[int], mm_features: list[Any]) -> tuple[Tensor, int]:
        """[3, N] with every token of a reduced image at the image's base, and where decoding goes on."""
        features = sorted(mm_features, key=lambda one: one.mm_position.offset)
        self._media_ids.update(input_tokens[_first(one.mm_position)] for one in features)
        images = [image for one in features if (image := _image(one)) is not None]
        if not images:
            return self.whole_positions(input_tokens, mm_features)
        moved, ahead = [], 0
        for one in features:
            image, span = _image(one), one.mm_position
            more = 0 if image is None else image.native - image.kept
            moved.append(replace(one, mm_position=replace(span, offset=span.offset + ahead, length=span.length + more)))
            ahead += more
        whole, delta = self.whole_positions(unprune(input_tokens, images), moved)
        return shrink(whole, images), delta + ahead

    def recompute_mrope_positions(
        self, input_ids: Any, multimodal_embeddings: Sequence[Tensor], mrope_positions: Tensor, num_computed_tokens: int
    ) -> tuple[list[Tensor], Tensor, int]:
        """The outputs of one chunk without rows and columns, the positions with them, and where decoding goes on."""
        split = [without_places(one, self._width) for one in multimodal_embeddings]
        if any(where is not None for _, where in split):
            ids = torch.as_tensor(input_ids, device=mrope_positions.device)
            media = torch.isin(ids, torch.tensor(sorted(self._media_ids), device=ids.device))
            items = [(len(output), where) for output, where in split]
            mrope_positions = place(mrope_positions, media, num_computed_tokens, items)
        # Text comes last and has the greatest position, also after an image that lost its lowest rows.
        return [output for output, _ in split], mrope_positions, int(mrope_positions.max()) + 1 - len(input_ids)

    def embed_input_ids(
        self, input_ids: Tensor, multimodal_embeddings: Any = None, *, is_multimodal: Tensor | None = None
    ) -> Tensor:
        """The step's embeddings. Rows and columns that are still in them are kept for ``forward``."""
        self._pending = None
        split = [without_places(one, self._width) for one in multimodal_embeddings or ()]
        if is_multimodal is not None and any(where is not None for _, where in split):
            columns = torch.split(is_multimodal.nonzero()[:, 0].cpu(), [len(output) for output, _ in split])
            kept = [(column, where) for column, (_, where) in zip(columns, split, strict=True) if where is not None]
            self._pending = torch.cat([column for column, _ in kept]), torch.cat([where for _, where in kept], dim=1)
        embeddings = [output for output, _ in split] if split else multimodal_embeddings
        made: Tensor = super().embed_input_ids(input_ids, embeddings, is_multimodal=is_multimodal)
        return made

    def forward(
        self,
        input_ids: Tensor | None,
        positions: Tensor,
        intermediate_tensors: Any = None,
        inputs_embeds: Tensor | None = None,
        **options: Any,
    ) -> Any:
        """One step; ``positions``: [3, T], in which a reduced image's tokens are at its base."""
        if self._pending is not None:
            columns, where = (one.to(positions.device) for one in self._pending)
            positions[1:, columns] = positions[0, columns] + where.to(positions.dtype)
            self._pending = None
        return super().forward(input_ids, self.rotary(positions), intermediate_tensors, inputs_embeds, **options)

    @property
    def _width(self) -> int:
        levels = len(getattr(self.config.vision_config, "deepstack_visual_indexes", ()))
        return self.feature_size * (1 + levels)


def check_configuration(config: Any) -> None:
    """Refuse the settings of a server under which positions would be wrong."""
    if config.parallel_config.pipeline_parallel_size > 1:
        raise ValueError(f"stakes deletes tokens on the first pipeline stage only; serve without stages, {OFF}")
    if config.speculative_config is not None:
        raise ValueError(f"stakes deletes no tokens under speculative decoding; serve without it, {OFF}")
    if config.model_config.get_multimodal_config().video_pruning_rate:
        raise ValueError(f"stakes cannot delete beside --video-pruning-rate; leave it out, {OFF}")


def _first(span: Any) -> int:
    """The column of a placeholder's first media token; text may stand before it."""
    return int(span.offset + (0 if span.is_embed is None else int(span.is_embed.int().argmax())))


def _image(feature: Any) -> Reduced | None:
    own = deletion_of(feature.data) if feature.modality == "image" else None
    if own is None:
        return None
    return Reduced(_first(feature.mm_position), own.budget, int(feature.data[NATIVE].data))
