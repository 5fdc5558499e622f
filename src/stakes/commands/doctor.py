"""``stakes doctor``: check the installation, the weights, a policy, an upstream and a gateway, with advice."""

import platform
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stakes.commands.output import AsJson, format_by_tier, print_json, print_table
from stakes.commands.output.installed import PURPOSES, Package, installed, version
from stakes.errors import BadInput, StakesError, UnknownFamily

if TYPE_CHECKING:
    from stakes.budgets.policy import Policy

Row = dict[str, str]


def doctor(
    policy: Annotated[Path | None, typer.Option(help="A policy file to check.")] = None,
    upstream: Annotated[
        str | None, typer.Option(help="An OpenAI-compatible address to check; its model is asked two short questions.")
    ] = None,
    upstream_key_file: Annotated[Path | None, typer.Option(help="A file that holds the upstream's API key.")] = None,
    model: Annotated[str | None, typer.Option(help="The model to ask. Default: the first that it lists.")] = None,
    family: Annotated[str, typer.Option(help="Without --policy: the upstream model's family.")] = "qwen2.5-vl",
    actuator: Annotated[
        str, typer.Option(help="As for serve: pixels, vllm, vllm-deletion, lmdeploy, detail or gemini.")
    ] = "pixels",
    gateway: Annotated[
        str | None, typer.Option(help="The address of a running gateway: its requests, and the share undecided.")
    ] = None,
    gateway_key_file: Annotated[Path | None, typer.Option(help="A file that holds one of the gateway's keys.")] = None,
    ledger: Annotated[
        str | None, typer.Option(help="As for serve: an address of Redis to check, such as redis://host:6379/0.")
    ] = None,
    ledger_loss: Annotated[float, typer.Option(min=0, help="As for serve.")] = 2.0,
    as_json: AsJson = False,
) -> None:
    """Check the installation, the weights, a policy, an upstream, a gateway and a ledger; exit status 1 on a problem.

    Example: stakes doctor --policy policy.json --upstream http://127.0.0.1:8000/v1
    """
    here = f"{version('stakes')} on Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    rows = [_row("stakes", "good", here), *_extras(installed()), *_weights()]
    rules, found = (None, []) if policy is None else _policy(policy, actuator)
    rows += found
    if upstream is not None:
        rows += _upstream(upstream, upstream_key_file, model, rules, rules.family if rules else family, actuator)
        if policy is not None and rules is None:
            rows.append(_row("upstream family", "unknown", f"{family} was assumed, because the policy cannot be read"))
    if gateway is not None:
        rows += _gateway(gateway, gateway_key_file, rules)
    if ledger is not None:
        rows += _ledger(ledger, ledger_loss)
    problems = sum(row["state"] == "bad" for row in rows)
    if as_json:
        print_json({"good": not problems, "checks": rows})
    else:
        print_table("stakes doctor", ("check", "state", "found"), [(r["check"], r["state"], r["found"]) for r in rows])
        for row in rows:
            if row["advice"]:
                typer.echo(f"{row['check']}: {row['advice']}")
        warnings = sum(row["state"] in ("warning", "unknown") for row in rows)
        result = f"{problems} of {len(rows)} checks found a problem" if problems else "no problem found"
        typer.echo(f"{result}; {warnings} warning{'s' if warnings > 1 else ''}" if warnings else result)
    if problems:
        raise typer.Exit(1)


def _row(check: str, state: str, found: str, advice: str = "") -> Row:
    return {"check": check, "state": state, "found": found, "advice": advice}


