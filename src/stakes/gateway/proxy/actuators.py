"""Applies a budget at the upstream by a parameter of its engine; which values it can take is in ``geometry.menus``.

An engine's parameter holds for all images of a request. The setting with the most tokens is chosen whose sum is within
the sum of the budgets. ``detail`` and ``media_resolution`` are set for each image: the highest level within its budget.
"""

from collections.abc import Sequence

from stakes.budgets.policy import Policy
from stakes.errors import BadInput
from stakes.gateway.proxy.request import Call, asks_for_coordinates
from stakes.gateway.proxy.scan import ImageRef
from stakes.gateway.settings import Settings
from stakes.vision.geometry import count_tokens
from stakes.vision.geometry.menus import ActuatorName, check_actuator, choose_setting, highest_level, menu, settings_of


def check_servable(policy: Policy, settings: Settings) -> None:
    """Refuse a policy that cannot be served with these settings."""
    if policy.mechanism != "resolution":
        raise BadInput(
            f"this policy is for {policy.mechanism}, which works inside a model; a gateway needs one calibrated with "
            "--mechanism resolution"
        )
    if (policy.trim or settings.trim) and settings.actuator != "pixels":
        raise BadInput(
            f"margins are cut off where images are resized, and --actuator {settings.actuator} leaves images as they "
            "are; use --actuator pixels, or a policy calibrated without --trim"
        )
    check_actuator(settings.actuator, policy.family)
    _check_menu(policy, settings.actuator)
    bounds = settings.bounds_of(policy.family)
    count_tokens(policy.family, 1000, 1000, **bounds)  # a family without such bounds is refused here
    policy.decide("")  # a policy that reads its tiers from a judge has no judge here


def trims(policy: Policy, settings: Settings, call: Call) -> bool:
    """Whether the margins of a request's images are cut off: as calibrated or set, but not where it asks for places."""
    return bool(settings.trim or policy.trim) and not asks_for_coordinates(call.prompt)


def trim_warnings(policy: Policy, settings: Settings) -> list[str]:
    """What to know where images are trimmed and those of the calibration were not."""
    if not settings.trim or policy.trim or policy.fingerprint == "uncalibrated":
        return []
    return [
        "TRIMMED, NOT CALIBRATED SO: --trim cuts margins off, and the policy was calibrated with them; its curves and "
        "guarantees are about whole images; calibrate again with --trim"
    ]


def _check_menu(policy: Policy, actuator: ActuatorName) -> None:
    """Refuse a policy that was calibrated on the entries of another menu."""
    if policy.menu is not None and policy.menu != menu(actuator, policy.family):
        entries = ", ".join(map(str, policy.menu))
        named = policy.model.actuator if policy.model is not None else None
        raise BadInput(
            f"the budgets of this policy are the entries {entries}, which the actuator {actuator} does not have; serve "
            f"it with --actuator {named or 'as it was calibrated'}"
        )


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
        setting, tokens = choose_setting(settings_of(actuator, name, sum(budgets)), sizes, sum(budgets))
        nested = {"image": setting.value} if actuator == "lmdeploy" else setting.value
        call.record["mm_processor_kwargs"] = nested
        return tokens
    settings = settings_of(actuator, name, max(budgets))
    spent: list[int] = []
    for ref, size, budget in zip(images, sizes, budgets, strict=True):
        setting, taken = highest_level(settings, size, budget)
        if actuator == "detail":
            ref.detail = setting.value
        else:
            ref.part["media_resolution"] = setting.value
        spent.append(taken)
    return spent
