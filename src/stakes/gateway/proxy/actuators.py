"""Applies budgets to the images of a request: by fitting them, or by a parameter of the upstream's engine.

Which values a parameter can take is in ``geometry.menus``.

An engine's parameter holds for all images of a request. The setting with the most tokens is chosen whose sum is within
the sum of the budgets. ``detail`` and ``media_resolution`` are set for each image: the highest level within its budget.
So are the budgets of deletion, which vLLM with the plugin ``stakes.vllm`` keeps to the token.
"""

from collections.abc import Sequence
from threading import Event

from stakes.budgets.policy import Policy
from stakes.errors import BadInput
from stakes.gateway.proxy.images import FittedImage, MeasuredImage, check_awaited, fit_image, page_url, predict_fit
from stakes.gateway.proxy.request import Call, dump_images
from stakes.gateway.proxy.scan import ImageRef
from stakes.gateway.settings import Settings
from stakes.models.base import CONFIDENCE, DEFAULT_SELECTOR
from stakes.signals import Prompt
from stakes.vision.geometry import count_tokens
from stakes.vision.geometry import family as named_family
from stakes.vision.geometry.menus import ActuatorName, check_actuator, choose_setting, highest_level, menu, settings_of
from stakes.vision.selectors import IMAGE_ONLY, SELECTORS, blank_stage, split


def check_servable(policy: Policy, settings: Settings) -> None:
    """Refuse a policy that cannot be served with these settings."""
    _check_mechanism(policy, settings.actuator)
    if (policy.trim or settings.trim) and settings.actuator != "pixels":
        raise BadInput(
            f"margins are cut off where images are resized, and --actuator {settings.actuator} leaves images as they "
            "are; use --actuator pixels, or a policy calibrated with --no-trim"
        )
    if policy.confidence not in (None, CONFIDENCE):
        raise BadInput(
            f"the thresholds of this policy are about the {policy.confidence}, and answers of an upstream have the "
            f"{CONFIDENCE}; calibrate with the model that is served"
        )
    check_actuator(settings.actuator, policy.family)
    _check_menu(policy, settings.actuator)
    bounds = settings.bounds_of(policy.family)
    count_tokens(policy.family, 1000, 1000, **bounds)  # a family without such bounds is refused here
    policy.decide("")  # a policy that reads its tiers from a judge has no judge here


def trim_above(policy: Policy, settings: Settings, prompt: Prompt) -> int:
    """Margins are cut off where so many tokens are left, as calibrated; 0: they stay, as where it asks for places."""
    trims = (settings.trim or policy.trim) and not prompt.asks_for_coordinates
    return policy.trims_above if trims else 0


def trim_warnings(policy: Policy, settings: Settings) -> list[str]:
    """What to know where images are trimmed and those of the calibration were not."""
    if not settings.trim or policy.trim or policy.fingerprint == "uncalibrated":
        return []
    return [
        "TRIMMED, NOT CALIBRATED SO: --trim cuts margins off, and the policy was calibrated with them; its curves and "
        "guarantees are about whole images; calibrate again with --trim"
    ]


def _check_mechanism(policy: Policy, actuator: ActuatorName) -> None:
    """Refuse a policy whose curves hold for another mechanism than the one that this actuator has."""
    if policy.mechanism == "resolution":
        if actuator == "vllm-deletion":
            raise BadInput(
                "this policy was calibrated by resolution, and the actuator vllm-deletion deletes tokens; calibrate "
                "one with --mechanism deletion"
            )
        return
    if actuator != "vllm-deletion":
        raise BadInput(
            f"this policy is for {policy.mechanism}, which works inside a model; serve it with --actuator "
            "vllm-deletion in front of a vLLM with the plugin of stakes, or calibrate one with --mechanism resolution"
        )
    if blank_stage(selector_of(policy))[0] is not None:
        raise BadInput(
            f"this policy's selector {policy.selector} drops tokens before the encoder, which is vLLM's own; calibrate "
            "without blank+"
        )
    if (name := split(selector_of(policy))[0]) in SELECTORS and name not in IMAGE_ONLY:
        raise BadInput(
            f"this policy's selector {name} needs more than the image's features, which vLLM does not give; calibrate "
            f"with --selector {', '.join(IMAGE_ONLY[:-1])} or {IMAGE_ONLY[-1]}"
        )


