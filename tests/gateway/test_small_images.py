"""Images that the upstream's processor enlarges or shrinks are counted as it counts them."""

from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.gateway.gateways import ask, encoded, gateway, page, policy, url_of
from tests.gateway.processes import process
from tests.gateway.upstream import Seen, Upstream, Wire, image_sizes

from stakes import BadInput, InfeasibleBudget, count_tokens
from stakes.gateway.proxy.images import fit_image, measure_bytes, predict_fit
from stakes.gateway.settings import Limits

SIZES = [(28, 28), (30, 30), (60, 60), (84, 84), (84, 112), (100, 50), (112, 112), (113, 112), (40, 160), (1400, 1000)]
READER: dict[str, Any] = {"min_pixels": 12544, "max_pixels": 1019200}


def test_small_images_with_the_embedded_reader_are_predicted_right() -> None:
    pytest.importorskip("torch")
    options = ["--budget", "high=1400", "--budget", "low=64", "--upstream", "embedded"]
    with process(*options) as (_, about), httpx.Client(timeout=120, trust_env=False) as http:
        for width, height in SIZES:
            body = ask("What is the total?", url_of(encoded(page(width, height))), model="embedded")
            reply = http.post(f"{about['address']}/chat/completions", json=body)
            counted = reply.json()["usage"]["prompt_tokens_details"]["multimodal_tokens"]["image"]
            assert (width, height, int(reply.headers["x-stakes-predicted-tokens"])) == (width, height, counted)
            assert counted >= 16


def as_reader(seen: Seen, wire: Wire) -> None:
    tokens = sum(count_tokens("qwen2.5-vl", *size, **READER) for size in image_sizes(seen.json))
    details = {"multimodal_tokens": {"image": tokens}}
    wire.reply(str({"usage": {"prompt_tokens": tokens, "prompt_tokens_details": details}}).replace("'", '"').encode())


def test_the_bounds_of_a_remote_upstream_can_be_given(upstream: Upstream, http: httpx.Client) -> None:
    upstream.script = as_reader
    with gateway(upstream.url, **READER) as front:
        for size in SIZES:
            http.post(f"{front.base_url}/chat/completions", json=ask("Total?", url_of(encoded(page(*size)))))
        assert front.metric("usage_checks_total", result="agreed") == len(SIZES)
        assert front.metric("usage_checks_total", result="differed") == 0


@given(
    width=st.integers(4, 1500), height=st.integers(4, 1500), budget=st.integers(4, 1400),
    low=st.integers(784, 40_000), high=st.integers(200_000, 1_500_000),
)  # fmt: skip
def test_what_is_predicted_is_what_such_a_processor_counts(
    width: int, height: int, budget: int, low: int, high: int
) -> None:
    bounds: dict[str, Any] = {"min_pixels": low, "max_pixels": high}
    try:
        image = measure_bytes(encoded(page(width, height).convert("1")), "qwen2.5-vl", Limits(), bounds)
    except Exception as error:
        assert "aspect" in str(error)  # noqa: PT017
        return
    assert image.native == count_tokens("qwen2.5-vl", width, height, **bounds)
    try:
        made = fit_image(image, budget, "qwen2.5-vl", "png")
    except InfeasibleBudget:
        with pytest.raises(InfeasibleBudget):
            predict_fit(image, budget, "qwen2.5-vl")
        return
    assert made.tokens <= budget
    assert made.tokens == predict_fit(image, budget, "qwen2.5-vl").tokens
    if made.url is not None:
        sent = image_sizes({"messages": [{"image_url": made.url}]})[0]
        assert made.tokens == count_tokens("qwen2.5-vl", *sent, **bounds)


def test_bounds_need_a_family_that_has_them(upstream: Upstream) -> None:
    with (
        pytest.raises(BadInput, match="takes no min_pixels"),
        gateway(upstream.url, policy(family="pixtral"), min_pixels=10_000),
    ):
        pass
