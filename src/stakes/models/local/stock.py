"""Any image-text-to-text model that transformers loads, by its own processor and stock ``generate``: resolution only.

Nothing of the model is taken apart, so nothing is known of where its visual tokens stand, and none can be deleted. An
image is resized to its budget, or a parameter of its processor is set where resizing changes nothing, and the image's
tokens in the prompt are counted: a count that is not the family's is an error, because every budget of that family
would then be wrong. Requests are answered one by one.
"""

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from stakes.errors import BadInput, InfeasibleBudget, LedgerBreach
from stakes.models.base import MAX_NEW_TOKENS, Answer, Request, confidence_of
from stakes.models.identity import ModelName
from stakes.models.local.generate import cut_at_end, end_ids, token_logprobs
from stakes.models.local.image_cache import OpenedImages, open_once
from stakes.models.local.resources import STAGES, Clock, with_host
from stakes.models.local.stock_processor import StockProcessor
from stakes.vision.geometry import count_tokens
from stakes.vision.geometry import family as named_family
from stakes.vision.geometry.menus import EngineSetting, menu, settings_of, supported
from stakes.vision.geometry.patches import EdgePatches

PARAMETERS = {"max_dynamic_patch": "max_patches"}  # names of vLLM's that are others in transformers
ATTENTION = {"full_attention", "sliding_attention"}  # layers in which a deleted token is as good as masked


def why_not_deletable(config: Any) -> str | None:
    """Why no token can leave the decoder of a configuration without a trace; None where it can."""
    kinds = sorted({*(getattr(config.get_text_config(), "layer_types", None) or ())} - ATTENTION)
    if not kinds:
        return None
    if any("attention" in kind and kind != "linear_attention" for kind in kinds):
        return f"has layers of {', '.join(kinds)}, whose masks are not known here"
    return (
        f"has layers of {', '.join(kinds)}, which carry a state from token to token: there a token that leaves also "
        "changes the steps between those that stay, and no mask does the same"
    )


@dataclass(frozen=True)
class ShownImage:
    """An image as the processor gets it. ``expected``: its tokens, None where the checkpoint may have other bounds."""

    image: Any
    expected: int | None
    native: int | None


