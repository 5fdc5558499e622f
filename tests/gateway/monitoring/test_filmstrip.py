"""The dashboard's filmstrip: crops of the image that was sent, what OCR reads in them, and nothing kept."""

import base64
import io
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont
from tests.gateway.gateways import Gateway, calibrated, gateway, policy
from tests.gateway.upstream import Upstream

from stakes.data.synthetic.typefaces import FONTS
from stakes.gateway.monitoring.filmstrip import spellings

pytest.importorskip("rapidocr", reason="a filmstrip needs the ocr extra")


def data_url(image: Image.Image) -> str:
    file = io.BytesIO()
    image.save(file, "PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def post(http: httpx.Client, front: Gateway, **body: Any) -> httpx.Response:
    return http.post(f"{front.address}/stakes/filmstrip", json=body, timeout=120)


def test_an_answer_is_shown_at_each_budget_and_nothing_is_kept(http: httpx.Client, upstream: Upstream) -> None:
    page = Image.new("RGB", (560, 224), "white")
    ImageDraw.Draw(page).text((60, 90), "Total due 1240.75", "black", ImageFont.truetype(FONTS / "Go-Regular.ttf", 30))
    with gateway(upstream.url, calibrated()) as front:
        reply = post(http, front, image=data_url(page), answer="It is 1240.75.", budget=40)
        assert reply.status_code == 200, reply.text
        strip = reply.json()
        budgets = sorted({*front.served.rules.policy.budgets.values(), 40, 1024})
        assert [frame["budget"] for frame in strip["frames"]] == budgets
        assert [frame["budget"] for frame in strip["frames"] if frame["chosen"]] == [40]
        assert strip["frames"][-1]["legible"]
        assert strip["frames"][-1]["read"] == "1240.75"
        for frame in strip["frames"]:
            crop = Image.open(io.BytesIO(base64.b64decode(frame["image"].partition(",")[2])))
            assert crop.width == 240
            crop.close()
        filmstrips = front.app.state.filmstrips
        assert filmstrips._ocr.pages.folder is None
        assert not filmstrips._ocr.locations
        assert http.get(f"{front.address}/stakes/state").json()["filmstrip"] is True
        missing = post(http, front, image=data_url(page), answer="not printed anywhere")
        assert (missing.status_code, missing.json()["error"]["code"]) == (422, "not_printed")
    assert upstream.seen == []  # no model was asked


def test_the_frames_are_without_margins_where_the_policy_trims(http: httpx.Client, upstream: Upstream) -> None:
    """At 64 tokens the print is less blurred where the blank paper around the frame gets none of them."""
    page = Image.new("RGB", (840, 1120), "white")
    draw = ImageDraw.Draw(page)
    draw.text((260, 500), "Total due 1240.75", "black", ImageFont.truetype(FONTS / "Go-Regular.ttf", 24))
    draw.rectangle((200, 300, 640, 800), outline="black", width=3)
    plan = {"high": {"cost": 5, "budget": 200}, "low": {"cost": 1, "budget": 64}}
    darkest: dict[bool | None, int] = {}
    for trim in (None, True):
        with gateway(upstream.url, policy(tiers=plan, trim=trim)) as front:
            reply = post(http, front, image=data_url(page), answer="1240.75", budget=64)
        assert reply.status_code == 200, reply.text
        first, _ = reply.json()["frames"]
        with Image.open(io.BytesIO(base64.b64decode(first["image"].partition(",")[2]))) as crop:
            darkest[trim] = int(np.asarray(crop.convert("L")).min())
    assert darkest[True] < darkest[None] - 30, darkest


def test_a_page_is_shown_whole_where_its_print_has_no_size_within_the_smallest_budget(
    http: httpx.Client, upstream: Upstream
) -> None:
    page = Image.new("RGB", (826, 1168), "white")
    draw = ImageDraw.Draw(page)
    draw.text((350, 500), "1240.75", "black", ImageFont.truetype(FONTS / "Go-Regular.ttf", 24))
    draw.rectangle((320, 10, 505, 1150), outline="black", width=3)
    plan = {"high": {"cost": 5, "budget": 64}, "low": {"cost": 1, "budget": 16}}
    with gateway(upstream.url, policy(tiers=plan, trim=True, family="glm-4.5v", mean_budget=64)) as front:
        reply = post(http, front, image=data_url(page), answer="1240.75", budget=64)
    assert reply.status_code == 200, reply.text


def test_what_cannot_be_drawn_is_refused_in_words(http: httpx.Client, upstream: Upstream) -> None:
    image = data_url(Image.new("RGB", (56, 56), "white"))
    with gateway(upstream.url, calibrated()) as front:
        address = f"{front.address}/stakes/filmstrip"
        for body, status in (
            ({"image": image}, 400),
            ({"image": image, "answer": "1", "more": 2}, 400),
            ({"image": "data:image/png;base64,AAAA", "answer": "1"}, 422),
            ({"image": "no image", "answer": "1"}, 422),
        ):
            reply = http.post(address, json=body, timeout=60)
            assert (reply.status_code, bool(reply.json()["error"]["message"])) == (status, True), body
        assert http.post(address, content=b"{}", headers={"content-type": "text/plain"}).status_code == 415
        away = http.post(address, json={"image": image, "answer": "1"}, headers={"host": "a.example"})
        assert away.status_code == 403
    assert upstream.seen == []


def test_numbers_and_dates_are_looked_for_within_a_sentence() -> None:
    assert spellings("The total is $1,240.00 on 2024-03-05.") == (
        "The total is $1,240.00 on 2024-03-05.", "$1,240.00", "2024-03-05",
    )  # fmt: skip
    assert spellings("Anna") == ("Anna",)
