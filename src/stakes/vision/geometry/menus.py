"""The sizes that an engine's parameter can take, and the largest of them within a budget.

| actuator | what is sent | for |
|---|---|---|
| pixels | the image itself, resized | every family that resizing controls |
| vllm | ``mm_processor_kwargs``, flat (vLLM: --trust-request-mm-kwargs) | InternVL, Idefics3, Gemma 4, Qwen-VL |
| vllm-deletion | ``mm_processor_kwargs`` of the plugin ``stakes.vllm``: any budget | those of ``DELETING`` |
| lmdeploy | ``mm_processor_kwargs``, under ``image`` | as vllm |
| detail | ``detail`` of each image: low, high, original; or Gemini's, where a proxy translates it | GPT, Gemini 3 |
| gemini | ``media_resolution`` of each image | Gemini 3 |

Where a parameter takes only a few values, each is an entry of a menu. As a budget, an entry is the most tokens that any
image takes under it, so that every image fits:

    menu("vllm", "gemma4")                             # (70, 140, 280, 560, 1120)
    menu("detail", "gpt-4o")                           # (85, 1445): low, high
    settings = settings_of("vllm", "gemma4", 300)
    choose_setting(settings, [(1654, 2339)], 300)      # max_soft_tokens 280: 266 tokens for this page
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from stakes.errors import BadInput, InfeasibleBudget
from stakes.vision.geometry.factor import Factor
from stakes.vision.geometry.families import Family, Formula, family
from stakes.vision.geometry.patches import MENU, BudgetPatches, Fixed, Gemma4
from stakes.vision.geometry.tiles import AspectTiles, DetailTiles, SplitTiles

ActuatorName = Literal["pixels", "vllm", "vllm-deletion", "lmdeploy", "detail", "gemini"]
# What the plugin for vLLM deletes in, and vLLM counts to the token: of an InternVL it counts the start and the end too.
DELETING = ("qwen2.5-vl", "qwen3-vl", "llava-onevision")
_GEMINI = {"low": 280, "medium": 560, "high": 1120, "ultra_high": 2240}


@dataclass(frozen=True)
class EngineSetting:
    """One value of an engine's parameter, and the token formula that holds under it."""

    value: Any
    formula: Formula

    @property
    def most(self) -> int | None:
        """The most tokens that any image takes under it; None where that is not known."""
        return getattr(self.formula, "most_tokens", None)


def settings_of(actuator: ActuatorName, name: str, budget: int) -> list[EngineSetting]:
    """The values of an actuator's parameter for a family, cheapest first; ``budget``: the largest that matters."""
    if actuator in ("vllm", "lmdeploy"):
        return _engine_settings(name, budget)
    if actuator == "pixels":
        raise BadInput("the actuator pixels has no parameter; it resizes the image")
    return _image_settings(actuator, family(name))


def menu(actuator: ActuatorName, name: str) -> tuple[int, ...] | None:
    """The entries of an actuator's menu, ascending; None for one that reaches any budget."""
    if actuator in ("pixels", "vllm-deletion"):
        return None
    settings = settings_of(actuator, name, 1)
    if isinstance(family(name).formula, Factor):
        return None
    entries = [one.most for one in settings]
    return tuple(sorted({entry for entry in entries if entry is not None}))


def most_tokens(actuator: ActuatorName, name: str, width: int, height: int, native: int) -> int:
    """What an image of this size can take at most: by the menu's largest entry, or else its native tokens."""
    if menu(actuator, name) is None:
        return native
    return max(one.formula.tokens(width, height) for one in settings_of(actuator, name, native))


def check_actuator(actuator: ActuatorName, name: str) -> None:
    """Raise ``BadInput`` where this actuator cannot set the tokens of this family."""
    known = family(name)
    if actuator == "vllm-deletion":
        if known.name not in DELETING:
            raise BadInput(f"the actuator {actuator} works with {', '.join(DELETING)}, not with {known.name}")
    elif actuator != "pixels":
        settings_of(actuator, name, 1)
    elif known.refusal is not None:
        others = " or ".join(supported(name))
        advice = f"choose the actuator {others}" if others else "no actuator sets it"
        raise BadInput(f"{known.refusal}: {advice}")


