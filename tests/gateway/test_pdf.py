"""PDFs are drawn page by page at the size that the budget allows; no file crashes the gateway or breaks its limits."""

import base64
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image
from tests.gateway.gateways import HIGH, LOW, PAGE, Gateway, encoded, gateway, image_part, policy, text_part, url_of
from tests.gateway.pdfs import bad_pdfs, form_pdf, good_pdfs, scan_pdf, stream, text_pdf
from tests.gateway.upstream import Upstream, image_sizes

from stakes import count_tokens
from stakes.gateway.pdf.renderer import PdfRenderer
from stakes.gateway.proxy.errors import Refused
from stakes.gateway.settings import Limits


def url(data: bytes) -> str:
    return f"data:application/pdf;base64,{base64.b64encode(data).decode()}"


def file_part(data: bytes) -> dict[str, Any]:
    return {"type": "file", "file": {"filename": "a.pdf", "file_data": url(data)}}


def document(data: bytes, **more: Any) -> dict[str, Any]:
    source = {"type": "base64", "media_type": "application/pdf", "data": base64.b64encode(data).decode()}
    return {"type": "document", "source": source, **more}


def asked(*parts: dict[str, Any], question: str = "What is the total?") -> dict[str, Any]:
    return {"model": "tiny", "messages": [{"role": "user", "content": [*parts, text_part(question)]}]}


@pytest.fixture
def drawing(upstream: Upstream) -> Iterator[Gateway]:
    with gateway(upstream.url, policy(burst=40 * HIGH), pdf="render") as one:
        yield one


def post(front: Gateway, http: httpx.Client, body: dict[str, Any], path: str = "chat/completions") -> httpx.Response:
    headers = {"x-api-key": "k", "anthropic-version": "2023-06-01"} if path == "messages" else {}
    return http.post(f"{front.base_url}/{path}", json=body, headers=headers)


def test_forty_files_are_drawn_with_the_right_pages_sizes_and_tokens(
    drawing: Gateway, upstream: Upstream, http: httpx.Client
) -> None:
    files = good_pdfs()
    assert len(files) == 40
    for name, data, sizes in files:
        reply = post(drawing, http, asked(file_part(data)))
        assert reply.headers.get("x-stakes-outcome") == "fitted", (name, reply.text)
        predicted = [int(n) for n in reply.headers["x-stakes-predicted-tokens"].split(",")]
        natives = [int(n) for n in reply.headers["x-stakes-native-tokens"].split(",")]
        assert natives == [count_tokens("qwen2.5-vl", *size) for size in sizes], name
        assert [w * h // 784 for w, h in image_sizes(upstream.last.json)] == predicted, name
        assert all(
            tokens <= int(n) for tokens, n in zip(predicted, reply.headers["x-stakes-budget"].split(","), strict=True)
        )
        assert reply.headers["x-stakes-pages"] == ",".join(f"1.{i + 1}" for i in range(len(sizes)))
    assert drawing.metric("usage_checks_total", result="agreed") == 40


def test_twenty_hostile_files_are_refused_or_drawn_within_limits(
    drawing: Gateway, upstream: Upstream, http: httpx.Client
) -> None:
    files = bad_pdfs()
    assert len(files) == 20
    for name, data, code in files:
        before = len(upstream.posts())
        reply = post(drawing, http, asked(file_part(data)))
        found = reply.headers.get("x-stakes-outcome") or reply.json()["error"]["code"]
        assert found == code, name
        assert len(upstream.posts()) - before == (code == "fitted")
    assert drawing.state()["images_outstanding"] == 0
    assert post(drawing, http, asked(file_part(text_pdf()))).status_code == 200  # and it still draws


def test_the_page_shows_what_the_file_does() -> None:
    renderer = PdfRenderer(Limits())
    try:
        (scan,) = renderer.pages(scan_pdf(), "1", 50)
        drawn = scan.draw(425, 550)
        assert drawn.size == (425, 550)
        assert 500 < (np.asarray(drawn.convert("L")) < 128).sum() < 30_000  # text on paper
        (form,) = renderer.pages(form_pdf(), "1", 50)
        field = form.draw(595, 842).crop((100, 102, 300, 142)).convert("L")
        assert np.asarray(field).mean() < 30  # the value of a filled field is drawn
        (turned,) = renderer.pages(text_pdf(rotate=90), "1", 50)
        assert turned.width > turned.height
    finally:
        renderer.close()


def test_the_three_apis_and_tool_results_are_read(drawing: Gateway, upstream: Upstream, http: httpx.Client) -> None:
    two = text_pdf(2)
    chat = post(drawing, http, asked(text_part("first"), file_part(two), image_part(), question="Who signed it?"))
    assert chat.headers["x-stakes-budget"] == f"{LOW},{LOW},{LOW}"
    assert chat.headers["x-stakes-pages"] == "1.1,1.2,-"
    kinds = [part["type"] for part in upstream.last.json["messages"][0]["content"]]
    assert kinds == ["text", "image_url", "image_url", "image_url", "text"]
    part = {"type": "input_file", "filename": "a.pdf", "file_data": url(two)}
    turns = [{"role": "user", "content": [part, {"type": "input_text", "text": "What is the total?"}]}]
    response = post(drawing, http, {"model": "tiny", "input": turns}, "responses")
    assert response.headers["x-stakes-pages"] == "1.1,1.2"
    assert [one["type"] for one in upstream.last.json["input"][0]["content"]][:2] == ["input_image"] * 2
    result = {
        "type": "tool_result",
        "tool_use_id": "t",
        "content": [document(two, cache_control={"type": "ephemeral"})],
    }
    body = {"model": "tiny", "max_tokens": 4, "messages": [
        {"role": "user", "content": "What is the total?"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]},
        {"role": "user", "content": [result, document(text_pdf())]},
    ]}  # fmt: skip
    message = post(drawing, http, body, "messages")
    assert (message.status_code, message.headers["x-stakes-pages"]) == (200, "1.1,1.2,2.1")
    sent = upstream.last.json["messages"][2]["content"]
    assert [one["source"]["media_type"] for one in sent[0]["content"]] == ["image/png"] * 2
    assert "cache_control" in sent[0]["content"][1]
    assert "cache_control" not in sent[0]["content"][0]


