"""Images whose size the family's service would refuse are resized or refused."""

import base64
import io

import httpx
import pytest
from PIL import Image
from tests.gateway.gateways import ask, encoded, gateway, policy, url_of
from tests.gateway.upstream import Upstream

from stakes.errors import InfeasibleBudget
from stakes.gateway.proxy.errors import Refused
from stakes.gateway.proxy.images import fit_image, measure_bytes, predict_fit
from stakes.gateway.settings import Limits
from stakes.vision.geometry import accepted_size, count_tokens

LONG = encoded(Image.new("1", (8400, 6000), 1))  # Claude refuses a side above 8,000 pixels


def opened(url: str) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2])))


@pytest.mark.parametrize("budget", [300, 5000])
def test_a_page_longer_than_claude_accepts_is_resized_whatever_its_budget(budget: int) -> None:
    one = measure_bytes(LONG, "claude", Limits())
    assert (one.width, one.height) == (8400, 6000)
    assert one.native == count_tokens("claude", *accepted_size("claude", 8400, 6000))
    made = fit_image(one, budget, "claude", "png")
    assert made.url is not None, "unchanged, the service would refuse it"
    size = opened(made.url).size
    assert max(size) <= 8000
    assert (
        count_tokens("claude", *size)
        == made.tokens
        == min(made.tokens, budget)
        == predict_fit(one, budget, "claude").tokens
    )
    assert made.scale == (size[0] / 8400, size[1] / 6000)


def test_a_long_page_reaches_claude_fitted(upstream: Upstream, http: httpx.Client) -> None:
    with gateway(upstream.url, policy(family="claude")) as front:
        reply = http.post(f"{front.base_url}/chat/completions", json=ask("What is the total?", url_of(LONG)))
    assert reply.status_code == 200, reply.text
    content = upstream.seen[-1].json["messages"][-1]["content"]
    sent = next(part["image_url"]["url"] for part in content if part["type"] == "image_url")
    assert count_tokens("claude", *opened(sent).size) <= 256


@pytest.mark.parametrize(
    ("size", "family", "words"),
    [
        ((3999, 4), "qwen2.5-vl", "an image of 3999x4 has an aspect ratio of 1000, and Qwen-VL's processor refuses"),
        ((9000, 4), "pixtral", "an image of 9000x4 is too thin for Pixtral"),
        ((20_000, 4), "claude", "an image of 20000x4 has a side above 8000 pixels, which claude rejects, and one side"),
    ],
)
def test_the_refusal_of_a_thin_image_is_the_familys_own_sentence(
    size: tuple[int, int], family: str, words: str
) -> None:
    with pytest.raises(Refused) as caught:
        measure_bytes(encoded(Image.new("1", size)), family, Limits())
    assert (caught.value.status, caught.value.code) == (422, "image_too_thin")
    assert str(caught.value).startswith(words)
    assert str(caught.value).endswith("crop it")


@pytest.mark.parametrize("family", ["gpt-4o", "gemini", "gpt-4.1-mini"])
def test_an_image_of_8000000x10_is_refused(family: str) -> None:
    one = measure_bytes(encoded(Image.new("1", (8_000_000, 10))), family, Limits())
    with pytest.raises(InfeasibleBudget, match="8000000x10 is too thin to be resized"):
        fit_image(one, 300, family, "png")
    with pytest.raises(InfeasibleBudget, match="8000000x10 is too thin to be resized"):
        predict_fit(one, 300, family)
