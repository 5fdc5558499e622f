"""Everything that can be set on a gateway, with defaults, descriptions and checks; the options of ``serve`` follow it.

Settings(upstream="http://127.0.0.1:8000/v1", mode="observe", limits=Limits(images=8))
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import field_validator, model_validator

from stakes.errors import BadInput
from stakes.gateway.options import Option, Section, positive, setting
from stakes.vision.image import MAX_PIXELS

Mode = Literal["observe", "enforce"]
Fail = Literal["open", "closed"]
ActuatorName = Literal["pixels", "vllm", "lmdeploy", "detail", "gemini"]
Encoding = Literal["png", "jpeg"]
Remote = Literal["pass", "refuse"]
Unread = Literal["refuse", "pass"]
Grounding = Literal["budget", "pass", "refuse"]
LOOPBACK = {"127.0.0.1", "localhost", "::1"}


def read_keys(path: Path) -> tuple[str, ...]:
    """Keys from a file, one a line; a file, because a key on the command line shows in the list of processes."""
    try:
        keys = tuple(line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip())
    except (OSError, ValueError):
        raise BadInput(f"no keys can be read from {path}") from None
    if not keys:
        raise BadInput(f"{path} holds no key; write one a line")
    return keys


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
    side: int = positive(4, "Fewest pixels a side: a 1x1 image has crashed a server (CVE-2026-22773).")
    header_bytes: int = positive(32 << 10, "Largest headers in bytes.")
    header_s: float = positive(20.0, "Seconds until the headers are complete.")
    body_s: float = positive(60.0, "Seconds until the body is complete.")
    workers: int = positive(2, "Threads that fit images.", Option(least=1))
    waiting: int = positive(64, "Image jobs running or waiting; beyond it the gateway returns 503.")
    fit_s: float = positive(20.0, "Seconds for one image job, waiting included.")


class Timeouts(Section):
    """How long the upstream may take, and how often a request is retried."""

    connect_s: float = positive(
        5.0, "Seconds for the upstream to accept a connection.", Option("connect_timeout", least=0.001)
    )
    read_s: float = positive(300.0, "Seconds between two chunks of a response.", Option("read_timeout", least=0.001))
    total_s: float = positive(1800.0, "Seconds for a whole response.", Option("total_timeout", least=0.001))
    tries: int = positive(3, "Attempts; retries happen only before the first byte of a response.")
    pause_s: float = positive(0.05, "Seconds before the second attempt; doubles with each.")


class Settings(Section):
    """One gateway."""

    upstream: str = setting(
        ...,
        "An OpenAI-compatible address such as http://127.0.0.1:8000/v1, embedded (or another shipped reader), or a "
        "folder.",
        Option(default="embedded"),
    )
    mode: Mode = setting("enforce", "enforce, or observe: decide and report, change nothing.", Option(kind=str))
    fail: Fail = setting(
        "closed", "closed refuses a request that cannot be fitted, open forwards it unchanged.", Option(kind=str)
    )
    actuator: ActuatorName = setting(
        "pixels", "How budgets reach the upstream: pixels, vllm, lmdeploy, detail or gemini.", Option(kind=str)
    )
    min_pixels: int | None = setting(
        None, "Area below which the upstream enlarges images, if it is not the family's.", Option(least=1), gt=0
    )
    max_pixels: int | None = setting(
        None, "Area above which the upstream shrinks images, if it is not the family's.", Option(least=1), gt=0
    )
    encoding: Encoding = setting("png", "Fitted images are sent as png (exact) or jpeg (smaller).", Option(kind=str))
    remote: Remote = setting(
        "pass", "Images at addresses of other hosts: pass them on uncompressed, or refuse them.", Option(kind=str)
    )
    remote_hosts: tuple[str, ...] = setting(
        (),
        "A host whose images may be fetched, such as *.example.com or example.com:8443; repeatable.",
        Option("remote_host", list[str], None, parse=tuple),
    )
    unread: Unread = setting(
        "refuse",
        "Images in paths and shapes that are not read: refuse them, or pass them on uncompressed.",
        Option(kind=str),
    )
    grounding: Grounding = setting(
        "budget",
        "x-stakes-tier: grounding: budget pays native sizes from the total, pass does not count them, refuse.",
        Option(kind=str),
    )
    client_keys: tuple[str, ...] = setting(
        (),
        "Keys that clients need, one a line. Default: the client's key is passed on.",
        Option("key_file", Path, None, parse=read_keys),
        repr=False,
    )
    upstream_key: str | None = setting(
        None,
        "The key that the gateway sends to the upstream.",
        Option("upstream_key_file", Path, parse=lambda path: read_keys(path)[0]),
        repr=False,
    )
    allow_bypass: bool = setting(
        True,
        "Whether clients may send x-stakes-bypass.",
        Option("no_bypass", default=False, parse=lambda typed: not typed, switch=True, help="Refuse x-stakes-bypass."),
    )
    log_questions: bool = setting(False, "Write questions into the log.", Option(switch=True))
    probe: bool = setting(True, "Ask the upstream at the start whether its tokens follow the budget.", Option())
    probe_model: str | None = setting(
        None, "The model that the probe asks. Default: the first that the upstream lists.", Option()
    )
    watch_s: float = setting(1.0, "Seconds between two checks for a changed policy file.")
    keep_images: int = setting(
        0,
        "Requests whose images and question the dashboard shows, in memory only.",
        Option(least=0, most=1000),
        ge=0,
        le=1000,
    )
    keep_undecided: int = setting(
        0,
        "Undecided requests whose texts the dashboard shows, digits and e-mail addresses masked, in memory only.",
        Option(least=0, most=1000),
        ge=0,
        le=1000,
    )
    keep_undecided_hours: float = positive(
        24.0, "Hours after which a text of --keep-undecided is dropped.", Option(least=0.01)
    )
    telemetry: str | None = setting(
        None, "OpenTelemetry to console, to an http(s) address of OTLP, or global.", Option()
    )
    shadow: float = setting(
        0.0,
        "Share of fitted requests, such as 0.01, that are asked again at native size to monitor drift.",
        Option(),
        ge=0,
        le=1,
    )
    shadow_at_once: int = setting(1, "Most shadow requests at a time; others are dropped.", Option(least=1), ge=1)
    shadow_window: float = setting(
        60.0,
        "Seconds in which the requests of one client or x-stakes-group count as one value; 0: all are independent.",
        Option(least=0),
        ge=0,
        allow_inf_nan=False,
    )
    shadow_s: float = setting(120.0, "Seconds for one shadow request.", gt=0)
    limits: Limits = Limits()
    timeouts: Timeouts = Timeouts()

    @model_validator(mode="after")
    def _valid_upstream(self) -> Self:
        from stakes.http import server_name  # imports httpx, which --help does not need

        server_name(self.upstream, self.upstream_key)
        return self

    @field_validator("client_keys")
    @classmethod
    def _valid_keys(cls, keys: tuple[str, ...]) -> tuple[str, ...]:
        for key in keys:
            if len(key) < 8 or not (key.isascii() and key.isprintable()) or " " in key:
                raise BadInput("a client key is at least 8 printable characters without spaces; one of these is not")
        return keys

    def check_host(self, host: str) -> None:
        """Refuse to lend the upstream's key to everybody who reaches the port; loopback needs no client keys."""
        if self.upstream_key and not self.client_keys and host not in LOOPBACK:
            raise BadInput(
                f"on {host} anybody could spend the upstream's key; give client keys as well, or listen on 127.0.0.1"
            )

    @property
    def bounds(self) -> dict[str, int]:
        """The bounds of the upstream's processor that are not the family's."""
        given = {"min_pixels": self.min_pixels, "max_pixels": self.max_pixels}
        return {name: pixels for name, pixels in given.items() if pixels is not None}

    def notes(self) -> list[str]:
        """What operators must know at the start."""
        if not self.keep_undecided:
            return []
        return [
            f"keeps texts of up to {self.keep_undecided} undecided requests in memory for "
            f"{self.keep_undecided_hours:g} hours, digits and e-mail addresses masked, and shows them on the dashboard"
        ]

    @classmethod
    def from_options(cls, upstream: str, typed: Mapping[str, Any]) -> "Settings":
        """The settings of ``stakes serve``; ``typed``: the values of its options by name, None where not given."""
        values: dict[Any, dict[str, Any]] = {cls: {}, Limits: {}, Timeouts: {}}
        for option in declared_options():
            if typed.get(option.name) is not None:
                values[option.section][option.field] = option.parse(typed[option.name])
        sections = {"limits": Limits(**values[Limits]), "timeouts": Timeouts(**values[Timeouts])}
        return cls(**{**values[cls], **sections, "upstream": upstream})


def declared_options() -> Iterator[Option]:
    """Every setting that is an option of ``stakes serve``, in order and with all of its fields."""
    for section in (Settings, Limits, Timeouts):
        for field, info in section.model_fields.items():
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
                    section=section,
                )
