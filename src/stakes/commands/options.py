"""Options of every command that asks a model: which model, or which server, and how many workers.

    @asks_a_model
    def calibrate(samples: …, *, source: ModelSource, mean_budget: …, workers: Workers, …) -> None:

A parameter ``source`` becomes the options of ``model_source``, a parameter ``workers`` those of ``workers_for``. No
server is contacted before ``ModelSource.open``; contradictory options are refused here. ``asks_the_policys_model`` is
for commands with a ``policy``: without --model or --endpoint they ask the model that it was calibrated with.
"""

import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial, wraps
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from stakes.errors import BadInput, StakesError

if TYPE_CHECKING:
    from stakes.budgets.policy import Policy
    from stakes.evaluation.batching import BatchAnswerer
    from stakes.models import VLM

_server = partial(typer.Option, rich_help_panel="A model behind a server")
_ray = partial(typer.Option, rich_help_panel="Many workers")

ModelName = Annotated[
    str | None,
    typer.Option(
        help="The model: embedded, embedded-small, embedded-llava, ocr, a hub name, a folder or an address. Default: "
        "embedded; to evaluate, the policy's."
    ),
]
Device = Annotated[str | None, typer.Option(help="Where a local model computes: cuda or cpu. Default: cuda if any.")]
Dtype = Annotated[
    str | None, typer.Option(help="Its number format, such as bfloat16. Default: bfloat16 on cuda, float32 on a CPU.")
]
MaxTokens = Annotated[int | None, typer.Option(help="The longest answer, in tokens. Default: the model's own, or 16.")]
Endpoint = Annotated[
    str | None, _server(help="An OpenAI-compatible server in place of --model, such as http://127.0.0.1:8000/v1.")
]
EndpointModel = Annotated[str | None, _server(help="The model to ask. Default: the only one there.")]
EndpointFamily = Annotated[
    str | None,
    _server(help="The model's family, such as qwen3-vl, or its numbers. Default: qwen2.5-vl; with --model, its own."),
]
KeyEnv = Annotated[str | None, _server(help="The environment variable that holds the API key.")]
Concurrency = Annotated[int | None, _server(help="Concurrent requests. Default: 8.")]
Timeout = Annotated[float | None, _server(help="Seconds per attempt. Default: 120.")]
Tries = Annotated[
    int | None,
    _server(help="Attempts per answer, with pauses of 1, 2, 4, … 60 s. Default: 5; 65 retries take about an hour."),
]
Actuator = Annotated[
    Literal["pixels", "vllm", "lmdeploy", "detail", "gemini"] | None,
    _server(help="How a budget reaches the server: pixels resizes the image (default); the others set a parameter."),
]
Empty = Annotated[
    Literal["error", "answer"] | None,
    _server(help="A finished reply without text is retried and then an error (default), or a wrong answer."),
]


@dataclass(frozen=True)
class ModelSource:
    """What ``stakes.models.load`` is given to load the model, here or in another process."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)  # may hold the key
    stated: bool = True
    """Whether the user named the model, or an option that makes it another one; False: it is the policy's."""
    family: str | None = None
    """The family of an address for which none is given."""

    @classmethod
    def of_policy(cls, policy: "Policy") -> "ModelSource":
        """The model that a policy was calibrated with; the embedded reader where it does not say."""
        named = policy.model
        if named is None:
            return cls("embedded", stated=False, family=policy.family)
        options: dict[str, Any] = {} if named.max_tokens is None else {"max_new_tokens": named.max_tokens}
        if named.endpoint is not None:
            options |= {"model": named.name, "family": policy.family}
        if named.actuator is not None:
            options |= {"actuator": named.actuator}
        if named.family is not None:
            options |= {"family": named.family}
        return cls(named.endpoint or named.name, options, stated=False, family=policy.family)

    def with_logprobs(self) -> "ModelSource":
        """The same; a server is also asked for log-probabilities, from which confidences are computed."""
        return replace(self, options={**self.options, "logprobs": True}) if _is_address(self.name) else self

    def defaults(self, name: str) -> Mapping[str, Any]:
        """The options of another name for this model: of the same one, or of another server."""
        if name == self.name or (_is_address(name) and _is_address(self.name)):
            return self.options
        return {"family": self.family} if self.family is not None and _is_address(name) else {}

    @contextmanager
    def open(self) -> "Iterator[VLM]":
        """The loaded model; its connections are closed at the end."""
        from stakes.models import load

        try:
            model = load(self.name, **self.options)
        except StakesError as error:
            if self.stated:
                raise
            raise type(error)(f"the policy's model does not load: {error}; or name one with --model") from error
        try:
            yield model
        finally:
            close = getattr(model, "close", None)
            if callable(close):
                close()


EMBEDDED = ModelSource("embedded")


