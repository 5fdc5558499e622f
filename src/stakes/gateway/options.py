"""Declares settings once: checked fields of a section, each with how ``stakes serve`` takes it as an option; limits.

    class Limits(Section):
        images: int = positive(50, "Most images in a request.", Option("max_images", least=1))

A field that carries an ``Option`` is an option of ``stakes serve``; its description is the help text.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from stakes.errors import BadInput
from stakes.vision.image import MAX_PIXELS

_SECRET = ("client_keys", "upstream_key", "ledger")  # never repeated in an error


@dataclass(frozen=True)
class Option:
    """How ``stakes serve`` takes a setting; what is not given here is taken from the field.

    ``kind`` and ``default``: of the value that is typed. ``least``, ``most``: its bounds. ``parse``: from it to the
    setting. ``switch``: a flag that has no ``--no-`` form.
    """

    name: str = ""
    kind: Any = None
    default: Any = ...
    least: float | None = None
    most: float | None = None
    parse: Callable[[Any], Any] = lambda typed: typed
    switch: bool = False
    help: str = ""
    field: str = ""
    section: "type[Section] | None" = None


class Section(BaseModel):
    """Checked settings; a wrong value is a ``BadInput`` of one sentence."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise BadInput(_sentence(error)) from None

    @classmethod
    def options(cls) -> Iterator[Option]:
        """Every field that is an option of ``stakes serve``, in order and with all of its fields."""
        for field, info in cls.model_fields.items():
            extra: Any = info.json_schema_extra or {}
            option = extra.get("option")
            if option is not None:
                yield replace(
                    option,
                    name=option.name or field,
                    kind=option.kind or info.annotation,
                    default=info.default if option.default is ... else option.default,
                    help=option.help or info.description or "",
                    field=field,
                    section=cls,
                )


def _sentence(error: ValidationError) -> str:
    first = error.errors()[0]
    name, message = ".".join(str(part) for part in first["loc"]), first["msg"]
    if first["type"] == "value_error":  # one of our own
        return message.removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        return f"there is no setting {name!r}"
    if first["type"] == "missing":  # its input is all that was given, keys too
        return f"the setting {name!r} is missing; give it"
    value = "" if first["loc"][0] in _SECRET else f", not {first['input']!r}"
    return message.replace("Input should", f"{name} should") + value


def setting(default: Any, description: str, option: Option | None = None, **checks: Any) -> Any:
    """A setting with its default, description and checks."""
    extra: Any = {"option": option}
    return Field(default, description=description, json_schema_extra=extra, **checks)


def positive(default: Any, description: str, option: Option | None = None) -> Any:
    """A setting above 0."""
    return setting(default, description, option, gt=0, allow_inf_nan=False)


class Limits(Section):
    """The largest request that is accepted; each limit is checked before any pixel is decoded."""

    # The body is checked as received, and again after gzip was decompressed.
    body_bytes: int = positive(
        64 << 20, "Largest request.", Option("max_body_mb", default=64, least=1, parse=lambda mb: mb << 20)
    )
    image_bytes: int = positive(24 << 20, "Largest image in bytes, after base64.")
    images: int = positive(50, "Most images in a request.", Option("max_images", least=1))
    pixels: int = positive(
        MAX_PIXELS, "Largest image.", Option("max_megapixels", float, 89.0, least=0.001, parse=lambda n: int(n * 1e6))
    )
    request_pixels: int = positive(250_000_000, "Most pixels in all images of a request that are decoded.")
    decode_bytes: int = positive(600 << 20, "Most memory to decode an image.")
    small_decode_bytes: int = positive(128 << 20, "Memory to decode up to which a request never waits for larger ones.")
    open_decode_bytes: int = positive(
        4 << 30, "Memory to decode, of all larger requests together; beyond it the gateway returns 503."
    )
    side: int = positive(4, "Fewest pixels a side: a 1x1 image has crashed a server (CVE-2026-22773).")
    text_bytes: int = positive(
        4 << 20,
        "Largest request with images, without these.",
        Option("max_text_mb", default=4, least=1, parse=lambda mb: mb << 20),
    )
    json_values: int = positive(100_000, "Most commas, brackets or quotes of one kind in a body.")
    json_escapes: int = positive(1_000_000, "Most backslashes in a body.")
    open_bytes: int = positive(256 << 20, "Bytes of all bodies at a time; beyond it the gateway returns 503.")
    header_bytes: int = positive(32 << 10, "Largest headers in bytes.")
    header_s: float = positive(20.0, "Seconds until the headers are complete.")
    body_s: float = positive(60.0, "Seconds until the body is complete.")
    workers: int = positive(2, "Threads that fit images.", Option(least=1))
    waiting: int = positive(64, "Image jobs running or waiting; beyond it the gateway returns 503.")
    fit_s: float = positive(20.0, "Seconds for one image job, waiting included.")
    pdf_s: float = positive(5.0, "Seconds to open all PDFs of a request, or to draw one page.")
    pdf_memory: int = positive(2 << 30, "Address space in bytes of a process that draws PDFs; an idle one takes 0.5e9.")


class Timeouts(Section):
    """How long the upstream may take, and how often a request is retried."""

    connect_s: float = positive(
        5.0, "Seconds for the upstream to accept a connection.", Option("connect_timeout", least=0.001)
    )
    read_s: float = positive(300.0, "Seconds between two chunks of a response.", Option("read_timeout", least=0.001))
    total_s: float = positive(1800.0, "Seconds for a whole response.", Option("total_timeout", least=0.001))
    tries: int = positive(3, "Attempts; retries happen only before the first byte of a response.")
    pause_s: float = positive(0.05, "Seconds before the second attempt; doubles with each.")
