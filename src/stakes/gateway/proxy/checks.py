"""What is refused about a request before anything in it is decoded.

``json.loads`` holds the interpreter from its first byte to its last: 64 MB of nested arrays stop every other request
for 20 seconds. Its time grows with values and escapes, and hardly with the bytes of plain strings (about 1 GB a
second). So these are counted first, at the speed of memory, and so is all text that is no image:

    values     the most frequent of commas, brackets, braces and quotes: a value has at least one of them
    escapes    backslashes; some clients write the "/" of base64 as "\\/"
    text       bytes outside of data URLs and of base64 under a key such as ``data``

    parse_within(body, Limits())                      # Refused: 413 text_too_large

Then the images are counted, and parts and parameters that are not read are refused.
"""

import json
import logging
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from stakes.errors import InfeasibleBudget
from stakes.gateway.monitoring.logs import Log
from stakes.gateway.proxy.errors import Refused
from stakes.gateway.proxy.images import MeasuredImage, is_data_url
from stakes.gateway.proxy.remote import check_remote
from stakes.gateway.proxy.request import Call, parse, unique_keys
from stakes.gateway.proxy.scan import SEARCHED, Action, Api, find_images, may_hold_image
from stakes.gateway.settings import Limits, Settings

PREDICTION = 8  # bytes a pixel while a predictor looks at an image: the decoded file and an upright copy
_MARK = b"\xef\xbb\xbf"  # that a text is UTF-8, at its beginning
_MARKS = (b",", b"[", b"{", b'"')
_COUNTED = 1 << 20  # bytes at a time, which stay in the cache
_LONG = 4096  # bytes from which on a string may be an image
_KEY = re.compile(rb'"(?:data|file_data|b64_json)"\s{0,9}:\s{0,9}"\Z')
# A form's part, or the whole body, in an image's own bytes; and what names an image in other text.
_RAW = re.compile(
    rb"(?:\A|\r\n\r\n)(?:\x89PNG|\xff\xd8\xff|GIF8|RIFF.{4}WEBP|BM.{4}\x00{4}|II\*\x00|MM\x00\*|%PDF"
    rb"|\x00\x00\x00.(?:ftyp|jP  ))",
    re.DOTALL,
)
_RAW_NAMES = re.compile(
    rb"image/|video/|application/pdf|data(?::|%3a)(?:image|video)|(?:image|video)_(?:url|data)|inline_?data|modal_data"
    rb"|\"images?\"|iVBORw0KGgo|/9j/4|R0lGOD|JVBERi0",
    re.IGNORECASE,
)


def parse_within(body: bytes, limits: Limits) -> dict[str, Any]:
    """The body as JSON, if it is within the limits."""
    check_json(body, limits)
    return parse(body)


def count_within(body: bytes, limits: Limits) -> int:
    """How many images a body holds that is not read; one beyond the limits is not looked at and counts as one image."""
    try:
        check_json(body, limits)
    except Refused:
        return 1
    return count_unread(body)


def check_json(body: bytes, limits: Limits) -> None:
    """Refuse a body whose JSON would take long to parse, or whose text is longer than any prompt."""
    values, escapes = _count_bytes(body)
    if values > limits.json_values:
        message = f"the body holds {values} commas, brackets or quotes, and {limits.json_values} are accepted"
        raise Refused(413, "too_many_values", message)
    if escapes > limits.json_escapes:
        message = f"the body holds {escapes} backslashes, and {limits.json_escapes} are accepted; do not escape slashes"
        raise Refused(413, "too_many_escapes", message)
    if len(body) > limits.text_bytes:
        text = len(body) - sum(_image_lengths(body))
        if text > limits.text_bytes:
            message = f"the body holds {text} bytes beside its images, and {limits.text_bytes} are accepted"
            raise Refused(413, "text_too_large", message)


def _count_bytes(body: bytes) -> tuple[int, int]:
    """How often the most frequent of the marks occurs, and the backslash.

    NumPy releases the interpreter while it counts; ``bytes.count`` would hold it for seconds where every byte is one.
    """
    found = np.zeros(len(_MARKS) + 1, dtype=np.int64)
    for start in range(0, len(body), _COUNTED):
        part = np.frombuffer(body, np.uint8, min(_COUNTED, len(body) - start), start)
        found += [np.count_nonzero(part == ord(mark)) for mark in (*_MARKS, b"\\")]
    return int(found[:-1].max()), int(found[-1])


def _image_lengths(body: bytes) -> Iterator[int]:
    """The lengths of the long strings that are data URLs, or stand under a key of base64."""
    start = 0
    while (end := body.find(b'"', start)) >= 0:
        if end - start >= _LONG and (body.startswith(b"data:", start) or _KEY.search(body[max(0, start - 40) : start])):
            yield end - start
        start = end + 1


