"""Everything that can be set on a gateway, with defaults, descriptions and checks; the options of ``serve`` follow it.

Settings(upstream="http://127.0.0.1:8000/v1", mode="observe", limits=Limits(images=8))
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import field_validator, model_validator

from stakes.errors import BadInput
from stakes.gateway.ledger.open import LedgerOptions
from stakes.gateway.options import Limits as Limits
from stakes.gateway.options import Option, Section, positive, setting
from stakes.gateway.options import Timeouts as Timeouts
from stakes.gateway.proxy.clients import parse_keys, read_keys
from stakes.vision.geometry import family as named_family
from stakes.vision.geometry.menus import ActuatorName

Mode = Literal["observe", "enforce"]
Fail = Literal["open", "closed"]
Encoding = Literal["png", "jpeg"]
Remote = Literal["pass", "refuse"]
Unread = Literal["refuse", "pass"]
Grounding = Literal["budget", "pass", "refuse"]
Pdf = Literal["render", "refuse", "pass"]
UpstreamAuth = Literal["bearer", "x-api-key", "api-key"]
LOOPBACK = {"127.0.0.1", "localhost", "::1"}


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
        "pixels",
        "How budgets reach the upstream: pixels, vllm, vllm-deletion, lmdeploy, detail or gemini.",
        Option(kind=str),
    )
    min_pixels: int | None = setting(
        None, "Area below which the upstream enlarges images, if it is not the family's.", Option(least=1), gt=0
    )
    max_pixels: int | None = setting(
        None, "Area above which the upstream shrinks images, if it is not the family's.", Option(least=1), gt=0
    )
    image_max_tokens: int | None = setting(
        None,
        "The --image-max-tokens of a llama.cpp upstream (Ollama: LLAMA_ARG_IMAGE_MAX_TOKENS).",
        Option(least=1),
        gt=0,
    )
    encoding: Encoding = setting("png", "Fitted images are sent as png (exact) or jpeg (smaller).", Option(kind=str))
    trim: bool = setting(
        False,
        "Cut uniform margins and scanner borders off, as with a policy that was calibrated so.",
        Option(switch=True),
    )
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
    pdf: Pdf | None = setting(
        None,
        "PDFs in requests: render (each page becomes an image; stakes[pdf]), refuse or pass. Default: as --unread.",
        Option(kind=str),
    )
    grounding: Grounding = setting(
        "budget",
        "x-stakes-tier: grounding: budget pays native sizes from the total, pass does not count them, refuse.",
        Option(kind=str),
    )
    max_request_tokens: int | None = setting(
        None,
        "Most tokens for all images of a request, shared over those that are not blank. Default: no cap.",
        Option(kind=int, least=1),
        gt=0,
    )
    client_keys: tuple[str, ...] = setting(
        (),
        "Keys that clients need, as lines of a key file.",
        repr=False,
    )
    key_file: Path | None = setting(
        None,
        "Keys that clients need, one a line, each with a name before it and limits after it if you like: "
        "team-a KEY rpm=60 tpm=100000 share=0.25. Default: the client's key is passed on.",
        Option(),
    )
    upstream_key: str | None = setting(None, "The key that the gateway sends to the upstream.", repr=False)
    upstream_key_file: Path | None = setting(
        None, "The file of the key that the gateway sends to the upstream.", Option()
    )
    upstream_auth: UpstreamAuth = setting(
        "bearer",
        "The header of that key: bearer (Authorization), x-api-key or api-key (Azure).",
        Option(kind=str),
    )
    tls_cert: Path | None = setting(None, "A certificate chain in PEM, to serve https; with --tls-key.", Option())
    tls_key: Path | None = setting(None, "The certificate's key in PEM.", Option())
    allow_origins: tuple[str, ...] = setting(
        (),
        "An origin whose web pages may use the gateway, such as https://chat.example.com; repeatable.",
        Option("allow_origin", list[str], None, parse=tuple),
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
    price: float | None = setting(
        None,
        "Dollars per million input tokens, such as 0.15: the dashboard and the metrics show savings as money.",
        Option(kind=float, least=0),
        gt=0,
    )
    token_ms: float | None = setting(
        None,
        "Milliseconds that 1,000 visual tokens take, as calibrate measured: savings are shown as time too.",
        Option(kind=float, least=0),
        gt=0,
    )
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
    burst: int | None = setting(
        None,
        "Tokens that the total may run ahead of the mean. Default: the policy's, else 32 mean budgets.",
        Option(kind=int, least=0),
        ge=0,
    )
    ledger: str | None = setting(
        None,
        "Keeps the total over restarts, crashes and processes: a file, or an address such as redis://host:6379/0. "
        "Default: the total begins anew with the process.",
        Option(kind=str),
        repr=False,
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
    shared: LedgerOptions = LedgerOptions()

    @model_validator(mode="after")
    def _valid_upstream(self) -> Self:
        from stakes.http import server_name  # imports httpx, which --help does not need

        server_name(self.upstream, self.upstream_key)
        return self

    @model_validator(mode="before")
    @classmethod
    def _read_key_files(cls, values: dict[str, Any]) -> dict[str, Any]:
        """The keys of the files; both files are read again when they change."""
        read: dict[str, Any] = {}
        if values.get("key_file") is not None:
            read["client_keys"] = read_keys(Path(values["key_file"]))
        if values.get("upstream_key_file") is not None:
            read["upstream_key"] = read_keys(Path(values["upstream_key_file"]))[0]
        return {**values, **read}

    @model_validator(mode="after")
    def _whole_certificate(self) -> Self:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise BadInput("give --tls-cert and --tls-key together, or neither")
        return self

    @field_validator("client_keys")
    @classmethod
    def _valid_keys(cls, keys: tuple[str, ...]) -> tuple[str, ...]:
        parse_keys(keys)
        return keys

    @field_validator("allow_origins")
    @classmethod
    def _valid_origins(cls, origins: tuple[str, ...]) -> tuple[str, ...]:
        for origin in origins:
            if not re.fullmatch(r"https?://(?:[a-z0-9.-]+|\[[0-9a-f:]+\])(?::[0-9]{1,5})?", origin):
                raise BadInput(f"an origin is a scheme and a host in lower case, as https://a.example, not {origin!r}")
        return origins

    @property
    def lends_key(self) -> bool:
        """Whether every client gets the upstream's key without a key of its own."""
        return bool(self.upstream_key) and not self.client_keys

    @property
    def answers_browsers(self) -> bool:
        """Whether the gateway decides which web pages may read its responses, in place of the upstream."""
        return bool(self.upstream_key or self.client_keys or self.allow_origins)

    def check_host(self, host: str) -> None:
        """Refuse to lend the upstream's key to everybody who reaches the port; loopback needs no client keys."""
        if self.lends_key and host not in LOOPBACK:
            raise BadInput(
                f"on {host} anybody could spend the upstream's key; give client keys as well, or listen on 127.0.0.1"
            )

    def bounds_of(self, family: str) -> dict[str, int]:
        """The bounds of the upstream's processor that are not the family's."""
        most = self.max_pixels
        if self.image_max_tokens is not None:
            factor = named_family(family).factor
            if factor is None or most is not None:
                raise BadInput(
                    "--image-max-tokens is for families of square patches (Qwen-VL, gemma4-llama.cpp), "
                    "and in place of --max-pixels"
                )
            most = self.image_max_tokens * factor**2
        given = {"min_pixels": self.min_pixels, "max_pixels": most}
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
        values: dict[Any, dict[str, Any]] = {section: {} for section in (cls, *SECTIONS.values())}
        for option in declared_options():
            if typed.get(option.name) is not None:
                values[option.section][option.field] = option.parse(typed[option.name])
        sections = {name: section(**values[section]) for name, section in SECTIONS.items()}
        return cls(**{**values[cls], **sections, "upstream": upstream})


SECTIONS: dict[str, type[Section]] = {"limits": Limits, "timeouts": Timeouts, "shared": LedgerOptions}


def declared_options() -> Iterator[Option]:
    """Every setting that is an option of ``stakes serve``, in order and with all of its fields."""
    sections: list[type[Section]] = [Settings, *SECTIONS.values()]
    for section in sections:
        yield from section.options()