def _extras(packages: list[Package]) -> list[Row]:
    """One row for the core and for each extra: complete, absent (which is no problem), or broken."""
    rows = []
    for extra in dict.fromkeys(one.extra for one in packages):
        mine = [one for one in packages if one.extra == extra]
        label, target = (f"extra {extra}", f"'.[{extra}]'") if extra else ("core", ".")
        install = f"in the clone: pip install -c constraints.txt {target}"
        wrong = [one for one in mine if not one.good]
        if extra and not any(one.found for one in mine):
            rows.append(_row(label, "absent", f"not installed; for {PURPOSES.get(extra, extra)}", install))
        elif not wrong:
            rows.append(_row(label, "good", ", ".join(f"{one.name} {one.found}" for one in mine)))
        else:
            faults = (
                f"{one.name} is missing" if one.found is None else f"{one.name} {one.found} is older than {one.least}"
                for one in wrong
            )
            # Packages of an extra are often installed for another reason: a part of one is no problem, an old one is.
            bad = not extra or any(one.found is not None for one in wrong)
            rows.append(_row(label, "bad" if bad else "absent", ", ".join(faults), install))
    return rows


def _weights() -> list[Row]:
    from stakes.models.embedded import SHIPPED, shipped_folder

    rows = []
    for name in SHIPPED:
        try:
            files = [path for path in shipped_folder(name).iterdir() if path.is_file()]
        except BadInput as error:
            problem, advice = _split(str(error))
            advice += ", in the clone: pip install --force-reinstall --no-deps ."
            rows.append(_row(f"weights {name}", "bad", problem, advice))
        else:
            size = sum(path.stat().st_size for path in files) / 1e6
            rows.append(_row(f"weights {name}", "good", f"{len(files)} files, {size:.1f} MB, checksums agree"))
    return rows


def _policy(path: Path, actuator: str) -> "tuple[Policy | None, list[Row]]":
    """The policy if it can be read, and the checks of it: whether it can be served, and warnings."""
    from stakes.budgets.harm import harm_checks
    from stakes.budgets.policy import Policy
    from stakes.gateway.reload import policy_warnings

    try:
        rules = Policy.load(path)
    except StakesError as error:
        return None, [_row("policy", "bad", str(error), "give the path of a file that stakes calibrate wrote")]
    summary = (
        f"{rules.family}, {rules.mechanism}, {format_by_tier(rules.budgets)}, mean {rules.mean_budget}; {rules.origin}"
    )
    harm = [_row("harm", *check) for check in harm_checks(rules)]
    try:
        from stakes.gateway.app import check_policy
        from stakes.gateway.settings import Settings

        check_policy(rules, Settings(upstream="http://127.0.0.1/v1", actuator=actuator))  # type: ignore[arg-type]
    except ImportError:  # no gateway to serve it with
        pass
    except StakesError as error:
        advice = "evaluate can use this policy, serve cannot; calibrate one by resolution or choose another --actuator"
        return rules, [_row("policy", "bad", f"{summary}; {error}", advice), *harm]
    warnings = [_row("policy basis", "warning", *_split(sentence)) for sentence in policy_warnings(rules)]
    return rules, [_row("policy", "good", summary), *harm, *warnings]


def _split(sentence: str) -> tuple[str, str]:
    """A sentence's problem, and the advice at its end."""
    problem, _, advice = sentence.rpartition("; ")
    return problem, advice


def _upstream(
    address: str, key_file: Path | None, model: str | None, rules: "Policy | None", family: str, actuator: str
) -> list[Row]:
    import asyncio

    try:
        from stakes.gateway.monitoring.probe import check_upstream
        from stakes.gateway.proxy.clients import key_of, read_keys
        from stakes.gateway.settings import Settings
    except ImportError as error:
        return [_row("upstream", "bad", f"not asked: {error.name} is missing", "pip install 'stakes[gateway]'")]
    try:
        key = key_of(read_keys(key_file)[0]) if key_file else None
        settings = Settings(upstream=address, upstream_key=key, probe_model=model, actuator=actuator)  # type: ignore[arg-type]
        checks = asyncio.run(check_upstream(settings, rules or _any_policy(family)))
    except StakesError as error:
        return [_row("upstream", "bad", str(error), _other_actuator(actuator, family))]
    return [_row(one.name, one.state, one.found, one.advice) for one in checks]


