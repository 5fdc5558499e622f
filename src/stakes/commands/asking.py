"""Which options has every command that asks a model? Those of who answers, and of how many answer, written once.

    @asks_a_model
    def calibrate(samples: …, *, who: Who, mean_budget: …, spread: Spread, …) -> None:

Where the command has ``who``, a person sees the options of ``who_answers``; where it has ``spread``, ``spread_by``'s.
"""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

from stakes.commands.answering import who_answers
from stakes.commands.spreading import spread_by


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
