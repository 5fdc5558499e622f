"""May many workers answer? ``--ray`` in a person's words.

spread = spread_by(who, True, 4)      # what cannot be is refused here, before anything is loaded
spread(model)                         # an ``Answering`` for calibrate(…, spread=…), or None without --ray
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stakes.commands.answering import Who
from stakes.errors import BadInput

if TYPE_CHECKING:
    from stakes.evaluation.answering import Answering

_PANEL = "Many workers"

Spread = Callable[[Any], "Answering | None"]

OnRay = Annotated[
    bool,
    typer.Option(
        "--ray",
        help="Spread copies of the model over a Ray cluster: the one that RAY_ADDRESS names, or this machine alone.",
        rich_help_panel=_PANEL,
    ),
]
RayWorkers = Annotated[
    int | None,
    typer.Option(
        "--ray-workers",
        help="How many copies. Default: one a GPU; without any, as many as the CPUs give their usual threads to.",
        rich_help_panel=_PANEL,
    ),
]


def spread_by(who: Who, ray: OnRay = False, ray_workers: RayWorkers = None) -> Spread:
    """Who answers for a model once it is loaded: workers, or None for the model itself."""
    if not ray:
        if ray_workers is not None:
            raise BadInput(f"--ray-workers {ray_workers} says how many workers Ray has; give --ray with it")
        return lambda _: None
    from stakes.evaluation.spread import OverRay, need_ray
    from stakes.models.copies import check_copied, copy_of

    check_copied(who.name)
    need_ray(ray_workers)
    return lambda model: OverRay(model, copy_of(model, who.name, **who.options), ray_workers)
