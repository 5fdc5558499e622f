"""``stakes serve``: an OpenAI-compatible gateway that fits every image to the budget of its question's tier.

Most options are generated from ``gateway.settings``, where each is declared once with its default and description.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stakes.commands.options.inputs import SERVED_SIGNAL_HELP, Undecided
from stakes.commands.options.served_policy import FAMILY, PolicySource, drift_limits
from stakes.commands.options.serving import read_settings, with_settings, within
from stakes.commands.output import AsJson, format_by_tier, print_json
from stakes.errors import BadInput
from stakes.gateway.settings import Settings

if TYPE_CHECKING:
    from socket import socket

    from starlette.applications import Starlette

    from stakes.budgets.policy import Policy
    from stakes.gateway.processes.siblings import Siblings


@with_settings
def serve(
    policy: Annotated[Path | None, typer.Option(help="The policy file that calibrate wrote.")] = None,
    budget: Annotated[
        list[str] | None,
        typer.Option(help="Without a policy: the budget of a tier, as high=576; once per tier. Not measured."),
    ] = None,
    mean_budget: Annotated[
        int | None,
        typer.Option(
            callback=within(1),
            help="The mean to keep. Default: the policy's, or the largest --budget. Another mean than the policy's "
            "chooses its budgets again, on its curves.",
        ),
    ] = None,
    family: Annotated[
        str | None,
        typer.Option(help=f"With --budget: the upstream model's family. Default: {FAMILY}, or the local model's own."),
    ] = None,
    signal: Annotated[str | None, typer.Option(help=f"{SERVED_SIGNAL_HELP} Files are reloaded.")] = None,
    undecided: Undecided = None,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(callback=within(0, 65535), help="The port to listen on; 0 for any free port.")
    ] = 8080,
    processes: Annotated[
        int,
        typer.Option(callback=within(1, 64), help="Processes that serve, with one budget. Default ledger: a file."),
    ] = 1,
    *,
    typed: Mapping[str, Any],
    shadow_outcomes: Annotated[
        Path | None,
        typer.Option(help="The calibration's outcomes, which say how often answers differed at full budget."),
    ] = None,
    shadow_allow: Annotated[
        list[str] | None, typer.Option(help="Instead: how often a tier's answers may differ, as high=0.1; repeatable.")
    ] = None,
    drain: Annotated[
        float, typer.Option(callback=within(0), help="Seconds that streams may continue after a stop signal.")
    ] = 30.0,
    settings_file: Annotated[  # noqa: ARG001 - its callback reads it
        Path | None,
        typer.Option(
            "--settings", is_eager=True, callback=read_settings, help="A TOML file of these options; options win."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Serve a gateway: clients change only their base URL, and every image gets the budget of its question.

    Example: stakes serve --policy policy.json --upstream http://127.0.0.1:8000/v1
    """
    try:
        from stakes.budgets.options.burst import option_notes
        from stakes.gateway import run
        from stakes.gateway.monitoring import logs
        from stakes.gateway.proxy.actuators import trim_warnings
        from stakes.gateway.proxy.http_limits import server_options
    except ImportError as error:
        raise BadInput(f"a gateway needs {error.name}; run: pip install 'stakes[gateway]'") from error

    rules = PolicySource(policy, budget, mean_budget, family, signal, undecided, typed["actuator"])
    rules()  # report a bad policy before a model is loaded
    with _upstream(typed["upstream"]) as (address, own, bounds), ledger_file(processes, typed) as ledger:
        given = {name: value for name, value in {**typed, **ledger}.items() if value is not None}
        settings = Settings.from_options(address, {**bounds, **given})
        settings.check_host(host)
        made = Serving(replace(rules, model=typed["upstream"], own=own), settings, shadow_outcomes, shadow_allow)

        def ready(here: str) -> None:
            logs.write_to_stderr()
            notes = [*settings.notes(), *option_notes(made.policy(), settings.burst)]
            if policy is not None and mean_budget is not None:
                notes.append(f"keeps a mean of {mean_budget} tokens (--mean-budget) in place of the policy file's")
            notes += [f"warning: {sentence}" for sentence in trim_warnings(made.policy(), settings)]
            start = {"address": f"{here}/v1", "dashboard": f"{here}/", "upstream": address, "mode": settings.mode}
            record = {**start, "notes": notes, "processes": processes, **describe_policy(made.policy())}
            print_json(record) if as_json else typer.echo(format_start(record))

        options = server_options(settings.limits, drain)
        if processes > 1:
            logs.write_to_stderr()
            return _serve_many(made, run.bound(host, port), processes, ready, drain)
        app = made.app()
        options |= {"drain": app.state.drain, "tls": app.state.tls}
        run.serve(app, host, port, ready, **options)
        return None