@dataclass
class StockVLM:
    """A transformers model and its processor. ``named``: how it was loaded."""

    model: Any
    processor: StockProcessor
    family: str
    max_new_tokens: int = MAX_NEW_TOKENS
    named: ModelName | None = None
    _lock: Any = field(default_factory=threading.RLock, repr=False)

    @property
    def device(self) -> torch.device:
        """The device of the model."""
        device: torch.device = self.model.device
        return device

    @cached_property
    def menu(self) -> tuple[int, ...] | None:
        """The budgets that a parameter of its processor can take, where resizing changes nothing; None: any."""
        if named_family(self.family).refusal is None or "vllm" not in supported(self.family):
            return None
        return menu("vllm", self.family)

    def native_tokens(self, width: int, height: int, mechanism: str) -> int:
        """Tokens of an image of this size with no budget; the largest entry of the menu, where there is one."""
        self._check_mechanism(mechanism)
        return count_tokens(self.family, width, height) if self.menu is None else self.menu[-1]

    def reset_fast_path(self) -> None:
        """Nothing to free: there is no GPU engine for it."""

    def answer(self, requests: Sequence[Request]) -> list[Answer]:
        """One answer for each request, in order."""
        for request in requests:
            self._check_mechanism(request.mechanism)
        opened: OpenedImages = {}
        with self._lock, torch.inference_mode():
            return [self._answer(request, opened) for request in requests]

    def _check_mechanism(self, mechanism: str) -> None:
        if mechanism != "resolution":
            kind, why = self.model.config.model_type, why_not_deletable(self.model.config)
            raise BadInput(
                f"a {kind} {why or 'is run by stock generate, which keeps every visual token'}, so {mechanism} is not "
                "possible; give mechanism='resolution' (--mechanism resolution)"
            )

    def _answer(self, request: Request, opened: OpenedImages) -> Answer:
        began, clock = time.perf_counter(), Clock(self.device)
        shown, setting = self._shown(request.parts, opened)
        inputs = self.processor.inputs([one.image.convert("RGB") for one in shown], request.question, setting)
        counts = self._count(inputs["input_ids"][0], shown, setting)
        realised = sum(counts)
        inputs = inputs.to(self.device, self.model.dtype)
        with clock("decode"):  # generate reads the image and the prompt as well, and does not time them apart
            out = self.model.generate(
                **inputs,
                do_sample=False,
                num_beams=1,
                max_new_tokens=self.max_new_tokens,
                output_scores=True,
                return_dict_in_generate=True,
            )
            tokens = out.sequences[0, -len(out.scores) :]
            logprobs = token_logprobs(torch.cat(out.scores).float(), tokens).tolist()
        decoded = cut_at_end([tokens.tolist()], [logprobs], end_ids(self.model), self.max_new_tokens, [])
        answer = Answer(
            text=self.processor.tokenizer.decode(decoded.tokens[0], skip_special_tokens=True).strip(),
            native_tokens=sum(one.native or count for one, count in zip(shown, counts, strict=True)),
            budget=request.total_budget,
            realised_tokens=realised,
            truncated=decoded.truncated[0],
            timings={stage: clock.spent[stage] for stage in STAGES},
            input_tokens=realised,
            layer_tokens=float(realised),
            encoder_tokens=realised,
            confidence=confidence_of(decoded.logprobs[0]),
            image_tokens=tuple(counts),
        )
        return with_host([answer], 1000 * (time.perf_counter() - began))[0]

    def _shown(self, parts: Sequence[Request], opened: OpenedImages) -> tuple[list[ShownImage], dict[str, Any] | None]:
        """The images of a request as the processor gets them, and its parameters where those realise the budget."""
        budgets = [part.budget for part in parts]
        if all(budget is None for budget in budgets) or named_family(self.family).refusal is None:
            exact = named_family(self.family).factor is None
            shown = []
            for part in parts:
                fitted, image, _, _ = open_once(part, self.family, opened)
                if fitted is not None:
                    shown.append(ShownImage(image, fitted.tokens, fitted.native))
                else:
                    shown.append(ShownImage(image, count_tokens(self.family, *image.size) if exact else None, None))
            return shown, None
        if self.menu is None:
            raise BadInput(
                f"a {self.model.config.model_type} takes a number of tokens that resizing does not change, and no "
                f"parameter of its processor is known that does ({named_family(self.family).refusal}); leave the "
                "budget out, or use a type whose tokens follow the size"
            )
        whole = [open_once(replace(part, budget=None), self.family, opened).image for part in parts]
        setting = self._setting([image.size for image in whole], budgets)
        tokens = [setting.formula.tokens(*image.size) for image in whole]
        value = {PARAMETERS.get(key, key): number for key, number in setting.value.items()}
        return [ShownImage(*both, self.menu[-1]) for both in zip(whole, tokens, strict=True)], value

    def _setting(self, sizes: Sequence[tuple[int, int]], budgets: Sequence[int | None]) -> EngineSetting:
        """The largest setting of the processor at which every image is within its budget."""
        settings = settings_of("vllm", self.family, max(budget or 0 for budget in budgets))
        counted = [(one, [one.formula.tokens(*size) for size in sizes]) for one in settings]
        within = [
            one
            for one, tokens in counted
            if all(budget is None or count <= budget for count, budget in zip(tokens, budgets, strict=True))
        ]
        if not within:
            least = counted[0][1]
            raise InfeasibleBudget(f"{self.family}: no setting is within {list(budgets)} tokens; the least is {least}")
        return within[-1]

    def _count(self, ids: Tensor, shown: Sequence[ShownImage], setting: dict[str, Any] | None) -> list[int]:
        """Visual tokens of each image among the [T] ids of a prompt; ``expected`` where that is known.

        Markers that the family counts are added: other tokens of the prompt may equal them.
        """
        visual = torch.isin(ids, self._image_ids)
        markers = [self._markers(one, setting) for one in shown]
        total = int(visual.sum()) + sum(markers)
        starts = visual & ~torch.cat((visual.new_zeros(1), visual[:-1]))
        lengths = torch.bincount(starts.cumsum(0)[visual] - 1).tolist()  # of each run of visual tokens
        if len(lengths) == len(shown):
            counts = [length + extra for length, extra in zip(lengths, markers, strict=True)]
        elif len(shown) == 1:
            counts = [total]
        else:  # tiles, or images without a word between them
            counts = [
                count_tokens(self.family, *one.image.size) if one.expected is None else one.expected for one in shown
            ]
        expected = [count if one.expected is None else one.expected for one, count in zip(shown, counts, strict=True)]
        if counts != expected or sum(counts) != total or total < 1:
            sizes = ", ".join(f"{one.image.width}x{one.image.height}" for one in shown)
            wrote = ", ".join(map(str, counts if counts != expected else [total]))
            raise LedgerBreach(
                f"an image of {sizes} takes {', '.join(map(str, expected))} tokens in {self.family}, and this "
                f"checkpoint's processor wrote {wrote}; give the --family that counts as it does"
            )
        return counts

    def _markers(self, shown: ShownImage, setting: dict[str, Any] | None) -> int:
        """Tokens of the family's count that are no visual tokens."""
        formula: Any = named_family(self.family).formula
        if not hasattr(formula, "markers"):
            return 0
        if setting and "size" in setting:
            formula = replace(formula, longest_edge=setting["size"]["longest_edge"])
        return int(formula.markers(*shown.image.size))

    @cached_property
    def _image_ids(self) -> Tensor:
        """The ids of visual tokens; row breaks are among them where the family's formula counts them (Pixtral)."""
        ids = self.processor.image_ids(self.model.config)
        if isinstance(named_family(self.family).formula, EdgePatches):
            names = ("image_break_token_id", "image_end_token_id")
            breaks = (getattr(self.processor.whole, name, None) for name in names)
            ids += [one for one in breaks if isinstance(one, int)]
        return torch.tensor(ids)
