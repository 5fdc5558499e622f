"""The part of a vLLM processor that gives an image exactly its budget of placeholder tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from vllm.multimodal.inputs import MultiModalFieldConfig
from vllm.multimodal.processing import BaseMultiModalProcessor

from stakes.errors import BadInput, StakesError
from stakes.vllm.budgets import BUDGET, PREFIX, SELECTOR, Deletion, only, read_deletions, unpacked, without_deletions

_FIELDS = (BUDGET, SELECTOR)
_SIDES = 200_000  # more images than vLLM's cache of 4 GiB holds


class DeletionProcessor(BaseMultiModalProcessor):
    """Mixed into the processor of a family. Each image item carries its budget and its selector to the worker."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        own = self.info.ctx.get_mm_config().mm_processor_kwargs or {}
        if names := [name for name in own if name.startswith(PREFIX)]:
            raise ValueError(f"{names[0]} is an option of a request, not of the server's --mm-processor-kwargs")
        self._sides: dict[str, int] = {}  # the longer side of reduced images in tokens, by key

    def apply(self, inputs: Any, timing_ctx: Any) -> Any:
        """Refuse what cannot be done before anything is cached, in words for the client."""
        deletions = self._deletions(inputs)
        made = super().apply(inputs, timing_ctx)
        if any(deletions):
            self._check_positions(made, deletions)
        return made

    def _deletions(self, inputs: Any) -> list[Deletion | None]:
        return _read(inputs.hf_processor_mm_kwargs, _images(inputs.mm_data_items))

    def _get_mm_hashes(self, inputs: Any) -> Any:
        """Budget and selector are part of an image's key; an image without them has the key that vLLM gives it."""
        deletions = self._deletions(inputs)
        hashes = super()._get_mm_hashes(
            replace(inputs, hf_processor_mm_kwargs=without_deletions(inputs.hf_processor_mm_kwargs))
        )
        if any(deletions):
            pairs = zip(hashes["image"], deletions, strict=True)
            hashes["image"] = [whole if own is None else own.key(whole) for whole, own in pairs]
        return hashes

    def _get_cache_missing_processor_kwargs(self, inputs: Any, mm_is_cached: Any) -> Mapping[str, object]:
        """A list of budgets without those of the images that are cached."""
        options = super()._get_cache_missing_processor_kwargs(inputs, mm_is_cached)
        return only(options, [at for at, cached in enumerate(mm_is_cached.get("image", ())) if not cached])

    def _apply_hf_processor_main(self, mm_items: Any, hf_kwargs: Mapping[str, object]) -> Any:
        deletions = _read(hf_kwargs, _images(mm_items))
        made = super()._apply_hf_processor_main(mm_items, without_deletions(hf_kwargs))
        if any(deletions):
            made[BUDGET] = torch.tensor([own.budget if own else 0 for own in deletions])
            made[SELECTOR] = [torch.tensor(list(own.packed() if own else b""), dtype=torch.uint8) for own in deletions]
        return made

    def _get_mm_fields_config(self, hf_inputs: Any, hf_processor_mm_kwargs: Mapping[str, object]) -> Any:
        own = super()._get_mm_fields_config(hf_inputs, without_deletions(hf_processor_mm_kwargs))
        # On the CPU: positions need the budget also where a prefix cache holds the image and its pixels are gone.
        return {**own, **{name: MultiModalFieldConfig.batched("image", keep_on_cpu=True) for name in _FIELDS}}

    def _get_prompt_updates(
        self, mm_items: Any, hf_processor_mm_kwargs: Mapping[str, object], out_mm_kwargs: Any
    ) -> Sequence[Any]:
        updates = super()._get_prompt_updates(mm_items, without_deletions(hf_processor_mm_kwargs), out_mm_kwargs)
        return [self._shortened(one, out_mm_kwargs) if one.modality == "image" else one for one in updates]

    def _shortened(self, update: Any, out_mm_kwargs: Any) -> Any:
        whole = update.replacement

        def replacement(item: int) -> Any:
            ids = whole(item)
            own = deletion_of(out_mm_kwargs["image"][item])
            if own is None:
                return ids
            if own.budget > len(ids):
                raise ValueError(f"a {BUDGET} of {own.budget} exceeds the {len(ids)} tokens of image {item + 1}")
            return ids[: own.budget]

        return replace(update, replacement=replacement)

    def _check_positions(self, made: Any, deletions: Sequence[Deletion | None]) -> None:
        """Refuse what no position could be given to.

        A prompt that ends in an image says nowhere how tall the image was. The rotary embedding has room for at least
        twice the model's length; images whose sides are longer than their budgets would leave it.
        """
        ids, merge = made["prompt_token_ids"], self.info.get_hf_config().vision_config.spatial_merge_size
        if max(one.offset + one.length for one in made["mm_placeholders"]["image"]) == len(ids):
            raise ValueError(f"a prompt with a {BUDGET} must not end in an image; put text after it")
        ahead = 0
        for own, key, item in zip(deletions, made["mm_hashes"]["image"], made["mm_kwargs"]["image"], strict=True):
            if item is not None:  # None: the worker has it
                self._sides[key] = max(item["image_grid_thw"].data[1:].tolist()) // merge
            ahead += 0 if own is None else max(0, self._sides[key] - own.budget)
        while len(self._sides) > _SIDES:
            self._sides.pop(next(iter(self._sides)), None)
        if ahead > (most := self.info.ctx.model_config.max_model_len):
            raise ValueError(
                f"the positions of this prompt would run {ahead} beyond its tokens, more than the model's {most}; give "
                "larger budgets, or fewer images"
            )


class RefusingProcessor(BaseMultiModalProcessor):
    """Mixed into the processor of a family whose kept tokens could not keep their positions."""

    def apply(self, inputs: Any, timing_ctx: Any) -> Any:
        """Refuse a budget by the family's name."""
        if any(name.startswith(PREFIX) for name in inputs.hf_processor_mm_kwargs):
            kind = self.info.get_hf_config().model_type
            raise ValueError(
                f"{kind} takes no {BUDGET}: vLLM numbers its tokens one after another, and kept tokens could not keep "
                "their positions; give a policy of mechanism resolution"
            )
        return super().apply(inputs, timing_ctx)


def deletion_of(item: Any) -> Deletion | None:
    """What is kept of an image item; None: all of it."""
    if item is None or item.get(BUDGET) is None:
        return None
    return unpacked(int(item[BUDGET].data), bytes(item[SELECTOR].data.tolist()))


def _images(items: Any) -> int:
    return int(items.get_all_counts().get("image", 0))


def _read(options: Mapping[str, Any], images: int) -> list[Deletion | None]:
    try:
        return read_deletions(options, images)
    except (BadInput, StakesError) as error:
        raise ValueError(str(error)) from error  # which vLLM answers with a 400