@dataclass(frozen=True)
class Serving:
    """All that a process needs to make the gateway."""

    policy: PolicySource
    settings: Settings
    shadow_outcomes: Path | None
    shadow_allow: list[str] | None

    def app(self, siblings: "Siblings | None" = None) -> "Starlette":
        """The gateway; ``siblings``: its other processes."""
        from stakes.gateway import app as gateway
        from stakes.gateway import reload
        from stakes.gateway.ledger.open import ledger_source

        settings, conditions = self.settings, drift_limits(self.shadow_outcomes, self.shadow_allow)
        served = reload.Served(
            self.policy,
            self.policy.files,
            lambda rules: gateway.check_policy(rules, settings, conditions),
            ledger_source(settings.ledger, settings.shared),
            settings.burst,
        )
        return gateway.create_app(settings, served, conditions=conditions, siblings=siblings)

    def work(self, drain: float, listening: "socket", siblings: "Siblings", ready: Callable[[], None]) -> None:
        """Serve as one of several processes, until a signal."""
        from stakes.gateway import run
        from stakes.gateway.monitoring import logs
        from stakes.gateway.proxy.http_limits import server_options

        logs.write_to_stderr()
        app = self.app(siblings)
        options = {**server_options(self.settings.limits, drain), "drain": app.state.drain, "tls": app.state.tls}
        run.serve_on(listening, app, started=ready, **options)


def _serve_many(made: Serving, listening: "socket", processes: int, ready: Callable[[str], None], drain: float) -> None:
    """Serve in several processes on one socket."""
    from stakes.gateway.processes.supervisor import supervise
    from stakes.gateway.run import address

    here = address(listening, {"tls": made.settings.tls_cert})
    with listening, TemporaryDirectory(prefix="stakes-") as folder:
        supervise(partial(made.work, drain), listening, Path(folder), processes, lambda: ready(here), drain + 10)


@contextmanager
def ledger_file(processes: int, typed: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    """A ledger for as long as the gateway runs, where several processes need one and none is named."""
    if processes == 1 or typed.get("ledger") is not None:
        yield {}
        return
    with TemporaryDirectory(prefix="stakes-ledger-") as folder:
        yield {"ledger": str(Path(folder) / "ledger.json")}


@contextmanager
def _upstream(word: str) -> Iterator[tuple[str, str | None, dict[str, int]]]:
    """The address to forward to, and the model's family and its processor's bounds where they are known.

    A local model is served next to the gateway.
    """
    if word.startswith(("http://", "https://")):
        yield word, None, {}
        return
    from stakes.gateway import run
    from stakes.gateway.local_server.app import create_model_app, load_served, processor_bounds

    model = load_served(word)
    with run.running(create_model_app(model, Path(word).name)) as address:
        yield f"{address}/v1", model.family, processor_bounds(model)


def describe_policy(rules: "Policy") -> dict[str, Any]:
    """What is served, as JSON."""
    from stakes.budgets.controller import Controller
    from stakes.gateway.reload import policy_warnings

    first = rules.budgets  # with per-request costs each request has its own
    if rules.per_request is None:
        state = Controller.from_policy(rules).state()
        first = {tier: round(state[f"budget_{tier}"]) for tier in rules.tiers}
    return {
        "family": rules.family, "budgets": rules.budgets, "mean_budget": rules.mean_budget,
        "origin": rules.origin, "basis": rules.basis, "begins_with": first, "warnings": policy_warnings(rules),
    }  # fmt: skip


def format_start(record: Mapping[str, Any]) -> str:
    """The first lines that ``serve`` prints: addresses, mode, budgets, and a line per note and warning."""
    budgets = format_by_tier(record["budgets"])
    line = f"{record['address']} → {record['upstream']} ({record['mode']}; budgets {budgets}; {record['origin']})"
    if "dashboard" in record:
        line += f"\ndashboard, live: {record['dashboard']}"
    if record["begins_with"] != record["budgets"]:  # the optimum may mix two budgets in a tier
        line += f"\nat first, images get on average: {format_by_tier(record['begins_with'])}"
    lines = [line, *record.get("notes", ()), *(f"warning: {sentence}" for sentence in record["warnings"])]
    if "dashboard" in record:
        lines.append(f'in your client: base_url="{record["address"]}"')
        lines.append(f"Next, in another shell: stakes doctor --gateway {record['dashboard'].rstrip('/')}")
    return "\n".join(lines)