def count_unread(body: bytes) -> int:
    """How many things may be images in a body of a path that is not read, of any format."""
    try:
        record = json.loads(body.decode("utf-8-sig"), object_pairs_hook=unique_keys)
    except (ValueError, RecursionError):
        return int(raw_may_hold_image(body))
    return len(find_images(record, "other").unread)


def other_may_hold_image(body: bytes) -> bool:
    """A cheap check of a body of any path and format, without false negatives."""
    is_json = body.removeprefix(_MARK).lstrip()[:1] in (b"{", b"[", b'"')
    return may_hold_image(body) if is_json else raw_may_hold_image(body)


def raw_may_hold_image(body: bytes) -> bool:
    """Whether a body that is not JSON (a form, lines of JSON, another encoding) may hold an image; a long one may."""
    if len(body) > SEARCHED >> 4 or b"\x00" in body[:4]:
        return True
    return _RAW.search(body) is not None or _RAW_NAMES.search(body) is not None


def unread(what: str) -> Refused:
    """What may be an image and is not read."""
    return Refused(422, "unread_image", f"{what} (the operator can allow this with --unread pass)")


def unread_path(action: Action) -> Refused:
    """A body that may hold an image, on a path that is not read."""
    if action == "refuse":
        return unread("a batch is a file of requests that the gateway does not see; send them one by one")
    paths = "/v1/chat/completions, /v1/responses or /v1/messages"
    return unread(f"the body may hold an image, and the gateway does not read this path; send it to {paths}")


def refusal_of(error: Exception, log: Log) -> Refused:
    """What the client sees; the log names an unexpected error, the client does not see that one."""
    if isinstance(error, Refused):
        return error
    if isinstance(error, InfeasibleBudget):
        return Refused(422, "infeasible_budget", str(error), passable=True)
    log.write("fitting failed", logging.ERROR, failure=error)
    return Refused(500, "internal_error", "the gateway failed to prepare this request", passable=True)


def check_readable(call: Call, api: Api, settings: Settings) -> None:
    """Refuse too many images, those that are not read, and parameters that would change their tokens."""
    most = settings.limits.images
    if call.count > most:
        raise Refused(422, "too_many_images", f"a request may hold {most} images at most")
    if api == "messages" and settings.actuator != "pixels":
        what = f"the Messages API has no parameter for the actuator {settings.actuator}"
        raise unread(f"{what}; send chat completions, or serve with --actuator pixels")
    if call.parameters:
        what = f"{call.parameters[0]} sets how many tokens an image takes, which the gateway does"
        raise unread(f"{what}; leave it out")
    if call.pdfs and settings.pdf == "refuse":
        raise Refused(422, "pdf_refused", "this gateway takes no PDFs; send their pages as images")
    others = list(call.unread)
    for kind in call.pdfs:
        others.remove(kind)
    if others and settings.unread == "refuse":
        what = f"{others[0]!r:.60} may be an image that the gateway cannot read"
        how = "an image with a base64 source" if api == "messages" else "an image_url with a data URL"
        raise unread(f"{what}; send it as {how}")


def check_addresses(call: Call) -> None:
    """Refuse addresses of private networks, which the upstream would follow."""
    for ref in call.images:
        if not is_data_url(ref.url):
            check_remote(ref.url)


def decode_bytes(images: Sequence[MeasuredImage], settings: Settings, *, predicts: bool = False) -> int:
    """Memory to decode the images one by one, in all; refused where that would be too much, or take too long.

    Without a cap on the request's tokens, other actuators and observing decode none, unless a predictor looks at the
    pixels (``predicts``). Pages of PDFs are large work whatever their size: some take seconds to draw.
    """
    limits, drawn = settings.limits, any(image.page is not None for image in images)
    decodes = predicts or (settings.actuator == "pixels" and settings.mode != "observe")
    if not (decodes or drawn) and settings.max_request_tokens is None:
        return 0
    allowed = max(limits.request_pixels, limits.pixels)
    if sum(image.width * image.height for image in images) > allowed:
        message = f"the images of a request may have {allowed / 1e6:g} megapixels together"
        raise Refused(422, "too_many_pixels", message)
    least = PREDICTION if predicts else 0
    needed = [max(image.decode_bytes, least * image.width * image.height * (image.page is None)) for image in images]
    for image, size in zip(images, needed, strict=True):
        if size > limits.decode_bytes:
            what = f"a {image.format.upper()} of {image.width}x{image.height}"
            message = f"{what} takes {size >> 20} MB to decode, and {limits.decode_bytes >> 20} are allowed"
            raise Refused(422, "too_many_pixels", f"{message}; send a smaller one, or a baseline JPEG")
    return max(sum(needed), limits.small_decode_bytes + 1 if drawn else 0)
