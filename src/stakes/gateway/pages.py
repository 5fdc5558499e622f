"""Shares one cap over the images of a request that have content (``--max-request-tokens``).

    share_cap(images, budgets=[576] * 30, cap=4096, floor=64)      # 30 budgets that sum up to 4096

No image gets more than the budget of its tier or fewer tokens than the policy's floor. A page without content falls to
the floor, and the others share the rest evenly. Shares in proportion to information density were no better than even
ones: colored pages have ten times the density of text on paper (``benchmarks/many_pages.py``).
"""

import math
from collections.abc import Sequence

from PIL import Image

from stakes.calibration.arms import PATCH, content, density, patch_features
from stakes.errors import UnreadableImage
from stakes.gateway.proxy.decide import RequestPlan
from stakes.gateway.proxy.errors import Refused
from stakes.gateway.proxy.images import MeasuredImage, unreadable
from stakes.vision.image.decode import Picture
from stakes.vision.image.resize import resample

SEEN = 1024  # patches of 28 pixels that an image is reduced to, if it has more, before its content is measured
BLANK = 1e-6  # information density: one color has 0 but for rounding, one line of text 1e-3, a receipt 0.05


def keep_cap(plan: RequestPlan, images: Sequence[MeasuredImage], cap: int) -> None:
    """Replace the granted budgets of a request by shares of its cap, if they exceed that."""
    shares = share_cap(images, plan.budgets, cap, plan.rules.policy.floor)
    if sum(shares) < sum(plan.budgets):
        plan.why = f"{plan.why}; {sum(plan.budgets)} tokens shared down to {cap}, the most for a request"
    plan.budgets = shares
    if plan.attempts is not None and sum(shares) + sum(plan.attempts.second) > cap:
        plan.attempts.second = ()
        plan.why = f"{plan.why}; one attempt: two would take more than {cap} tokens, the most for a request"


def share_cap(images: Sequence[MeasuredImage], budgets: Sequence[int], cap: int, floor: int) -> Sequence[int]:
    """The budgets, or where they exceed the cap, shares of it; images without bytes (sizes only) are taken as alike."""
    if sum(budgets) <= cap:
        return budgets
    least = sum(min(floor, budget) for budget in budgets)
    if least > cap:
        what = f"{len(budgets)} images take {least} tokens at least, {floor} each at this policy's floor"
        raise Refused(422, "request_over_cap", f"{what}, and a request may take {cap}; send fewer pages at a time")
    known = all(image.data or image.page for image in images)
    weights = [float(not known or density(patch_features(_seen(image))) > BLANK) for image in images]
    return content(weights, cap, native=budgets, floor=floor)


def _seen(image: MeasuredImage) -> Image.Image:
    """The image, reduced."""
    scale = min(1.0, math.sqrt(SEEN * PATCH**2 / (image.width * image.height)))
    size = max(1, round(scale * image.width)), max(1, round(scale * image.height))
    if image.page is not None:
        return image.page.renderer.draw(image.page, size, [0, 0, *size])
    try:
        return resample(Picture(image.data, max_pixels=image.width * image.height), *size)
    except UnreadableImage:
        raise unreadable() from None
