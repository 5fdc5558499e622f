"""``stakes envoy``: the gateway's decision as an external processor of Envoy."""

import asyncio
import signal
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from stakes.commands.options.inputs import SERVED_SIGNAL_HELP, Undecided
from stakes.commands.options.served_policy import FAMILY, PolicySource
from stakes.commands.options.serving import with_settings, within
from stakes.commands.output import AsJson, print_json
from stakes.commands.serve import describe_policy, format_start
from stakes.errors import BadInput
from stakes.gateway.settings import Settings

IN_ENVOY = frozenset({
    "mode", "fail", "actuator", "min_pixels", "max_pixels", "image_max_tokens", "encoding", "remote", "unread", "pdf",
    "max_request_tokens", "grounding", "no_bypass",
    "burst", "max_body_mb", "max_images", "max_megapixels", "max_text_mb", "workers", "ledger", "ledger_loss",
    "ledger_unreachable",
})  # fmt: skip
"""Options of ``serve`` that mean the same here; Envoy has its own for connections, keys and retries."""
_UNUSED = "http://envoy.invalid/v1"


@partial(with_settings, only=IN_ENVOY)
def envoy(
    policy: Annotated[Path | None, typer.Option(help="The policy file that calibrate wrote.")] = None,
    budget: Annotated[
        list[str] | None, typer.Option(help="Without a policy: the budget of a tier, as high=576; once per tier.")
    ] = None,
    mean_budget: Annotated[int | None, typer.Option(callback=within(1), help="The mean to keep, as in serve.")] = None,
    family: Annotated[str | None, typer.Option(help=f"With --budget: the model's family. Default: {FAMILY}.")] = None,
    signal: Annotated[str | None, typer.Option(help=f"{SERVED_SIGNAL_HELP} Files are reloaded.")] = None,
    undecided: Undecided = None,
    host: Annotated[str, typer.Option(help="The address that Envoy connects to.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(callback=within(0, 65535), help="Its port; 0 for any free port.")] = 9002,
    *,
    typed: Mapping[str, Any],
    drain: Annotated[
        float, typer.Option(callback=within(0), help="Seconds that requests may continue after a stop signal.")
    ] = 30.0,
    as_json: AsJson = False,
) -> None:
    """Decide for Envoy: the same budgets, fitted images and headers as serve, without a hop for the answers.

    Example: stakes envoy --policy policy.json --ledger redis://10.0.0.7:6379/0
    """
    try:
        from stakes.gateway.envoy import processor
        from stakes.gateway.in_process import InProcess
        from stakes.gateway.ledger.open import ledger_source
        from stakes.gateway.monitoring import logs
        from stakes.gateway.proxy.actuators import check_servable
        from stakes.gateway.reload import Served
        from stakes.gateway.workers import Workers
    except ImportError as error:
        raise BadInput(f"an external processor needs {error.name}; run: pip install 'stakes[gateway,envoy]'") from error

    rules = PolicySource(policy, budget, mean_budget, family, signal, undecided, typed["actuator"])
    given = {name: value for name, value in typed.items() if value is not None}
    settings = Settings.from_options(_UNUSED, given)
    served = Served(
        rules,
        rules.files,
        lambda one: check_servable(one, settings),
        ledger_source(settings.ledger, settings.shared),
        settings.burst,
    )
    decisions = InProcess(settings, served, Workers(settings.limits))

    def ready(bound: int) -> None:
        logs.write_to_stderr()
        start = {"address": f"{host}:{bound}", "upstream": "Envoy", "mode": settings.mode}
        record = {**start, **describe_policy(served.rules.policy)}
        print_json(record) if as_json else typer.echo(format_start(record))

    asyncio.run(processor.serve(decisions, f"{host}:{port}", ready, _signalled, drain))


async def _signalled() -> None:
    """Wait for a signal to stop."""
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    await ended.wait()
