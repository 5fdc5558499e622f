"""The part of a vLLM processor that gives an image exactly its budget of placeholder tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from vllm.multimodal.inputs import MultiModalFieldConfig
from vllm.multimodal.processing import BaseMultiModalProcessor, PromptUpdateDetails

from stakes.errors import BadInput, StakesError
from stakes.vllm.budgets import (
    BUDGET,
    NATIVE,
    PREFIX,
    SELECTOR,
    Deletion,
    only,
    read_deletions,
    unpacked,
    without_deletions,
)

_FIELDS = (BUDGET, SELECTOR, NATIVE)
_MOST = 200_000  # more images than vLLM's cache of 4 GiB holds


class DeletionProcessor(BaseMultiModalProcessor):
    """Mixed into the processor of a family. Each image item carries its budget and its selector to the worker."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        own = self.info.ctx.get_mm_config().mm_processor_kwargs or {}
        if names := [name for name in own if name.startswith(PREFIX)]:
            raise ValueError(f"{names[0]} is an option of a request, not of the server's --mm-processor-kwargs")
        self._ahead: dict[str, int] = {}  # by how many positions the longer side of a reduced image exceeds its budget

    def apply(self, inputs: Any, timing_ctx: Any) -> Any:
        """Refuse what cannot be done, in words for the client.

        Before a cache holds the images: it would believe that the worker has got those of a request that was refused.
        """
        image = getattr(self.info.get_hf_config(), "image_token_id", None)  # None: an image has an end
        if any(self._deletions(inputs)) and inputs.prompt[-1] == image:
            raise ValueError(f"a prompt with a {BUDGET} must not end in an image; put text after it")
        made = super().apply(inputs, timing_ctx)
        keys = made["mm_hashes"].get("image", ())
        self._check_ahead(made["mm_hashes"], keys, made["mm_kwargs"].get("image", ()))  # where no cache is used
        return made

    def natives(self, items: Any, made: Any) -> list[int]:
        """The tokens of each image without a budget; ``made``: what the family's processor made of the images."""
        raise NotImplementedError

    def ahead(self, item: Any, budget: int) -> int:
        """By how many positions an image exceeds its budget."""
        raise NotImplementedError

    def room(self) -> int:
        """By how many positions a prompt may run ahead of its tokens, so that the rotary embedding has all of them."""
        return int(self.info.ctx.model_config.max_model_len)

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
            made[NATIVE] = torch.tensor(self.natives(mm_items, made))
            made[SELECTOR] = [torch.tensor(list(own.packed() if own else b""), dtype=torch.uint8) for own in deletions]
        return made

    def _merge_mm_kwargs(self, cache: Any, mm_hashes: Any, mm_is_cached: Any, *given: Any, **options: Any) -> Any:
        missing = given[0] if given else options["mm_missing_kwargs"]
        pairs = zip(mm_hashes.get("image", ()), mm_is_cached.get("image", ()), strict=True)
        self._check_ahead(mm_hashes, [key for key, cached in pairs if not cached], missing.get("image", ()))
        return super()._merge_mm_kwargs(cache, mm_hashes, mm_is_cached, *given, **options)

    def _check_ahead(self, hashes: Any, new: Sequence[str], items: Sequence[Any]) -> None:
        """Refuse a prompt whose positions the rotary embedding might not have; ``items``: the images ``new``."""
        for key, item in zip(new, items, strict=True):
            if (own := deletion_of(item)) is not None:
                self._ahead[key] = self.ahead(item, own.budget)
        while len(self._ahead) > _MOST:
            self._ahead.pop(next(iter(self._ahead)), None)
        ahead = sum(self._ahead.get(key, 0) for key in hashes.get("image", ()))
        if ahead > (most := self.room()):
            raise ValueError(
                f"the positions of this prompt would run {ahead} beyond its tokens, and this server has room for "
                f"{most}; give larger budgets, fewer images, or the server another --max-model-len"
            )

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
            found, made = whole(item), out_mm_kwargs["image"][item]
            own = deletion_of(made)
            if own is None:
                return found
            details = found if isinstance(found, PromptUpdateDetails) else PromptUpdateDetails(full=found)
            ids = torch.tensor(details.full)
            media = (
                torch.ones(len(ids), dtype=torch.bool) if details.is_embed is None else details.is_embed(details.full)
            )
            native = int(media.sum())
            if native != int(made[NATIVE].data):
                raise ValueError(f"image {item + 1} has {native} tokens and should have {int(made[NATIVE].data)}")
            if own.budget > native:
                raise ValueError(f"a {BUDGET} of {own.budget} exceeds the {native} tokens of image {item + 1}")
            stays = ~media | (media.cumsum(0) <= own.budget)
            return replace(details, full=ids[stays].tolist())

        return replace(update, replacement=replacement)


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