def model_source(
    model: ModelName = None,
    endpoint: Endpoint = None,
    *,
    endpoint_model: EndpointModel = None,
    family: EndpointFamily = None,
    key_env: KeyEnv = None,
    concurrency: Concurrency = None,
    timeout: Timeout = None,
    tries: Tries = None,
    empty: Empty = None,
    actuator: Actuator = None,
    max_tokens: MaxTokens = None,
    device: Device = None,
    dtype: Dtype = None,
    default: ModelSource = EMBEDDED,
) -> ModelSource:
    """Combine the options; what is not given keeps the model's default. ``default``: where no model is named."""
    from stakes.http import server_name

    if model is not None and endpoint is not None:
        raise BadInput(f"{model!r} and {endpoint!r} cannot both answer; give either --model or --endpoint")
    if endpoint is not None:
        server_name(endpoint)
    name = endpoint or model or default.name
    of_server = {
        "--endpoint-model": ("model", endpoint_model),
        "--family": ("family", family),
        "--key-env": ("api_key", None if key_env is None else read_key(key_env)),
        "--concurrency": ("concurrency", concurrency),
        "--timeout": ("timeout_s", timeout),
        "--tries": ("tries", tries),
        "--empty": ("empty", empty),
        "--actuator": ("actuator", actuator),
    }
    given = {option: pair for option, pair in of_server.items() if pair[1] is not None}
    if wrong := [option for option in given if option != "--family" and not _is_address(name)]:
        raise BadInput(f"{', '.join(wrong)} is for a model behind a server, and {name!r} is not; give --endpoint URL")
    here = {"device": device, "dtype": dtype}
    if any(here.values()) and _is_address(name):
        raise BadInput(f"{name!r} is an address, whose server chose device and dtype; leave out --device and --dtype")
    local = {key: value for key, value in {**here, "max_new_tokens": max_tokens}.items() if value is not None}
    stated = default.stated or any(
        option is not None for option in (model, endpoint, endpoint_model, family, actuator, max_tokens, device, dtype)
    )
    return ModelSource(name, {**default.defaults(name), **dict(given.values()), **local}, stated)


def _is_address(name: str) -> bool:
    return name.startswith(("http://", "https://"))


def server_counts(model: object) -> dict[str, int] | None:
    """How often a server counted an image's tokens as predicted ("agreed") or not at all ("unknown"); None if local."""
    counts = getattr(model, "server_counts", None)
    return None if counts is None else dict(counts)


def format_server_counts(counts: Mapping[str, int]) -> str:
    """The counts as a sentence."""
    every, agreed = sum(counts.values()), counts.get("agreed", 0)
    if agreed:
        return f"The server counted the tokens of {agreed} of {every} images, each as predicted."
    return f"The server counted no image's tokens, so the predictions for {every} images are unchecked."


def read_key(variable: str) -> str:
    """The API key in an environment variable."""
    key = os.environ.get(variable)
    if not key:
        raise BadInput(f"the environment variable {variable!r} that should hold the API key is not set, or empty")
    return key


Workers = Callable[[Any], "BatchAnswerer | None"]
"""From the loaded model to what answers in its place, or None."""

OnRay = Annotated[
    bool, _ray("--ray", help="Run copies of the model on a Ray cluster: the one of RAY_ADDRESS, or this machine alone.")
]
RayWorkers = Annotated[
    int | None, _ray(help="Number of copies. Default: one per GPU; without GPUs, as many as the CPUs can feed.")
]


def workers_for(source: ModelSource, ray: OnRay = False, ray_workers: RayWorkers = None) -> Workers:
    """Ray workers for the model once it is loaded; without ``--ray`` the model answers itself."""
    if not ray:
        if ray_workers is not None:
            raise BadInput(f"--ray-workers {ray_workers} says how many workers Ray has; give --ray with it")
        return lambda _: None
    from stakes.evaluation.ray import OverRay, need_ray
    from stakes.models.loading import check_copied, copy_of

    check_copied(source.name)
    need_ray(ray_workers)

    def workers(model: Any) -> "BatchAnswerer":
        named = getattr(model, "named", None)  # it may be another model than the source's, of the same options
        return OverRay(model, copy_of(model, named.name if named else source.name, **source.options), ray_workers)

    return workers


def asks_a_model(
    command: Callable[..., None], default: Callable[[Mapping[str, Any]], ModelSource] = lambda _: EMBEDDED
) -> Callable[..., None]:
    """The command with these options in place of its parameters ``source`` and ``workers``.

    ``default``: the model where none is named, from the command's other options.
    """
    of_model = dict(inspect.signature(model_source).parameters)
    of_workers = dict(inspect.signature(workers_for).parameters)
    del of_model["default"], of_workers["source"]

    @wraps(command)
    def run(**given: Any) -> None:
        source = model_source(**{name: given.pop(name) for name in of_model}, default=default(given))
        workers = workers_for(source, **{name: given.pop(name) for name in of_workers})
        command(**given, source=source, workers=workers)

    options: dict[str, inspect.Parameter] = {}
    for name, own in inspect.signature(command).parameters.items():
        options |= {"source": of_model, "workers": of_workers}.get(name, {name: own})
    replace_signature(run, list(options.values()))
    return run


def options_besides_model() -> frozenset[str]:
    """The options that say more about a model than ``--model``, and those of workers."""
    names = [*inspect.signature(model_source).parameters, *inspect.signature(workers_for).parameters]
    return frozenset(f"--{name.replace('_', '-')}" for name in names if name not in ("model", "default", "source"))


def asks_the_policys_model(command: Callable[..., None]) -> Callable[..., None]:
    """``asks_a_model`` for a command with a ``policy``, whose model is the default."""

    def default(given: Mapping[str, Any]) -> ModelSource:
        from stakes.budgets.policy import Policy

        return ModelSource.of_policy(Policy.load(given["policy"]))

    return asks_a_model(command, default)


def replace_signature(function: Callable[..., None], parameters: list[inspect.Parameter]) -> None:
    """Give a function the keyword parameters that typer should read."""
    shown = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in parameters]
    function.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    function.__annotations__ = {one.name: one.annotation for one in shown}
