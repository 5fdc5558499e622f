"""How the tests ask a model behind a server."""

from __future__ import annotations

from collections.abc import Callable

from tests.models.tiny import picture

from stakes.models import Answer, Request
from stakes.models.endpoint import EndpointVLM

PAGE = picture(500, 400)
Ask = Callable[..., EndpointVLM]


def ask(model: EndpointVLM, budget: int | None = 64) -> Answer:
    (answer,) = model.answer([Request(PAGE, "What?", budget)])
    return answer
