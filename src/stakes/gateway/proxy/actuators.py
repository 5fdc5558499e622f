"""How is a budget put to the upstream? By pixels, which any server understands, or by the engine's own parameter.

| name | what is sent | for |
|---|---|---|
| pixels | the image itself, resized | every family that resizing controls |
| vllm | ``mm_processor_kwargs``, flat (vLLM: --trust-request-mm-kwargs) | InternVL, Idefics3, Gemma 4, Qwen-VL |
| lmdeploy | ``mm_processor_kwargs``, under ``image`` | the same |
| detail | ``detail`` of each image: low or high; Gemini's four levels where a proxy translates it | GPT-4o, Gemini 3 |
| gemini | ``media_resolution`` of each image | Gemini 3 |

An engine's parameter holds for all images of a request, so the setting with the most tokens is taken whose sum is
within the sum of the budgets; settings and what they cost come from the family's own formula.

    rungs = engine_rungs("gemma4", budget=300)
    choose_rung(rungs, [(1654, 2339)], 300)       # the rung of max_soft_tokens 280
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

from stakes.errors import BadInput
from stakes.gateway.proxy.errors import Refused
from stakes.gateway.proxy.request import Call, ImageRef
from stakes.gateway.settings import ActuatorName
from stakes.vision.geometry import Family, family
from stakes.vision.geometry.families import Factor, Fixed, Formula
from stakes.vision.geometry.patches import MENU, Gemma4
from stakes.vision.geometry.tiles import AspectTiles, DetailTiles, SplitTiles

_GEMINI = {"low": 280, "medium": 560, "high": 1120, "ultra_high": 2240}


@dataclass(frozen=True)
class Rung:
    """One setting of an engine: what is sent, and how it makes the family count."""

    setting: Any
    formula: Formula


def check(actuator: ActuatorName, name: str) -> None:
    """Refuse at the start what could never reach a budget."""
    known = family(name)
    if actuator == "pixels":
        if known.refusal is not None:
            others = " or ".join(fitting(name))
            advice = f"choose the actuator {others}" if others else "no actuator sets it"
            raise BadInput(f"{known.refusal}: {advice}")
    elif actuator in ("vllm", "lmdeploy"):
        engine_rungs(name, budget=1)
    else:
        image_rungs(actuator, known)


def fitting(name: str) -> tuple[ActuatorName, ...]:
    """The actuators that can reach a budget of this family."""
    resizing = ("pixels",) if family(name).refusal is None else ()
    return (*resizing, *(one for one in get_args(ActuatorName) if one != "pixels" and _takes(name, one)))


def _takes(name: str, actuator: ActuatorName) -> bool:
    try:
        check(actuator, name)
    except BadInput:
        return False
    return True


def engine_rungs(name: str, budget: int) -> list[Rung]:
    """Settings of a family's own processor, cheapest first."""
    formula = family(name).formula
    if isinstance(formula, Factor):
        square = formula.factor**2
        least = -(-formula.min_pixels // square)
        return [
            Rung({"min_pixels": formula.min_pixels, "max_pixels": n * square}, replace(formula, max_pixels=n * square))
            for n in _steps(least, max(budget, least))
        ]
    if isinstance(formula, AspectTiles):
        return [Rung({"max_dynamic_patch": n}, replace(formula, most=n)) for n in range(1, formula.most + 1)]
    if isinstance(formula, SplitTiles):
        edges = range(formula.tile, formula.longest_edge + 1, formula.tile)
        return [Rung({"size": {"longest_edge": edge}}, replace(formula, longest_edge=edge)) for edge in edges]
    if isinstance(formula, Gemma4):
        return [Rung({"max_soft_tokens": n}, Gemma4(max_soft_tokens=n)) for n in MENU]
    raise BadInput(f"{name} has no engine parameter that sets its tokens; use the actuator pixels")


def image_rungs(actuator: ActuatorName, known: Family) -> list[Rung]:
    """Values of one image's ``detail`` or ``media_resolution``, cheapest first."""
    if known.name == "gemini-3":
        return [
            Rung(level if actuator == "detail" else {"level": f"MEDIA_RESOLUTION_{level.upper()}"}, Fixed(tokens))
            for level, tokens in _GEMINI.items()
        ]
    if actuator == "detail" and isinstance(known.formula, DetailTiles):
        return [Rung("low", Fixed(known.formula.base)), Rung("high", known.formula)]
    raise BadInput(f"{known.name} takes no {actuator}; use pixels, or detail with GPT-4o's kin, gemini with gemini-3")


def choose_rung(rungs: Sequence[Rung], sizes: Sequence[tuple[int, int]], total: int) -> tuple[Rung, list[int]]:
    """The setting with the most tokens within the total, and what each image takes under it."""
    best: tuple[Rung, list[int]] | None = None
    least = None
    for rung in rungs:
        tokens = [rung.formula.tokens(width, height) for width, height in sizes]
        least = sum(tokens) if least is None else min(least, sum(tokens))
        if sum(tokens) <= total and (best is None or sum(tokens) >= sum(best[1])):
            best = rung, tokens
    if best is None:
        raise Refused(
            422, "infeasible_budget", f"no setting takes {total} tokens or fewer; the least is {least}", soft=True
        )
    return best


def act(
    actuator: ActuatorName,
    name: str,
    call: Call,
    images: Sequence[ImageRef],
    sizes: Sequence[tuple[int, int]],
    budgets: Sequence[int],
) -> list[int]:
    """Write the engine's parameter into the request; gives the tokens that each image will take."""
    if actuator in ("vllm", "lmdeploy"):
        rung, tokens = choose_rung(engine_rungs(name, sum(budgets)), sizes, sum(budgets))
        nested = {"image": rung.setting} if actuator == "lmdeploy" else rung.setting
        given = call.record.get("mm_processor_kwargs")
        call.record["mm_processor_kwargs"] = {**(given if isinstance(given, dict) else {}), **nested}
        return tokens
    rungs = image_rungs(actuator, family(name))
    put: Callable[[ImageRef, Any], None] = _set_detail if actuator == "detail" else _set_resolution
    spent: list[int] = []
    for ref, size, budget in zip(images, sizes, budgets, strict=True):
        rung, taken = choose_rung(rungs, [size], budget)
        put(ref, rung.setting)
        spent += taken
    return spent


def _set_detail(ref: ImageRef, value: Any) -> None:
    ref.detail = value


def _set_resolution(ref: ImageRef, value: Any) -> None:
    ref.part["media_resolution"] = value


def _steps(least: int, most: int) -> list[int]:
    """Areas from the least to the most in squares, every one up to 256 and then by less than half a percent."""
    steps, n = [], least
    while n < most:
        steps.append(n)
        n += max(1, n // 256)
    return [*steps, most]
