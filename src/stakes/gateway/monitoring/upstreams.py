"""Known upstreams: how a budget reaches each, what its usage states, how that is known, and how it is recognized.

``stakes doctor --upstream`` reports what it recognizes, and docs/gateway.md prints the table:

    known, version = await recognize(upstream, headers, listing)      # of GET …/models
    known.name, version                                               # 'vLLM', '0.32.0'

Only what a server states of itself counts: its host name, a header, the owner of its models, or an endpoint that no
other has. Servers that imitate another's list of models (``owned_by: openai``) stay unrecognized.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

from stakes.budgets.policy import Policy
from stakes.gateway.proxy.upstream import NETWORK_ERRORS, Upstream
from stakes.gateway.proxy.usage import parsed
from stakes.vision.geometry.menus import ActuatorName

State = Literal["good", "absent", "unknown", "bad"]
_SECONDS, _ANSWER_S = 5.0, 120.0
_LONGEST_REASON = 200
_VERSION = re.compile(r"[\w.+-]{1,40}")
WHOLE = "the whole prompt"


@dataclass(frozen=True)
class UpstreamCheck:
    """One result of ``check_upstream``; "absent" is optional and missing, only "bad" is a problem."""

    name: str
    state: State
    found: str
    advice: str = ""


@dataclass(frozen=True)
class VersionPath:
    """Where a server states its version: a path at its root, the key in that JSON, and one that only it has there.

    Without ``only`` the path says nothing about who answers.
    """

    path: str
    key: str = "version"
    only: str = ""


@dataclass(frozen=True)
class KnownUpstream:
    """One server or service.

    ``parameter``: what sets an image's tokens beside its size. ``usage``: the tokens that answers state. ``checked``:
    by which run here, or from sources or documentation of when. ``hosts``: endings of its addresses. ``header``: of its
    responses, and how the value begins. ``owner``: of all its models. ``ids``: how all names of its models begin.
    """

    name: str
    actuators: tuple[ActuatorName, ...]
    parameter: str
    usage: str
    checked: str
    hosts: tuple[str, ...] = ()
    header: tuple[str, str] | None = None
    owner: str | None = None
    ids: str | None = None
    version: VersionPath | None = None

    def is_at(self, address: str, headers: Mapping[str, str], models: list[Any]) -> bool:
        """Whether an address, the headers or the list of its models are this one's."""
        host = urlsplit(address).hostname or ""
        if any(host == one or host.endswith(f".{one}") for one in self.hosts):
            return True
        name, begins = self.header or ("", "")
        if name in headers and headers[name].lower().startswith(begins):
            return True
        if self.owner is not None and models and all(_text(one, "owned_by") == self.owner for one in models):
            return True
        return self.ids is not None and bool(models) and all(_text(one, "id").startswith(self.ids) for one in models)


UPSTREAMS = (
    KnownUpstream(
        "vLLM", ("pixels", "vllm", "vllm-deletion"),
        "`mm_processor_kwargs` of a request, with `--trust-request-mm-kwargs`; with the plugin, any budget by deletion",
        "image tokens with `--enable-prompt-tokens-details`, else the whole prompt",
        "here: 0.32.0, `make test-engine`", owner="vllm", version=VersionPath("/version"),
    ),
    KnownUpstream(
        "SGLang", ("pixels",), "only at its start: `--mm-process-config`", WHOLE, "sources, 2026-08",
        owner="sglang", version=VersionPath("/get_server_info"),
    ),
    KnownUpstream(
        "LMDeploy", ("pixels", "lmdeploy"), "`mm_processor_kwargs` of a request, under `image`", WHOLE,
        "sources, 2026-08; a stub of its menus here", owner="lmdeploy",
    ),
    KnownUpstream(
        "llama.cpp", ("pixels",), "only at its start: `--image-max-tokens`", WHOLE,
        "sources, 2026-08; a stub of its bounds here", header=("server", "llama.cpp"), owner="llamacpp",
        version=VersionPath("/props", "build_info", "build_info"),
    ),
    KnownUpstream(
        "Ollama", ("pixels",), "only at its start: `LLAMA_ARG_IMAGE_MAX_TOKENS`", WHOLE, "sources, 2026-08",
        owner="library", version=VersionPath("/api/version", only="version"),
    ),
    KnownUpstream(
        "TGI", ("pixels",), "none", WHOLE, "sources, 2026-11", version=VersionPath("/info", only="docker_label"),
    ),
    KnownUpstream(
        "Azure OpenAI", ("pixels", "detail"), "`detail` of an image; `--upstream-auth api-key`", WHOLE,
        "documentation, 2026-11",
        hosts=("openai.azure.com", "services.ai.azure.com", "cognitiveservices.azure.com"),
        header=("apim-request-id", ""),
    ),
    KnownUpstream(
        "OpenAI", ("pixels", "detail"), "`detail` of an image: low, high, original", WHOLE,
        "documentation, 2026-08; the official client and a stub of its menus here",
        hosts=("api.openai.com",), header=("openai-version", ""),
    ),
    KnownUpstream(
        "Anthropic", ("pixels",), "none; `--upstream-auth x-api-key`", WHOLE,
        "documentation, 2026-08; the official client and a stub here",
        hosts=("api.anthropic.com",), header=("anthropic-organization-id", ""),
    ),
    KnownUpstream(
        "Gemini", ("gemini", "detail", "pixels"), "Gemini 3: `media_resolution` of a part, or `detail`", WHOLE,
        "documentation, 2026-08; a stub of its menu here",
        hosts=("generativelanguage.googleapis.com", "aiplatform.googleapis.com"), ids="models/gemini-",
    ),
)  # fmt: skip
COLUMNS = ("upstream", "`--actuator`", "what sets an image's tokens beside its size", "`usage` states", "known from")