UNREAD: list[dict[str, Any]] = [
    {"type": "file", "file": {"file_id": "f"}},
    {"type": "file", "file": {"filename": "a.docx", "file_data": "data:application/msword;base64,AAAA"}},
    {"type": "input_file", "file_url": "https://files.example/a.pdf"},
    {"type": "document", "source": {"type": "url", "url": "https://files.example/a.pdf"}},
]


@pytest.mark.parametrize("part", UNREAD, ids=range(len(UNREAD)))
def test_files_that_are_not_here_stay_unread(drawing: Gateway, http: httpx.Client, part: dict[str, Any]) -> None:
    reply = post(drawing, http, asked(part))
    assert (reply.status_code, reply.json()["error"]["code"]) == (422, "unread_image")


def test_citations_need_the_file_itself(drawing: Gateway, http: httpx.Client) -> None:
    content = [document(text_pdf(), citations={"enabled": True}), text_part("Total?")]
    body = {"model": "tiny", "max_tokens": 4, "messages": [{"role": "user", "content": content}]}
    assert post(drawing, http, body, "messages").status_code == 422


def test_without_render_a_pdf_is_unread_and_observing_changes_nothing(upstream: Upstream, http: httpx.Client) -> None:
    body = asked(file_part(text_pdf(3)))
    with gateway(upstream.url) as front:
        assert post(front, http, body).json()["error"]["code"] == "unread_image"
    upstream.script = lambda _, wire: wire.reply(b"{}")
    with gateway(upstream.url, unread="pass") as front:
        assert post(front, http, body).headers["x-stakes-outcome"] == "uncompressed"
        assert upstream.last.json == body
        assert front.metric("apart_images_total", why="uncompressed") == 1
    with gateway(upstream.url, unread="pass", pdf="refuse") as front:  # PDFs may differ from all else that is unread
        assert post(front, http, body).json()["error"]["code"] == "pdf_refused"
        assert post(front, http, asked(UNREAD[0])).status_code == 200
    with gateway(upstream.url, pdf="pass") as front:
        both = asked(file_part(text_pdf()), image_part())
        reply = post(front, http, both)
        assert (reply.headers["x-stakes-outcome"], reply.headers["x-stakes-budget"]) == ("fitted", str(HIGH))
        assert upstream.last.json["messages"][0]["content"][0] == both["messages"][0]["content"][0]
        assert front.metric("apart_images_total", why="uncompressed") == 1
        assert post(front, http, asked(file_part(text_pdf()), UNREAD[0])).json()["error"]["code"] == "unread_image"
    with gateway(upstream.url, mode="observe", pdf="render") as front:
        reply = post(front, http, body)
        assert reply.headers["x-stakes-outcome"] == "observed"
        assert len(reply.headers["x-stakes-predicted-tokens"].split(",")) == 3
        assert upstream.last.json == body
    with gateway(upstream.url, fail="open", pdf="render") as front:
        damaged = asked(file_part(b"%PDF-1.7 no"))
        assert post(front, http, damaged).headers["x-stakes-outcome"] == "uncompressed"
        assert upstream.last.json == damaged
        assert post(front, http, asked(file_part(text_pdf(51)))).status_code == 422  # limits never fail open