def supported(name: str) -> tuple[ActuatorName, ...]:
    """The actuators that can set the tokens of this family."""
    resizing = ("pixels",) if family(name).refusal is None else ()
    return (*resizing, *(one for one in get_args(ActuatorName) if one != "pixels" and _works(one, name)))


def _works(actuator: ActuatorName, name: str) -> bool:
    try:
        check_actuator(actuator, name)
    except BadInput:
        return False
    return True


def _engine_settings(name: str, budget: int) -> list[EngineSetting]:
    """Settings of a family's own processor."""
    formula = family(name).formula
    if isinstance(formula, Factor) and family(name).engine_parameter == "max_pixels":
        square = formula.factor**2
        least = -(-formula.min_pixels // square)
        areas = [n * square for n in _steps(least, max(budget, least))]
        low = formula.min_pixels
        return [
            EngineSetting({"min_pixels": low, "max_pixels": area}, replace(formula, max_pixels=area)) for area in areas
        ]
    if isinstance(formula, AspectTiles):
        return [EngineSetting({"max_dynamic_patch": n}, replace(formula, most=n)) for n in range(1, formula.most + 1)]
    if isinstance(formula, SplitTiles):
        edges = range(formula.tile, formula.longest_edge + 1, formula.tile)
        return [EngineSetting({"size": {"longest_edge": edge}}, replace(formula, longest_edge=edge)) for edge in edges]
    if isinstance(formula, Gemma4):
        return [EngineSetting({"max_soft_tokens": n}, Gemma4(max_soft_tokens=n)) for n in MENU]
    raise BadInput(f"{name} has no engine parameter that sets its tokens; use the actuator pixels")


def _image_settings(actuator: ActuatorName, known: Family) -> list[EngineSetting]:
    """Values of one image's ``detail`` or ``media_resolution``."""
    formula = known.formula
    if known.name == "gemini-3":
        return [
            EngineSetting(level if actuator == "detail" else {"level": f"MEDIA_RESOLUTION_{level.upper()}"}, Fixed(n))
            for level, n in _GEMINI.items()
        ]
    if actuator == "detail" and isinstance(formula, DetailTiles | BudgetPatches) and formula.low_tokens:
        levels = [EngineSetting("low", Fixed(formula.low_tokens)), EngineSetting("high", formula)]
        if isinstance(formula, BudgetPatches) and formula.original:
            levels.append(EngineSetting("original", formula.at_original()))
        return levels
    raise BadInput(
        f"the actuator {actuator} does not work with {known.name}; use pixels, detail with GPT-4o, gpt-5.4 and their "
        "variants, or gemini with gemini-3"
    )


def highest_level(settings: Sequence[EngineSetting], size: tuple[int, int], budget: int) -> tuple[EngineSetting, int]:
    """The highest level of one image within its budget, and its tokens; of a small image "low" may take more."""
    counted = [(one, one.formula.tokens(*size)) for one in settings]
    within = [choice for choice in counted if choice[1] <= budget]
    if not within:
        least = min(tokens for _, tokens in counted)
        raise InfeasibleBudget(f"no setting takes {budget} tokens or fewer; the least is {least}")
    return within[-1]


def choose_setting(
    settings: Sequence[EngineSetting], sizes: Sequence[tuple[int, int]], total: int
) -> tuple[EngineSetting, list[int]]:
    """The setting with the most tokens within the total, and the tokens of each image under it."""
    counted = [(one, [one.formula.tokens(width, height) for width, height in sizes]) for one in settings]
    within = [choice for choice in reversed(counted) if sum(choice[1]) <= total]  # of equal ones, the last
    if not within:
        least = min(sum(tokens) for _, tokens in counted)
        raise InfeasibleBudget(f"no setting takes {total} tokens or fewer; the least is {least}")
    return max(within, key=lambda choice: sum(choice[1]))


def _steps(least: int, most: int) -> list[int]:
    """Areas in squares from the least to the most: every one up to 256, then in steps below half a percent."""
    steps, n = [], least
    while n < most:
        steps.append(n)
        n += max(1, n // 256)
    return [*steps, most]
