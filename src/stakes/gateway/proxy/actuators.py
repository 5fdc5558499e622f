"""Applies a budget at the upstream: by resizing, which any server understands, or by a parameter of the engine.

| name | what is sent | for |
|---|---|---|
| pixels | the image itself, resized | every family that resizing controls |
| vllm | ``mm_processor_kwargs``, flat (vLLM: --trust-request-mm-kwargs) | InternVL, Idefics3, Gemma 4, Qwen-VL |
| lmdeploy | ``mm_processor_kwargs``, under ``image`` | the same |
| detail | ``detail`` of each image: low or high; Gemini's four levels where a proxy translates it | GPT-4o, Gemini 3 |
| gemini | ``media_resolution`` of each image | Gemini 3 |

An engine's parameter holds for all images of a request. The setting with the most tokens is chosen whose sum is within
the sum of the budgets. Settings and their tokens come from the family's own formula.

    settings = engine_settings("gemma4", budget=300)
    choose_setting(settings, [(1654, 2339)], 300)      # max_soft_tokens 280
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

from stakes.budgets.policy import Policy
from stakes.errors import BadInput, InfeasibleBudget
from stakes.gateway.proxy.request import Call
from stakes.gateway.proxy.scan import ImageRef
from stakes.gateway.settings import ActuatorName, Settings
from stakes.vision.geometry import Family, count_tokens, family
from stakes.vision.geometry.families import Factor, Fixed, Formula
from stakes.vision.geometry.patches import MENU, Gemma4
from stakes.vision.geometry.tiles import AspectTiles, DetailTiles, SplitTiles

_GEMINI = {"low": 280, "medium": 560, "high": 1120, "ultra_high": 2240}


@dataclass(frozen=True)
class EngineSetting:
    """One value of an engine's parameter, and the token formula that holds under it."""

    value: Any
    formula: Formula


def check_servable(policy: Policy, settings: Settings) -> None:
    """Refuse a policy that cannot be served with these settings."""
    if policy.mechanism != "resolution":
        raise BadInput(
            f"this policy is for {policy.mechanism}, which works inside a model; a gateway needs one calibrated with "
            "--mechanism resolution"
        )
    check(settings.actuator, policy.family)
    count_tokens(policy.family, 1000, 1000, **settings.bounds)  # a family without such bounds is refused here
    policy.decide("")  # a policy that reads its tiers from a judge has no judge here


def check(actuator: ActuatorName, name: str) -> None:
    """Raise ``BadInput`` where this actuator cannot set the tokens of this family."""
    known = family(name)
    if actuator == "pixels":
        if known.refusal is not None:
            others = " or ".join(supported(name))
            advice = f"choose the actuator {others}" if others else "no actuator sets it"
            raise BadInput(f"{known.refusal}: {advice}")
    elif actuator in ("vllm", "lmdeploy"):
        engine_settings(name, budget=1)
    else:
        image_settings(actuator, known)


def supported(name: str) -> tuple[ActuatorName, ...]:
    """The actuators that can set the tokens of this family."""
    resizing = ("pixels",) if family(name).refusal is None else ()
    return (*resizing, *(one for one in get_args(ActuatorName) if one != "pixels" and _works(one, name)))


def _works(actuator: ActuatorName, name: str) -> bool:
    try:
        check(actuator, name)
    except BadInput:
        return False
    return True


def engine_settings(name: str, budget: int) -> list[EngineSetting]:
    """Settings of a family's own processor, cheapest first."""
    formula = family(name).formula
    if isinstance(formula, Factor):
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


def image_settings(actuator: ActuatorName, known: Family) -> list[EngineSetting]:
    """Values of one image's ``detail`` or ``media_resolution``, cheapest first."""
    if known.name == "gemini-3":
        return [
            EngineSetting(level if actuator == "detail" else {"level": f"MEDIA_RESOLUTION_{level.upper()}"}, Fixed(n))
            for level, n in _GEMINI.items()
        ]
    if actuator == "detail" and isinstance(known.formula, DetailTiles):
        return [EngineSetting("low", Fixed(known.formula.base)), EngineSetting("high", known.formula)]
    raise BadInput(
        f"the actuator {actuator} does not work with {known.name}; use pixels, detail with GPT-4o and its variants, or "
        "gemini with gemini-3"
    )


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


def apply(
    actuator: ActuatorName,
    name: str,
    call: Call,
    images: Sequence[ImageRef],
    sizes: Sequence[tuple[int, int]],
    budgets: Sequence[int],
) -> list[int]:
    """Write the engine's parameter into the request; returns the tokens of each image."""
    if actuator in ("vllm", "lmdeploy"):
        setting, tokens = choose_setting(engine_settings(name, sum(budgets)), sizes, sum(budgets))
        nested = {"image": setting.value} if actuator == "lmdeploy" else setting.value
        call.record["mm_processor_kwargs"] = nested
        return tokens
    settings = image_settings(actuator, family(name))
    spent: list[int] = []
    for ref, size, budget in zip(images, sizes, budgets, strict=True):
        setting, tokens = choose_setting(settings, [size], budget)
        if actuator == "detail":
            ref.detail = setting.value
        else:
            ref.part["media_resolution"] = setting.value
        spent += tokens
    return spent


def _steps(least: int, most: int) -> list[int]:
    """Areas in squares from the least to the most: every one up to 256, then in steps below half a percent."""
    steps, n = [], least
    while n < most:
        steps.append(n)
        n += max(1, n // 256)
    return [*steps, most]
