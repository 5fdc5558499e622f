"""Declares settings once: checked fields of a section, each with how ``stakes serve`` takes it as an option.

    class Limits(Section):
        images: int = positive(50, "Most images in a request.", Option("max_images", least=1))

A field that carries an ``Option`` is an option of ``stakes serve``; its description is the help text.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from stakes.errors import BadInput

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
