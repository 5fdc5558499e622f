"""Who answers, in a person's words: a model by name or folder, or one behind a server with that server's options.

    who = who_answers(model=None, endpoint="http://127.0.0.1:8000/v1", family="qwen3-vl", key_env="MY_KEY")
    with who.ready() as model:
        model.answer([…])

Nothing is asked of a server before ``ready``; what contradicts itself is refused here.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from stakes.errors import BadInput

if TYPE_CHECKING:
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