def table() -> list[list[str]]:
    """The rows of the documentation's table."""
    return [
        [one.name, ", ".join(f"`{name}`" for name in one.actuators), one.parameter, one.usage, one.checked]
        for one in UPSTREAMS
    ]


async def check_engine(
    upstream: Upstream, headers: Mapping[str, str], listing: Any, actuator: ActuatorName
) -> UpstreamCheck:
    """What answers, and whether it takes this actuator."""
    known, version = await recognize(upstream, headers, listing)
    if known is None:
        advice = "not needed; docs/gateway.md lists those that are known"
        return UpstreamCheck("upstream engine", "absent", "not recognized", advice)
    found = f"{f'{known.name} {version}'.strip()}; usage states {known.usage.replace('`', '')}"
    if actuator in known.actuators:
        return UpstreamCheck("upstream engine", "good", found)
    advice = f"{known.name} takes no --actuator {actuator}; give {' or '.join(known.actuators)}"
    return UpstreamCheck("upstream engine", "unknown", found, advice)


async def check_plugin(upstream: Upstream, question: dict[str, Any], actuator: ActuatorName) -> list[UpstreamCheck]:
    """Whether a vLLM has the plugin that deletes tokens: it refuses a budget of 0, and stock vLLM ignores it.

    Nothing is asked of other upstreams. ``question``: a chat request about one image, of one token at most.
    """
    wanted, name = actuator == "vllm-deletion", "upstream plugin"
    try:
        if not wanted:
            _, headers, listing = await upstream.fetch(f"{upstream.base}/models", _SECONDS)
            known, _ = await recognize(upstream, headers, parsed(listing))
            if known is None or "vllm-deletion" not in known.actuators:
                return []
        body = json.dumps({**question, "mm_processor_kwargs": {"stakes_budget": 0}}).encode()
        status, data = await upstream.call(f"{upstream.base}/chat/completions", _ANSWER_S, body)
    except NETWORK_ERRORS as error:
        return [UpstreamCheck(name, "unknown", f"the upstream did not answer ({type(error).__name__})")]
    reason = error_message(data) if status == 400 else ""
    found, advice = (
        "vLLM has no plugin of stakes, or none for this model",
        "pip install 'stakes[vllm]' where vLLM runs, and start it again; docs/vllm.md lists the models",
    )
    if "stakes_budget" in reason:
        return [UpstreamCheck(name, "good", "vLLM has the plugin of stakes, for --actuator vllm-deletion")]
    if "mm_processor_kwargs" in reason:
        found, advice = "not known: this vLLM takes no mm_processor_kwargs", "start it with --trust-request-mm-kwargs"
    elif status != 200:
        return [UpstreamCheck(name, "unknown", f"not known: the upstream answered with status {status}")]
    return [UpstreamCheck(name, "bad" if wanted else "absent", found, advice)]


def error_message(body: bytes) -> str:
    """A server's error message (``error.message`` or ``message``) on one line and shortened; "" if there is none."""
    try:
        record = json.loads(body)
        text = " ".join((record.get("error") or record)["message"].split())
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
        return ""
    return text if len(text) <= _LONGEST_REASON else text[:_LONGEST_REASON] + "…"


async def recognize(upstream: Upstream, headers: Mapping[str, str], listing: Any) -> tuple[KnownUpstream | None, str]:
    """Which upstream this is, and its version where it states one; None and "" where nothing tells."""
    models = listing.get("data") if isinstance(listing, dict) else None
    given = {name.lower(): value for name, value in headers.items()}
    for known in UPSTREAMS:
        if known.is_at(upstream.base, given, models if isinstance(models, list) else []):
            return known, await _version(upstream, known.version) if known.version else ""
    for known in UPSTREAMS:
        if known.version and known.version.only and (version := await _version(upstream, known.version)):
            return known, version
    return None, ""


async def _version(upstream: Upstream, at: VersionPath) -> str:
    """The version at a path of its root, asked without the key, which is for the base address; "" without one."""
    address = f"{upstream.base.removesuffix('/v1')}{at.path}"
    try:
        status, _, data = await upstream.fetch(address, _SECONDS, with_key=False)
    except NETWORK_ERRORS:
        return ""
    record = parsed(data) if status == 200 else None
    if not isinstance(record, dict) or (at.only and at.only not in record):
        return ""
    found = _VERSION.fullmatch(_text(record, at.key))
    return found[0] if found else ""


def _text(record: Any, key: str) -> str:
    value = record.get(key) if isinstance(record, dict) else None
    return value if isinstance(value, str) else ""


def check_confidence(policy: Policy, given: bool | None) -> list[UpstreamCheck]:
    """Whether answers have a confidence, if that is known; a problem only for a policy with thresholds."""
    name = "upstream confidence"
    if given is None:
        return []
    if given:
        return [UpstreamCheck(name, "good", "it gives log-probabilities, so that unsure answers can be asked again")]
    found = "it gives no log-probabilities, so that no question is asked again"
    if policy.fixed:
        return [UpstreamCheck(name, "absent", found)]
    advice = "serve a model that gives them, or calibrate with --no-escalate and without --review-cost"
    return [UpstreamCheck(name, "bad", found, advice)]
