"""Malicious bodies and images are refused with their status; limits are checked before anything is decoded."""

import base64
import gzip
import io
import struct
import time
import zlib
from collections.abc import Iterator

import httpx
import pytest
from PIL import Image
from tests.gateway.gateways import PAGE, Gateway, ask, dumped, encoded, gateway, image_part, page, text_part, url_of
from tests.gateway.upstream import Upstream, serving

from stakes.gateway.settings import Limits

LIMITS = Limits(body_bytes=600_000, image_bytes=200_000, images=4, pixels=2_000_000)


@pytest.fixture(scope="module")
def behind() -> Iterator[Upstream]:
    with serving() as one:
        yield one


@pytest.fixture(scope="module")
def strict(behind: Upstream) -> Iterator[Gateway]:
    with gateway(behind.url, limits=LIMITS) as one:
        yield one


def png_header(width: int, height: int, depth: int = 8, colour: int = 2) -> bytes:
    """A PNG that claims a size and holds almost nothing."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0" * 64)) + chunk(b"IEND", b"")


def bmp_header(width: int, height: int) -> bytes:
    return (
        b"BM"
        + struct.pack("<IHHI", 54, 0, 0, 54)
        + struct.pack("<IiiHHIIiiII", 40, width, height, 1, 24, 0, 0, 0, 0, 0, 0)
    )


def gif_header(width: int, height: int) -> bytes:
    frame = b"," + struct.pack("<HHHHB", 0, 0, width, height, 0) + b"\x02\x02\x44\x01\x00;"
    return b"GIF89a" + struct.pack("<HHBBB", width, height, 0xF0, 0, 0) + b"\0\0\0\xff\xff\xff" + frame


def many_scans() -> bytes:
    data = encoded(page(64, 64), "JPEG", progressive=True)
    at = data.rindex(b"\xff\xda")
    return data[:at] + data[at:-2] * 200 + data[-2:]


def data_url_of(text: str) -> str:
    return "data:image/png;base64," + text


JPEG = encoded(page(), "JPEG")
PNG = encoded(page())
SVG = b'<svg xmlns="http://www.w3.org/2000/svg"><image href="file:///etc/passwd"/></svg>'
SHORT = base64.b64encode(encoded(page(64, 64))).decode()

IMAGES: list[tuple[str, str, int, str]] = [
    ("pixel bomb as png", url_of(png_header(20_000, 20_000)), 422, "too_many_pixels"),
    ("beyond pillow's own line", url_of(png_header(60_000, 60_000)), 422, "too_many_pixels"),
    ("as wide as png allows", url_of(png_header(2**31 - 1, 2)), 422, "too_many_pixels"),
    ("pixel bomb as gif", url_of(gif_header(65_535, 65_535), "image/gif"), 422, "too_many_pixels"),
    ("pixel bomb as bmp", url_of(bmp_header(30_000, 30_000), "image/bmp"), 422, "too_many_pixels"),
    ("just over the limit", url_of(png_header(2_000_001, 1)), 422, "too_many_pixels"),
    ("a jpeg of 200 scans", url_of(many_scans(), "image/jpeg"), 422, "too_many_scans"),
    ("zero pixels wide", url_of(png_header(0, 10)), 422, "unreadable_image"),
    ("one pixel", url_of(encoded(page(64, 64).resize((1, 1)))), 422, "image_too_small"),
    ("one pixel high", url_of(encoded(page(64, 64).resize((200, 1)))), 422, "image_too_small"),
    ("thinner than the family allows", url_of(encoded(Image.new("L", (3999, 4)))), 422, "image_too_thin"),
    ("truncated jpeg", url_of(JPEG[: len(JPEG) // 2], "image/jpeg"), 422, "unreadable_image"),
    ("truncated png", url_of(PNG[: len(PNG) // 2]), 422, "unreadable_image"),
    ("png with its pixels missing", url_of(png_header(600, 600)), 422, "unreadable_image"),
    ("header only", url_of(PNG[:33]), 422, "unreadable_image"),
    ("text", url_of(b"hello, I am not an image"), 422, "unreadable_image"),
    ("html", url_of(b"<html><script>alert(1)</script>", "image/png"), 422, "unreadable_image"),
    ("svg that reads a file", url_of(SVG, "image/svg+xml"), 422, "unreadable_image"),
    ("pdf", url_of(b"%PDF-1.7\n1 0 obj"), 422, "unreadable_image"),
    (
        "eps, which runs ghostscript",
        url_of(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"),
        422,
        "unreadable_image",
    ),
    (
        "fits, whose decoder had a bomb",
        url_of(b"SIMPLE  =                    T" + b" " * 2850),
        422,
        "unreadable_image",
    ),
    ("icns", url_of(b"icns\0\0\0\x10ic07\0\0\0\x08"), 422, "unreadable_image"),
    ("ppm", url_of(b"P6 99999 99999 255\n"), 422, "unreadable_image"),
    ("noise", url_of(bytes(range(256)) * 40), 422, "unreadable_image"),
    ("nothing at all", data_url_of(""), 422, "unreadable_image"),
    ("base64 with a stray sign", data_url_of(SHORT[:40] + "*" + SHORT[40:]), 422, "bad_base64"),
    ("base64 with a line break", data_url_of(SHORT[:40] + "\n" + SHORT[40:]), 422, "bad_base64"),
    ("base64 of a wrong length", data_url_of(SHORT[:41]), 422, "bad_base64"),
    ("base64 after its end", data_url_of(SHORT + "====" + SHORT), 422, "bad_base64"),
    ("base64 of other letters", data_url_of("été" + SHORT), 422, "bad_base64"),
    ("url-safe base64", data_url_of(SHORT[:60] + "-_" + SHORT[62:]), 422, "bad_base64"),
    ("no base64 mark", "data:image/png," + SHORT, 422, "bad_data_url"),
    ("no comma", "data:image/png;base64" + SHORT, 422, "bad_data_url"),
    ("declared as text", "data:text/html;base64," + SHORT, 422, "bad_data_url"),
    ("endless parameters", "data:image/png" + ";a=b" * 200 + ";base64," + SHORT, 422, "bad_data_url"),
    ("more bytes than an image may have", url_of(b"\x89PNG\r\n\x1a\n" + b"0" * 200_001), 413, "image_too_large"),
    ("a file address", "file:///etc/passwd", 422, "bad_image_url"),
    ("ftp", "ftp://example.com/a.png", 422, "bad_image_url"),
    ("gopher", "gopher://127.0.0.1:6379/_FLUSHALL", 422, "bad_image_url"),
    ("javascript", "javascript:alert(1)", 422, "bad_image_url"),
    ("no scheme", "//example.com/a.png", 422, "bad_image_url"),
    ("a bare path", "/etc/passwd", 422, "bad_image_url"),
    ("empty", "", 422, "bad_image_url"),
]


@pytest.mark.parametrize(("url", "status", "code"), [case[1:] for case in IMAGES], ids=[case[0] for case in IMAGES])
def test_an_unsafe_image_is_refused(
    strict: Gateway, behind: Upstream, http: httpx.Client, url: str, status: int, code: str
) -> None:
    before = len(behind.seen)
    reply = http.post(f"{strict.base_url}/chat/completions", json=ask("What is the total?", url))
    assert (reply.status_code, reply.json()["error"]["code"]) == (status, code)
    assert len(behind.seen) == before
    message = reply.json()["error"]["message"]
    assert "0x" not in message  # CVE-2026-22778: an object's address in Pillow's error text
    assert "Traceback" not in message
    assert strict.state()["images_outstanding"] == 0


def nested(depth: int) -> bytes:
    return b'{"messages": "image", "x": ' + b"[" * depth + b"]" * depth + b"}"


def understated() -> bytes:
    return gzip.compress(b"0" * 500_000)[:-4] + struct.pack("<I", 1000)


def overstated() -> bytes:
    return gzip.compress(dumped(ask()))[:-4] + struct.pack("<I", 600_000)


TWO = dumped(ask())[:-1] + b', "messages": []}'
BODIES: list[tuple[str, bytes, dict[str, str], int, str]] = [
    ("too large", b" " * 600_001, {}, 413, "body_too_large"),
    ("gzip bomb", gzip.compress(b"0" * 50_000_000), {"content-encoding": "gzip"}, 413, "body_too_large"),
    ("gzip that is none", b"hello image", {"content-encoding": "gzip"}, 400, "bad_gzip"),
    ("gzip cut off", gzip.compress(dumped(ask()))[:-9], {"content-encoding": "gzip"}, 400, "bad_gzip"),
    ("gzip that states fewer bytes", understated(), {"content-encoding": "gzip"}, 400, "bad_gzip"),
    ("gzip that states more bytes", overstated(), {"content-encoding": "gzip"}, 400, "bad_gzip"),
    ("gzip and more", gzip.compress(dumped(ask())) + b"image", {"content-encoding": "gzip"}, 400, "bad_gzip"),
    ("gzip in gzip", gzip.compress(b""), {"content-encoding": "gzip, gzip"}, 415, "unsupported_encoding"),
    ("brotli", b"\x0b\x02\x80image\x03", {"content-encoding": "br"}, 415, "unsupported_encoding"),
    ("zstd", b"\x28\xb5\x2f\xfdimage", {"content-encoding": "zstd"}, 415, "unsupported_encoding"),
    ("unknown encoding", b"image", {"content-encoding": "chunked"}, 415, "unsupported_encoding"),
    ("broken json", b'{"messages": [{"image_url": ', {}, 400, "bad_json"),
    ("a list", b'["image_url"]', {}, 400, "bad_json"),
    ("a string", b'"image_url"', {}, 400, "bad_json"),
    ("not utf-8", b'{"image": "\xff\xfe"}', {}, 400, "bad_json"),
    ("utf-16", dumped(ask()).decode().encode("utf-16"), {}, 400, "bad_json"),
    ("a zero byte", b'{"messages": []}\x00', {}, 400, "bad_json"),
    ("nested too deep", nested(100_000), {}, 400, "bad_json"),
    ("the same key twice", TWO, {}, 400, "ambiguous_json"),
    ("not a number", b'{"messages": [], "image": NaN}', {}, 400, "ambiguous_json"),
    ("infinity in figures", dumped(ask())[:-1] + b', "temperature": 1e999}', {}, 400, "bad_json"),
    ("a number of 5000 figures", b'{"image": ' + b"9" * 5000 + b"}", {}, 400, "bad_json"),
    ("five images of four", dumped(ask("How many?", *[PAGE] * 5)), {}, 422, "too_many_images"),
    ("an image_url that is a number", dumped({"messages": [{"image_url": 7}]}), {}, 422, "bad_image_url"),
    ("an image_url without a url", dumped({"messages": [{"image_url": {"u": "x"}}]}), {}, 422, "bad_image_url"),
    ("an image_url that is a list", dumped({"messages": [{"image_url": [PAGE]}]}), {}, 422, "bad_image_url"),
]


@pytest.mark.parametrize(
    ("body", "headers", "status", "code"), [case[1:] for case in BODIES], ids=[case[0] for case in BODIES]
)
def test_an_unsafe_body_is_refused(
    strict: Gateway, behind: Upstream, http: httpx.Client, body: bytes, headers: dict[str, str], status: int, code: str
) -> None:
    before = len(behind.seen)
    reply = http.post(f"{strict.base_url}/chat/completions", content=body, headers=headers)
    assert (reply.status_code, reply.json()["error"]["code"]) == (status, code)
    assert len(behind.seen) == before
    assert strict.metric("rejects_total", reason=code) >= 1


GOOD: list[tuple[str, bytes, str]] = [
    ("cmyk", encoded(page().convert("CMYK"), "JPEG"), "image/jpeg"),
    ("16 bit grey", encoded(Image.new("I;16", (600, 600), 40_000)), "image/png"),
    ("grey with alpha", encoded(page().convert("LA")), "image/png"),
    ("palette", encoded(page().convert("P"), "GIF"), "image/gif"),
    ("animated", encoded(page(), "GIF", save_all=True, append_images=[page(), page()]), "image/gif"),
    ("one bit", encoded(page().convert("1"), "TIFF"), "image/tiff"),
    ("webp", encoded(page(), "WEBP"), "image/webp"),
    ("bmp", encoded(page(400, 400), "BMP"), "image/bmp"),
    ("a jpeg that says png", JPEG, "image/png"),
    ("no media type", PNG, ""),
]


@pytest.mark.parametrize(("data", "mime"), [case[1:] for case in GOOD], ids=[case[0] for case in GOOD])
def test_an_unusual_but_valid_image_is_fitted(
    behind: Upstream, http: httpx.Client, front: Gateway, data: bytes, mime: str
) -> None:
    reply = http.post(f"{front.base_url}/chat/completions", json=ask("Which colour?", url_of(data, mime)))
    assert reply.status_code == 200
    assert int(reply.headers["x-stakes-predicted-tokens"]) <= 64
    assert front.metric("usage_checks_total", result="agreed") == 1


@pytest.mark.parametrize("orientation", [3, 6, 8])
def test_an_image_rotated_by_exif_is_sent_upright(
    front: Gateway, upstream: Upstream, http: httpx.Client, orientation: int
) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    lying = url_of(encoded(page(560, 1120), "JPEG", exif=exif.tobytes()), "image/jpeg")
    http.post(f"{front.base_url}/chat/completions", json=ask("What is the total?", lying))
    url = upstream.last.json["messages"][0]["content"][0]["image_url"]["url"]
    with Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))) as sent:
        assert (sent.width > sent.height) == (orientation != 3)
        assert sent.getexif() == {}


def test_a_slow_body_is_408(upstream: Upstream) -> None:
    def dribble() -> Iterator[bytes]:
        yield b'{"a"'
        time.sleep(1)
        yield b": 1}"

    with gateway(upstream.url, limits=Limits(body_s=0.2)) as front, httpx.Client(trust_env=False) as client:
        reply = client.post(f"{front.base_url}/chat/completions", content=dribble())
    assert (reply.status_code, reply.json()["error"]["code"]) == (408, "body_timeout")
    assert not upstream.seen


def test_many_texts_and_one_image_in_one_message_are_read(front: Gateway, http: httpx.Client) -> None:
    parts = [text_part("word " * 10)] * 500 + [image_part()]
    body = {"model": "tiny", "messages": [{"role": "user", "content": parts}]}
    assert http.post(f"{front.base_url}/chat/completions", json=body).status_code == 200


def test_many_pixels_in_few_bytes_are_refused_before_any_is_decoded(upstream: Upstream, http: httpx.Client) -> None:
    url = url_of(encoded(Image.new("L", (4000, 4000)), "WEBP", lossless=True), "image/webp")
    with gateway(upstream.url, limits=Limits(request_pixels=40_000_000, pixels=20_000_000), fail="open") as front:
        began = time.perf_counter()
        refused = http.post(f"{front.base_url}/chat/completions", json=ask("What is the total?", *[url] * 3))
        assert (refused.status_code, refused.json()["error"]["code"]) == (422, "too_many_pixels")
        assert time.perf_counter() - began < 2
        assert http.post(f"{front.base_url}/chat/completions", json=ask("What is the total?", url)).status_code == 200
