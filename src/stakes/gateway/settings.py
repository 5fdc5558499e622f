"""What can a person who runs a gateway set? Every knob with its default; nothing is read from the environment.

Settings(upstream="http://127.0.0.1:8000/v1", mode="observe", limits=Limits(images=8))
"""

import math
from dataclasses import dataclass, field, fields
from typing import Literal, get_args

from stakes.errors import BadInput
from stakes.signals.endpoint import server_name
from stakes.vision.image.decode import MAX_PIXELS

Mode = Literal["observe", "enforce"]
Fail = Literal["open", "closed"]
ActuatorName = Literal["pixels", "vllm", "lmdeploy", "detail", "gemini"]
Encoding = Literal["png", "jpeg"]
Remote = Literal["pass", "refuse"]
LOOPBACK = {"127.0.0.1", "localhost", "::1"}


@dataclass(frozen=True)
class Limits:
    """The most of everything that a stranger can send; each is checked before any pixel is decoded."""

    body_bytes: int = 64 << 20  # as sent, and again once a gzip body is unpacked
    image_bytes: int = 24 << 20  # of one image, base64 undone
    images: int = 50  # in one request
    pixels: int = MAX_PIXELS  # of one image
    side: int = 4  # fewest pixels a side: a 1x1 image has crashed a server (CVE-2026-22773)
    header_bytes: int = 32 << 10
    header_s: float = 20.0  # until the headers are complete
    body_s: float = 60.0  # until the body is complete
    workers: int = 2  # threads that decode, fit and encode
    waiting: int = 64  # pieces of work inside or waiting; beyond it the gateway says 503
    fit_s: float = 20.0  # of one piece of work, waiting included


@dataclass(frozen=True)
class Timeouts:
    """How long the upstream may take, and how often a request that it never answered is sent again."""

    connect_s: float = 5.0
    read_s: float = 300.0  # between two pieces of an answer, and until the first
    total_s: float = 1800.0
    tries: int = 3  # only before the first byte of the answer
    pause_s: float = 0.05  # before the second try; doubles


@dataclass(frozen=True)
class Settings:
    """One gateway.

    ``fail``: what becomes of a request that the gateway cannot fit (an unreadable image, no worker free): "open" passes
    it on as it came, counted apart; "closed" refuses it. ``remote``: what becomes of an image address whose host is not
    one of ``remote_hosts`` ("example.com", "*.example.com", "example.com:8443"). ``client_keys``: the gateway's own;
    without any, the client's authorization goes to the upstream as it is. ``upstream_key``: what the upstream is asked
    with. ``watch_s``: how often the policy's file is looked at. ``keep_images``: how many of the last requests keep
    their images and question in memory for the live page. ``telemetry``: where OpenTelemetry goes ("console", "global"
    or the http(s) address of OTLP), None for nowhere. ``shadow``: the share of fitted requests that is asked again at
    native size once the client has its answer, ``shadow_at_once`` of them at most and for ``shadow_s`` at the longest.
    """

    upstream: str
    mode: Mode = "enforce"
    fail: Fail = "closed"
    actuator: ActuatorName = "pixels"
    encoding: Encoding = "png"
    remote: Remote = "pass"
    remote_hosts: tuple[str, ...] = ()
    client_keys: tuple[str, ...] = field(default=(), repr=False)
    upstream_key: str | None = field(default=None, repr=False)
    allow_bypass: bool = True
    log_questions: bool = False
    probe: bool = True
    probe_model: str | None = None
    watch_s: float = 1.0
    keep_images: int = 0
    telemetry: str | None = None
    shadow: float = 0.0
    shadow_at_once: int = 1
    shadow_s: float = 120.0
    limits: Limits = Limits()
    timeouts: Timeouts = Timeouts()

    def __post_init__(self) -> None:
        server_name(self.upstream, self.upstream_key)
        for name, kind in (
            ("mode", Mode), ("fail", Fail), ("actuator", ActuatorName), ("encoding", Encoding), ("remote", Remote)
        ):  # fmt: skip
            value = getattr(self, name)
            if value not in get_args(kind):
                raise BadInput(f"{name} is one of {', '.join(get_args(kind))}, not {value!r}")
        for part in (self.limits, self.timeouts):
            for one in fields(part):
                if not 0 < getattr(part, one.name) < math.inf:
                    raise BadInput(f"{one.name} must be above zero and finite, not {getattr(part, one.name)!r}")
        if not 0 <= self.keep_images <= 1000:
            raise BadInput(f"keep_images is how many requests keep their images, 0 to 1000, not {self.keep_images}")
        if not 0 <= self.shadow <= 1:
            raise BadInput(f"shadow is a share of the requests, from 0 to 1, not {self.shadow}")
        if self.shadow_at_once < 1 or not self.shadow_s > 0:
            raise BadInput("at least one shadow is asked at once, for some seconds; shadow=0 asks none")
        for key in self.client_keys:
            if len(key) < 8 or not (key.isascii() and key.isprintable()) or " " in key:
                raise BadInput("a client key is at least 8 printable characters without spaces; one of these is not")

    def check_host(self, host: str) -> None:
        """Lending the upstream's key to whoever can reach the port needs keys of one's own, except on loopback."""
        if self.upstream_key and not self.client_keys and host not in LOOPBACK:
            raise BadInput(
                f"on {host} anybody could spend the upstream's key; give client keys as well, or listen on 127.0.0.1"
            )