def _other_actuator(actuator: str, family: str) -> str:
    """Advice on which actuators fit the family, if this one does not."""
    from stakes.vision.geometry.menus import supported

    try:
        good = supported(family)
    except UnknownFamily:
        return "give a family of stakes families with --family"
    if not good:
        return f"no --actuator sets the tokens of {family}, so no budget can reach it"
    if actuator in good:
        return "see stakes doctor --help"
    return f"with --family {family} give --actuator {' or '.join(filter(None, (', '.join(good[:-1]), good[-1])))}"


def _gateway(address: str, key_file: Path | None, rules: "Policy | None") -> list[Row]:
    """Ask a running gateway for its metrics."""
    import httpx

    from stakes.gateway.proxy.clients import key_of, read_keys
    from stakes.http import server_name

    try:
        key = key_of(read_keys(key_file)[0]) if key_file else None
        name, root = server_name(address, key), address.rstrip("/").removesuffix("/v1")
        headers = {"authorization": f"Bearer {key}"} if key else {}
        reply = httpx.get(f"{root}/metrics", headers=headers, timeout=10, trust_env=False)
    except StakesError as error:
        return [_row("gateway", "bad", str(error), "give the address that stakes serve prints")]
    except httpx.HTTPError as error:
        found = f"{name} does not answer ({type(error).__name__})"
        return [_row("gateway", "bad", found, "start it with stakes serve, or correct the address")]
    if reply.status_code == 401:
        found = f"{name} does not accept this key" if key else f"{name} needs a key for /metrics"
        return [_row("gateway", "bad", found, "give a file with one of its keys: --gateway-key-file FILE")]
    try:
        return _traffic(reply.text, rules)
    except ImportError as error:
        return [_row("gateway", "bad", f"not read: {error.name} is missing", "pip install 'stakes[gateway]'")]
    except (ValueError, KeyError, IndexError):
        found = f"{name} has no metrics of a gateway at /metrics (status {reply.status_code})"
        return [_row("gateway", "bad", found, "give the address of stakes serve, not of its upstream")]


def _ledger(address: str, loss_s: float) -> list[Row]:
    """Whether this ledger keeps the hard total, and under which conditions."""
    from stakes.gateway.ledger.checks import check_redis
    from stakes.gateway.ledger.open import is_redis

    if not is_redis(address):
        found = "a file: exact for the gateways of one host, after restarts, kills and power failures"
        return [_row("ledger", "good", found)]
    try:
        return [_row(*check) for check in check_redis(address, loss_s)]
    except BadInput as error:
        return [_row("ledger", "bad", *_split(str(error)))]


def _traffic(text: str, rules: "Policy | None") -> list[Row]:
    """What a gateway has counted since it started: requests, and how many of them were undecided."""
    from prometheus_client.parser import text_string_to_metric_families

    from stakes.gateway.monitoring.undecided import UndecidedShare

    families = {one.name: one.samples for one in text_string_to_metric_families(text)}
    policy = families["stakes_policy_info"][0].labels
    counts = [(one.labels, one.value) for one in families["stakes_requests"] if one.name.endswith("_total")]
    undecided = sum(one.value for one in families["stakes_undecided"] if one.name.endswith("_total"))
    share, requests = UndecidedShare.of(undecided, counts), sum(count for _, count in counts)
    served = "budgets chosen, not calibrated" if policy["fingerprint"] == "uncalibrated" else "a calibrated policy"
    if rules is not None:
        served = "this policy" if policy["fingerprint"] == rules.fingerprint else "another policy than this"
    summary = f"{policy['mode']}, {served}, {requests:,.0f} requests since its start"
    rows = [_row("gateway", "good", summary)]
    if share.share is None:
        return [*rows, _row("undecided", "unknown", "no image request yet")]
    found = f"{share.undecided:,} of {share.requests:,} image requests ({share.share:.1%})"
    return [*rows, _row("undecided", "warning" if share.high else "good", found, share.advice())]


def _any_policy(family: str) -> "Policy":
    """A policy of this family for the probe, which chooses its own budgets."""
    from stakes.budgets.policy import Policy

    tiers = {name: {"cost": 1, "budget": 64} for name in ("high", "low")}
    return Policy.from_record({"schema": 2, "family": family, "mean_budget": 64, "tiers": tiers}, "--family")
