"""How is one request booked? Tokens by tier, images outside the cap, and the prediction beside the server's count."""

from stakes.gateway.logs import Log
from stakes.gateway.metrics import Metrics
from stakes.gateway.plan import APART, Plan
from stakes.gateway.recent import Recent
from stakes.gateway.usage import Tap


def count(metrics: Metrics, plan: Plan, accepted: bool) -> None:
    """Book a request whose answer has begun; ``accepted``: the upstream did not refuse it."""
    metrics.requests.labels(plan.tier, plan.outcome if accepted else "upstream_refused").inc()
    if not accepted:
        return
    if plan.outcome in APART:
        metrics.apart_images.labels(plan.outcome).inc(plan.images)
        metrics.apart_tokens.labels(plan.outcome).inc(sum(plan.natives))
        return
    metrics.images.labels(plan.tier).inc(len(plan.natives))
    if plan.unmeasured:
        metrics.apart_images.labels("uncompressed").inc(plan.unmeasured)
    native, predicted = sum(plan.natives), sum(plan.predicted)
    for kind, tokens in (("native", native), ("budgeted", sum(plan.budgets)), ("predicted", predicted)):
        metrics.tokens.labels(plan.tier, kind).inc(tokens)
    if plan.outcome == "fitted":
        metrics.tokens.labels(plan.tier, "saved").inc(max(0, native - predicted))


def compare(metrics: Metrics, plan: Plan, tap: Tap | None) -> int | None:
    """Book the server's own count beside the prediction; gives that count, None where it does not say."""
    if tap is None or plan.expected is None:
        return None
    plan.left_out = min(tap.left_out(), plan.images - 1)
    expected, counted = plan.expected, tap.image_tokens()
    if counted is None:
        metrics.usage.labels("unknown").inc()
        return None
    metrics.usage.labels("agreed" if counted == expected else "differed").inc()
    metrics.prediction_error.observe(counted - expected)
    metrics.tokens.labels(plan.tier, "actual").inc(counted)
    return counted


def note(
    recent: Recent, log: Log, plan: Plan, path: str, ms: float, *, status: int, result: str, counted: int | None
) -> None:
    """Write a request down for the live page and in the log; ``ms``: since it came."""
    total = plan.rules.controller.state()
    recent.add(
        plan, status=status, result=result, counted=counted, ms=ms, images=total["images"], mean=total["mean"]
    )  # fmt: skip
    log.say(
        "request", path=path, status=status, result=result, outcome=plan.outcome, tier=plan.tier,
        why=log.why(plan.why), images=plan.images, native=list(plan.natives), budget=list(plan.budgets),
        predicted=list(plan.predicted), counted=counted, fit_ms=round(1000 * plan.fit_s, 1), ms=round(ms, 1),
        question=plan.question if log.questions else None,
    )  # fmt: skip
