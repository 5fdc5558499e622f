"""Who answers, in a person's words: a model by name or folder, or one behind a server with that server's options.

    who = who_answers(model=None, endpoint="http://127.0.0.1:8000/v1", family="qwen3-vl", key_env="MY_KEY")
    with who.ready() as model:
        model.answer([…])

Nothing is asked of a server before ``ready``; what contradicts itself is refused here.
"""

import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from stakes.errors import BadInput

if TYPE_CHECKING:
    from stakes.evaluation.batching import Answering
    from stakes.models import VLM


_PANEL = "A model behind a server"

ModelName = Annotated[
    str | None,
    typer.Option(
        "--model",
        help="Who answers: embedded (the default), embedded-small, embedded-llava, a hub name, a folder or an address.",
    ),
]
MaxTokens = Annotated[
    int | None, typer.Option("--max-tokens", help="The longest answer, in tokens. Default: the model's own, or 16.")
]
Endpoint = Annotated[
    str | None,
    typer.Option(
        "--endpoint",
        help="An OpenAI-compatible server in place of --model, such as http://127.0.0.1:8000/v1.",
        rich_help_panel=_PANEL,
    ),
]
EndpointModel = Annotated[
    str | None,
    typer.Option("--endpoint-model", help="The model to ask. Default: the only one there.", rich_help_panel=_PANEL),
]
EndpointFamily = Annotated[
    str | None,
    typer.Option(
        "--family", help="How its images take tokens, such as qwen3-vl. Default: qwen2.5-vl.", rich_help_panel=_PANEL
    ),
]
KeyEnv = Annotated[
    str | None,
    typer.Option("--key-env", help="The environment variable that holds the API key.", rich_help_panel=_PANEL),
]
Concurrency = Annotated[
    int | None, typer.Option("--concurrency", help="Requests at once. Default: 8.", rich_help_panel=_PANEL)
]
Timeout = Annotated[
    float | None, typer.Option("--timeout", help="Seconds that one try may take. Default: 120.", rich_help_panel=_PANEL)
]
Tries = Annotated[
    int | None,
    typer.Option(
        "--tries",
        help="Tries for one answer, with pauses of 1, 2, 4, … 60 s between. Default: 5; 65 are an hour.",
        rich_help_panel=_PANEL,
    ),
]
Empty = Annotated[
    Literal["error", "answer"] | None,
    typer.Option(
        "--empty",
        help="What a finished reply without text is: tried again and then an error (default), or a wrong answer.",
        rich_help_panel=_PANEL,
    ),
]


@dataclass(frozen=True)
class Who:
    """A model that can be got ready, here or in another process: what ``stakes.models.load`` is given."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)  # may hold the key

    @contextmanager
    def ready(self) -> "Iterator[VLM]":
        """The model, with its connections closed at the end."""
        from stakes.models import load

        model = load(self.name, **self.options)
        try:
            yield model
        finally:
            close = getattr(model, "close", None)
            if callable(close):
                close()


def who_answers(
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
    max_tokens: MaxTokens = None,
) -> Who:
    """Put the options together; what was not given is left to the model."""
    from stakes.signals.endpoint import server_name

    if model is not None and endpoint is not None:
        raise BadInput(f"{model!r} and {endpoint!r} cannot both answer; give either --model or --endpoint")
    if endpoint is not None:
        server_name(endpoint)
    name = endpoint or model or "embedded"
    of_server = {
        "--endpoint-model": ("model", endpoint_model),
        "--family": ("family", family),
        "--key-env": ("api_key", None if key_env is None else read_key(key_env)),
        "--concurrency": ("concurrency", concurrency),
        "--timeout": ("timeout_s", timeout),
        "--tries": ("tries", tries),
        "--empty": ("empty", empty),
    }
    given = {option: pair for option, pair in of_server.items() if pair[1] is not None}
    if given and not name.startswith(("http://", "https://")):
        raise BadInput(f"{', '.join(given)} is for a model behind a server, and {name!r} is not; give --endpoint URL")
    length = {} if max_tokens is None else {"max_new_tokens": max_tokens}
    return Who(name, {**dict(given.values()), **length})


def server_counts(model: object) -> dict[str, int] | None:
    """How often a server counted an image's tokens as predicted ("agreed") or did not say ("unknown"); None: local."""
    counts = getattr(model, "server_counts", None)
    return None if counts is None else dict(counts)


def told_counts(counts: Mapping[str, int]) -> str:
    """The same as a sentence."""
    every, agreed = sum(counts.values()), counts.get("agreed", 0)
    if agreed:
        return f"The server counted the tokens of {agreed} of {every} images, each as predicted."
    return f"The server counted no image's tokens, so the predictions for {every} stand unchecked."


def read_key(variable: str) -> str:
    """The API key that an environment variable holds."""
    key = os.environ.get(variable)
    if not key:
        raise BadInput(f"the environment variable {variable!r} that should hold the API key is not set, or empty")
    return key


# May many workers answer? ``--ray`` in a person's words.
#
# spread = spread_by(who, True, 4)      # what cannot be is refused here, before anything is loaded
# spread(model)                         # an ``Answering`` for calibrate(…, spread=…), or None without --ray


_PANEL_spreading = "Many workers"

Spread = Callable[[Any], "Answering | None"]

OnRay = Annotated[
    bool,
    typer.Option(
        "--ray",
        help="Spread copies of the model over a Ray cluster: the one that RAY_ADDRESS names, or this machine alone.",
        rich_help_panel=_PANEL_spreading,
    ),
]
RayWorkers = Annotated[
    int | None,
    typer.Option(
        "--ray-workers",
        help="How many copies. Default: one a GPU; without any, as many as the CPUs give their usual threads to.",
        rich_help_panel=_PANEL_spreading,
    ),
]


def spread_by(who: Who, ray: OnRay = False, ray_workers: RayWorkers = None) -> Spread:
    """Who answers for a model once it is loaded: workers, or None for the model itself."""
    if not ray:
        if ray_workers is not None:
            raise BadInput(f"--ray-workers {ray_workers} says how many workers Ray has; give --ray with it")
        return lambda _: None
    from stakes.evaluation.ray import OverRay, need_ray
    from stakes.models.loading import check_copied, copy_of

    check_copied(who.name)
    need_ray(ray_workers)
    return lambda model: OverRay(model, copy_of(model, who.name, **who.options), ray_workers)


# Which options has every command that asks a model? Those of who answers, and of how many answer, written once.
#
#     @asks_a_model
#     def calibrate(samples: …, *, who: Who, mean_budget: …, spread: Spread, …) -> None:
#
# Where the command has ``who``, a person sees the options of ``who_answers``; where it has ``spread``,
# ``spread_by``'s.


def asks_a_model(command: Callable[..., None]) -> Callable[..., None]:
    """The command with those options in place of its two parameters."""
    answering = dict(inspect.signature(who_answers).parameters)
    spreading = dict(inspect.signature(spread_by).parameters)
    del spreading["who"]

    @wraps(command)
    def run(**given: Any) -> None:
        who = who_answers(**{name: given.pop(name) for name in answering})
        spread = spread_by(who, **{name: given.pop(name) for name in spreading})
        command(**given, who=who, spread=spread)

    options: dict[str, inspect.Parameter] = {}
    for name, own in inspect.signature(command).parameters.items():
        options |= {"who": answering, "spread": spreading}.get(name, {name: own})
    shown = [option.replace(kind=inspect.Parameter.KEYWORD_ONLY) for option in options.values()]
    run.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    run.__annotations__ = {option.name: option.annotation for option in shown}
    return run