def test_grounding_and_engine_parameters_get_pages_in_their_own_size(upstream: Upstream, http: httpx.Client) -> None:
    with gateway(upstream.url, policy(burst=40_000), pdf="render") as front:
        headers = {"x-stakes-tier": "grounding"}
        body = asked(file_part(text_pdf()), image_part())
        reply = http.post(f"{front.base_url}/chat/completions", json=body, headers=headers)
        assert reply.headers.get("x-stakes-outcome") == "grounding", reply.text
        predicted = [int(n) for n in reply.headers["x-stakes-predicted-tokens"].split(",")]
        assert [w * h // 784 for w, h in image_sizes(upstream.last.json)] == predicted
        assert upstream.last.json["messages"][0]["content"][1]["image_url"]["url"] == PAGE
    with gateway(upstream.url, policy(family="gemma4"), pdf="render", actuator="vllm") as front:
        reply = post(front, http, asked(file_part(text_pdf())))
        assert upstream.last.json["mm_processor_kwargs"] == {"max_soft_tokens": 140}
        assert image_sizes(upstream.last.json) == [(1653, 2339)]


def test_time_and_bytes_are_limited_and_a_killed_process_is_replaced(upstream: Upstream, http: httpx.Client) -> None:
    slow = stream(b"0 0 m 500 800 l S " * 4_000_000, packed=True)
    bomb = text_pdf(1, content=b"").replace(stream(b""), slow)
    limits = Limits(pdf_s=0.5, image_bytes=2 << 20)
    with gateway(upstream.url, pdf="render", limits=limits) as front:
        for _ in range(3):
            reply = post(front, http, asked(file_part(bomb)))
            assert (reply.status_code, reply.json()["error"]["code"]) == (422, "pdf_over_limit")
            assert front.state()["images_outstanding"] == 0
        large = text_pdf() + b"\x00" * (3 << 20)
        assert post(front, http, asked(file_part(large))).json()["error"]["code"] == "image_too_large"
        many = [file_part(bomb)] * 3
        assert post(front, http, asked(*many)).status_code == 422


def test_a_file_that_takes_too_much_memory_ends_its_own_process_only() -> None:
    renderer = PdfRenderer(Limits(workers=1, pdf_memory=800_000_000))
    try:
        (one,) = renderer.pages(text_pdf(), "1", 50)
        with pytest.raises(Refused) as refusal:
            renderer.draw(one, (12_000, 12_000), [0, 0, 12_000, 12_000])
        assert refusal.value.code == "pdf_over_limit"
        assert renderer.pages(text_pdf(), "1", 50)[0].draw(300, 400).size == (300, 400)
    finally:
        renderer.close()


def test_the_process_that_draws_has_no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAKES_UPSTREAM_KEY", "secret-of-the-gateway")
    before = set(children(os.getpid()))
    renderer = PdfRenderer(Limits(workers=1))
    try:
        renderer.pages(text_pdf(), "1", 50)
        (child,) = set(children(os.getpid())) - before
        assert b"secret-of-the-gateway" not in Path(f"/proc/{child}/environ").read_bytes()
    finally:
        renderer.close()


def children(pid: int) -> list[int]:
    """Processes below one, by /proc."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            found.append(int(entry.parent.name))
    return found


def resident(pid: int) -> int:
    """Kilobytes of memory."""
    return int(re.findall(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[0])


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_memory_stays_flat() -> None:
    before = set(children(os.getpid()))
    renderer = PdfRenderer(Limits(workers=1))
    try:
        files = [data for _, data, sizes in good_pdfs() if len(sizes) <= 3][::3]

        def round_trip() -> int:
            for data in files:
                for one in renderer.pages(data, "1", 50):
                    one.draw(300, 420)
            (child,) = set(children(os.getpid())) - before
            return resident(child)

        first = round_trip()
        later = [round_trip() for _ in range(3)]
        assert max(later) < 1.2 * first
        assert max(later) < 400_000
    finally:
        renderer.close()
    assert set(children(os.getpid())) == before  # no process is left


def test_a_second_image_beside_a_pdf_is_its_own_page(drawing: Gateway, http: httpx.Client) -> None:
    small = url_of(encoded(Image.new("RGB", (56, 56), "white")))
    reply = post(drawing, http, asked(image_part(small), file_part(text_pdf()), file_part(text_pdf(2))))
    assert reply.headers["x-stakes-pages"] == "-,1.1,2.1,2.2"
    assert len(reply.headers["x-stakes-predicted-tokens"].split(",")) == 4