def selector_of(policy: Policy) -> str:
    """Which tokens the policy's deletion keeps."""
    return policy.selector or DEFAULT_SELECTOR


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
    refs: Sequence[ImageRef],
    images: Sequence[MeasuredImage],
    budgets: Sequence[int],
    selector: str | None = None,
) -> list[int]:
    """Write the engine's parameter into the request; returns the tokens of each image. ``selector``: of deletion."""
    if selector is not None:
        return _apply_deletion(call, refs, images, budgets, selector)
    sizes = [(image.width, image.height) for image in images]
    if actuator in ("vllm", "lmdeploy"):
        setting, tokens = choose_setting(settings_of(actuator, name, sum(budgets)), sizes, sum(budgets))
        nested = {"image": setting.value} if actuator == "lmdeploy" else setting.value
        call.record["mm_processor_kwargs"] = nested
        return tokens
    settings = settings_of(actuator, name, max(budgets))
    spent: list[int] = []
    for ref, size, budget in zip(refs, sizes, budgets, strict=True):
        setting, taken = highest_level(settings, size, budget)
        if actuator == "detail":
            ref.detail = setting.value
        else:
            ref.part["media_resolution"] = setting.value
        spent.append(taken)
    return spent


def _apply_deletion(
    call: Call, refs: Sequence[ImageRef], images: Sequence[MeasuredImage], budgets: Sequence[int], selector: str
) -> list[int]:
    """Write the budgets for vLLM's plugin into the request, one for each of its images; returns the tokens of each.

    null stands for an image that is read whole: one within its budget, and one that is not fitted at all.
    """
    tokens = [min(image.native, budget) for image, budget in zip(images, budgets, strict=True)]
    cut = {id(ref): n for ref, image, n in zip(refs, images, tokens, strict=True) if n < image.native}
    call.record.pop("mm_processor_kwargs", None)  # of the first attempt; a client's own is refused before
    if cut:
        own = [cut.get(id(ref)) for ref in call.images]
        call.record["mm_processor_kwargs"] = {"stakes_budget": own, "stakes_selector": selector}
    return tokens


def fit_images(
    settings: Settings,
    call: Call,
    refs: Sequence[ImageRef],
    images: Sequence[MeasuredImage],
    budgets: Sequence[int],
    policy: Policy,
    observing: bool,
    abandoned: Event | None = None,
) -> tuple[bytes | None, list[FittedImage]]:
    """The new body (None while observing) and what became of each image; it ends early where nobody waits."""
    actuator, family = settings.actuator, policy.family
    by_detail = actuator == "pixels" and named_family(family).engine_parameter == "detail"
    for ref in refs:
        ref.set_detail(by_detail)
    if actuator != "pixels":
        for ref, image in zip(refs, images, strict=True):
            if image.page is not None and not observing:
                ref.url = page_url(image, image.page, settings.encoding)
        deletes = selector_of(policy) if actuator == "vllm-deletion" else None
        tokens = apply(actuator, family, call, refs, images, budgets, deletes)
        return None if observing else dump_images(call.record, refs), [FittedImage(None, n) for n in tokens]
    if observing:
        return None, [predict_fit(image, budget, family) for image, budget in zip(images, budgets, strict=True)]
    fitted: list[FittedImage] = []
    for ref, image, budget in zip(refs, images, budgets, strict=True):
        check_awaited(abandoned)
        fitted.append(fit_image(image, budget, family, settings.encoding))
        if (url := fitted[-1].url) is not None:
            ref.url = url
            if ref.part.get("uuid") is not None:  # vLLM caches images by it: each size and box needs its own
                across, down = fitted[-1].scale
                size = f"{round(image.width * across)}x{round(image.height * down)}"
                shown = "".join(f"-{side}" for side in fitted[-1].box or ())
                ref.part["uuid"] = f"{ref.part['uuid']}-{size}{shown}"
    return dump_images(call.record, refs), fitted
