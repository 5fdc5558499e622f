"""Options of ``stakes serve``: generated from ``gateway.settings``, from the environment, or from a file.

Every option can come from the environment (``--read-timeout``: ``STAKES_READ_TIMEOUT``) and from the file of
``--settings`` (``read-timeout = 60``). The command line wins over the environment, and that over the file.
"""

import inspect
import math
import os
import tomllib
from collections.abc import Callable, Collection
from copy import copy
from difflib import get_close_matches
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from stakes.commands.options.model import replace_signature
from stakes.errors import BadInput
from stakes.gateway.options import Option
from stakes.gateway.settings import declared_options


def read_settings(context: typer.Context, path: Path | None) -> Path | None:
    """Read options from a TOML file, such as ``shadow = 0.01``; report misspelled ones, of the environment too."""
    known = {_flag(one.opts[0]): one for one in context.command.params if one.name not in ("settings_file", "help")}
    variables = {_variable(name) for name in (*known, "settings")}
    for name in os.environ:
        near = get_close_matches(name, variables, n=1, cutoff=0.85) if name.startswith("STAKES_") else []
        if near and name not in variables:
            raise BadInput(f"the environment sets {name}, which is no option of serve; did you mean {near[0]}?")
    if path is None:
        return None
    try:
        record = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadInput(f"no settings can be read from {path} ({error}); check the path") from None
    chosen = {}
    for name, value in record.items():
        option = known.get(_flag(name))
        if option is None:
            near = get_close_matches(_flag(name), known, n=1, cutoff=0.6)
            advice = f"did you mean {near[0]!r}?" if near else "see stakes serve --help"
            raise BadInput(f"{path} sets {name!r}, which is no option of serve; {advice}")
        if getattr(option, "multiple", False) and not isinstance(value, list):
            raise BadInput(f"{path} sets {name!r} to {value!r:.60}; give a list, as [{value!r:.60}]")
        chosen[option.name] = value
    context.default_map = {**(context.default_map or {}), **chosen}
    return path


def _flag(name: str) -> str:
    """``--read-timeout`` as ``read_timeout``."""
    return name.lstrip("-").replace("-", "_")


def _variable(name: str) -> str:
    """The environment's name of an option."""
    return f"STAKES_{name.upper()}"


def within(least: float, most: float = math.inf) -> Callable[[float | None], float | None]:
    """An option callback that refuses numbers outside these bounds; nan and infinity are always outside."""

    def check(value: float | None) -> float | None:
        if value is not None and not (least <= value <= most and math.isfinite(value)):
            bounds = f"from {least:g} to {most:g}" if math.isfinite(most) else f"of at least {least:g}"
            raise typer.BadParameter(f"give a number {bounds}, not {value}")
        return value

    return check


def with_settings(command: Callable[..., None], only: Collection[str] | None = None) -> Callable[..., None]:
    """The command with one option per declared setting, or ``only`` these, in place of its parameter ``typed``."""
    declared = [option for option in declared_options() if only is None or option.name in only]

    @wraps(command)
    def run(**given: Any) -> None:
        typed = {option.name: given.pop(option.name) for option in declared}
        command(**given, typed=typed)

    parameters: list[inspect.Parameter] = []
    for name, own in inspect.signature(command).parameters.items():
        parameters += [_parameter(option) for option in declared] if name == "typed" else [own]
    replace_signature(run, [_with_variable(parameter) for parameter in parameters])
    return run


def _with_variable(parameter: inspect.Parameter) -> inspect.Parameter:
    """The same option, which may come from the environment as well."""
    kind, info = parameter.annotation.__args__[0], copy(parameter.annotation.__metadata__[0])
    flags = [one for one in (info.default, *(info.param_decls or ())) if isinstance(one, str) and one.startswith("--")]
    info.envvar = _variable(
        _flag(next(iter(flags), parameter.name))
    )  # the first flag of an annotation is its "default"
    return parameter.replace(annotation=Annotated[kind, info])


def _parameter(option: Option) -> inspect.Parameter:
    """One setting as a parameter that typer reads."""
    flags = [f"--{option.name.replace('_', '-')}"] if option.switch else []
    bounds = None if option.least is None else within(option.least, math.inf if option.most is None else option.most)
    kind = option.kind | None if option.default is None else option.kind
    annotation = Annotated[kind, typer.Option(*flags, callback=bounds, help=option.help)]  # type: ignore[valid-type]
    return inspect.Parameter(option.name, inspect.Parameter.KEYWORD_ONLY, default=option.default, annotation=annotation)
