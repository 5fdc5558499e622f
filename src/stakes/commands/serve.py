"""``stakes serve``: an OpenAI-compatible door that fits every image to the budget of its question's tier."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stakes.commands.inputs import SERVED_SIGNAL_HELP, served_signal, signal_file
from stakes.commands.output import AsJson, print_json
from stakes.commands.serve_rules import about_policy, conditions_source, first_words, policy_of, read_settings, within
from stakes.errors import BadInput

if TYPE_CHECKING:
    from stakes.budgets.policy import Policy


EMBEDDED, FAMILY = "embedded", "qwen2.5-vl"


def serve(
    policy: Annotated[Path | None, typer.Option(help="The policy file that calibrate wrote.")] = None,
    budget: Annotated[
        list[str] | None,
        typer.Option(
            help="Without a policy: what a tier gets, as high=576; one for each tier, chosen and not measured."
        ),
    ] = None,
    mean_budget: Annotated[
        int | None,
        typer.Option(
            callback=within(1), help="With --budget: the mean that traffic is held to. Default: the largest of them."
        ),
    ] = None,
    family: Annotated[
        str | None,
        typer.Option(help=f"With --budget: the upstream model's family. Default: {FAMILY}; of a model here, its own."),
    ] = None,
    upstream: Annotated[
        str,
        typer.Option(
            help="An OpenAI-compatible address such as http://127.0.0.1:8000/v1, embedded (or another shipped reader), "
            "or a folder."
        ),
    ] = EMBEDDED,
    host: Annotated[str, typer.Option(help="Where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(callback=within(0, 65535), help="Where to listen; 0 for any free port.")] = 8080,
    mode: Annotated[str, typer.Option(help="enforce, or observe: decide and report, change nothing.")] = "enforce",
    fail: Annotated[
        str, typer.Option(help="closed refuses a request that cannot be fitted, open passes it on as it came.")
    ] = "closed",
    signal: Annotated[str | None, typer.Option(help=f"{SERVED_SIGNAL_HELP} Files are reloaded.")] = None,
    actuator: Annotated[
        str, typer.Option(help="How budgets reach the upstream: pixels, vllm, lmdeploy, detail or gemini.")
    ] = "pixels",
    encoding: Annotated[str, typer.Option(help="Fitted images are sent as png (exact) or jpeg (smaller).")] = "png",
    remote: Annotated[
        str, typer.Option(help="Image addresses of other hosts: pass them on uncompressed, or refuse them.")
    ] = "pass",
    remote_host: Annotated[
        list[str] | None, typer.Option(help="A host whose images may be fetched, such as *.example.com; repeatable.")
    ] = None,
    key_file: Annotated[
        Path | None, typer.Option(help="Keys that clients need, one a line. Default: the client's key is passed on.")
    ] = None,
    upstream_key_file: Annotated[Path | None, typer.Option(help="The key that the upstream is asked with.")] = None,
    no_bypass: Annotated[bool, typer.Option("--no-bypass", help="Refuse x-stakes-bypass.")] = False,
    log_questions: Annotated[bool, typer.Option("--log-questions", help="Write questions into the log.")] = False,
    keep_images: Annotated[
        int,
        typer.Option(
            callback=within(0, 1000),
            help="Requests whose images and question the live page at / shows, in memory only.",
        ),
    ] = 0,
    telemetry: Annotated[
        str | None, typer.Option(help="OpenTelemetry to console, to an http(s) address of OTLP, or global.")
    ] = None,
    shadow: Annotated[
        float, typer.Option(help="Share of fitted requests, such as 0.01, asked again at native size to watch by.")
    ] = 0.0,
    shadow_at_once: Annotated[
        int, typer.Option(callback=within(1), help="Shadow answers under way at most; others are dropped.")
    ] = 1,
    shadow_outcomes: Annotated[
        Path | None, typer.Option(help="The calibration's outcomes: how often its answers differed at full budget.")
    ] = None,
    shadow_allow: Annotated[
        list[str] | None, typer.Option(help="Instead: how often answers of a tier may differ, as high=0.1; repeatable.")
    ] = None,
    probe: Annotated[bool, typer.Option(help="Ask the upstream at the start whether its tokens follow.")] = True,
    probe_model: Annotated[
        str | None, typer.Option(help="The model that the probe asks. Default: the first that the upstream lists.")
    ] = None,
    max_body_mb: Annotated[int, typer.Option(callback=within(1), help="Largest request.")] = 64,
    max_images: Annotated[int, typer.Option(callback=within(1), help="Most images in a request.")] = 50,
    max_megapixels: Annotated[float, typer.Option(callback=within(0.001), help="Largest image.")] = 89.0,
    workers: Annotated[int, typer.Option(callback=within(1), help="Threads that fit images.")] = 2,
    connect_timeout: Annotated[
        float, typer.Option(callback=within(0.001), help="Seconds for the upstream to take a connection.")
    ] = 5.0,
    read_timeout: Annotated[
        float, typer.Option(callback=within(0.001), help="Seconds between two pieces of an answer.")
    ] = 300.0,
    total_timeout: Annotated[float, typer.Option(callback=within(0.001), help="Seconds for a whole answer.")] = 1800.0,
    drain: Annotated[
        float, typer.Option(callback=within(0), help="Seconds that streams may go on after a stop was asked for.")
    ] = 30.0,
    settings_file: Annotated[  # noqa: ARG001 - its callback has read it
        Path | None,
        typer.Option(
            "--settings", is_eager=True, callback=read_settings, help="A TOML file of these options; options win."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Serve a gateway: clients change only their base URL, and every image costs what its question is worth.

    Example: stakes serve --policy policy.json --upstream http://127.0.0.1:8000/v1
    """
    try:
        from stakes.gateway import app as gateway
        from stakes.gateway import reload, settings
        from stakes.gateway import run as running
        from stakes.gateway.monitoring import logs
        from stakes.gateway.proxy import http_limits as door
    except ImportError as error:
        raise BadInput(f"a gateway needs {error.name}; run: pip install 'stakes[gateway]'") from error

    def source(own: str | None = None) -> "Policy":
        rules = policy_of(policy, budget, mean_budget, family or own or FAMILY)
        if own not in (None, rules.family):
            raise BadInput(f"these budgets are tokens of {rules.family}, and the model of {upstream!r} is {own}")
        return reload.with_signal(rules, served_signal(signal, rules.costs) if signal else None)

    conditions = conditions_source(shadow_outcomes, shadow_allow)
    source()  # a bad policy is told before a model is loaded
    with _upstream(upstream) as (address, own):
        chosen: dict[str, Any] = {
            "mode": mode, "fail": fail, "actuator": actuator, "encoding": encoding, "remote": remote,
        }  # fmt: skip
        made = settings.Settings(
            upstream=address,
            **chosen,
            remote_hosts=tuple(remote_host or ()),
            client_keys=keys_of(key_file) if key_file else (),
            upstream_key=keys_of(upstream_key_file)[0] if upstream_key_file else None,
            allow_bypass=not no_bypass,
            log_questions=log_questions,
            keep_images=keep_images,
            shadow=shadow,
            shadow_at_once=shadow_at_once,
            telemetry=telemetry,
            probe=probe,
            probe_model=probe_model,
            limits=settings.Limits(
                body_bytes=max_body_mb << 20, images=max_images, pixels=int(max_megapixels * 1e6), workers=workers
            ),
            timeouts=settings.Timeouts(connect_s=connect_timeout, read_s=read_timeout, total_s=total_timeout),
        )
        made.check_host(host)
        files = tuple(path for path in (policy, signal_file(signal or "")) if path is not None)
        served = reload.Served.start(
            partial(source, own), files, lambda rules: gateway.check_policy(rules, made, conditions)
        )

        def ready(here: str) -> None:
            logs.write_to_stderr()
            about = {"address": f"{here}/v1", "upstream": address, "mode": mode, **about_policy(served.rules.policy)}
            print_json(about) if as_json else typer.echo(first_words(about))

        app = gateway.create_app(made, served, conditions=conditions)
        running.serve(app, host, port, ready, **door.server_options(made.limits, drain))


@contextmanager
def _upstream(word: str) -> Iterator[tuple[str, str | None]]:
    """The address to forward to, and the model's family where it is known.

    A model on this machine is served beside the gateway for as long as it runs.
    """
    from stakes.gateway import run as running

    if word.startswith(("http://", "https://")):
        yield word, None
        return
    from stakes.gateway.local_server.app import app_of
    from stakes.models import load

    model = load(word)
    with running.running(app_of(model, Path(word).name)) as address:
        yield f"{address}/v1", model.family


def keys_of(path: Path) -> tuple[str, ...]:
    """Keys from a file, one a line, so that none stands in a list of processes."""
    try:
        keys = tuple(line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip())
    except (OSError, ValueError):
        raise BadInput(f"no keys can be read from {path}") from None
    if not keys:
        raise BadInput(f"{path} holds no key; write one a line")
    return keys
