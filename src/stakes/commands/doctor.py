"""``stakes doctor``: is everything there that a run needs, and if not, what to do?"""

import platform
import re
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stakes.commands.output import AsJson, print_json, print_table
from stakes.errors import BadInput, StakesError

if TYPE_CHECKING:
    from stakes.budgets.policy import Policy
    from stakes.gateway.monitoring.probe import Check


# What of stakes is installed? Its own packages and those of each extra, beside the versions that it asks for.
#
# installed()[0]          # Package('numpy', '', '2.0', '2.4.6')


FOR_MAKERS = {"dev", "bench", "browser", "docs"}  # extras that no user needs
_WANTED = re.compile(r"([A-Za-z0-9._-]+)(?:\[[^]]*\])?\s*(?:>=\s*([0-9.]+))?")
_EXTRA = re.compile(r"""extra\s*==\s*['"]([^'"]+)""")


@dataclass(frozen=True)
class Package:
    """A package that stakes asks for; ``extra`` is "" for its core, ``found`` None where it is not installed."""

    name: str
    extra: str
    least: str
    found: str | None

    @property
    def good(self) -> bool:
        """Installed and new enough."""
        return self.found is not None and numbers(self.found) >= numbers(self.least)


def installed() -> list[Package]:
    """Every package of the core and of the extras for users, as this installation's own metadata names them."""
    packages = []
    for line in metadata.requires("stakes") or []:
        wanted, _, marker = line.partition(";")
        extra, found = _EXTRA.search(marker), _WANTED.match(wanted.strip())
        name = extra[1] if extra else ""
        elsewhere = "!= 'win32'" in marker.replace('"', "'") and sys.platform == "win32"  # the one marker that we use
        if found and name not in FOR_MAKERS and not elsewhere:
            packages.append(Package(found[1], name, found[2] or "0", version(found[1])))
    return packages


def version(name: str) -> str | None:
    """The installed version of a package, None where there is none."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def numbers(text: str) -> tuple[int, ...]:
    """``2.13.0+cpu`` as (2, 13): what can be compared; zeros at the end mean nothing."""
    found = re.match(r"\d+(?:\.\d+)*", text)
    parts = [int(part) for part in found[0].split(".")] if found else []
    while parts and parts[-1] == 0:
        parts.pop()
    return tuple(parts)


# What each extra is for, in the words of somebody who has not got it.
PURPOSES = {
    "local": "models on this machine, the embedded reader among them",
    "gateway": "stakes serve",
    "report": "pictures in reports",
    "telemetry": "sending OpenTelemetry from stakes serve",
    "hub": "datasets of the Hugging Face hub",
    "ray": "answering on several machines",
    "ocr": "the legibility study",
}
Row = dict[str, str]


def doctor(
    policy: Annotated[Path | None, typer.Option(help="A policy file to check.")] = None,
    upstream: Annotated[
        str | None, typer.Option(help="An OpenAI-compatible address to check; its model is asked two short questions.")
    ] = None,
    upstream_key_file: Annotated[Path | None, typer.Option(help="The key that the upstream is asked with.")] = None,
    model: Annotated[str | None, typer.Option(help="The model to ask. Default: the first that it lists.")] = None,
    family: Annotated[str, typer.Option(help="Without --policy: the upstream model's family.")] = "qwen2.5-vl",
    actuator: Annotated[str, typer.Option(help="As for serve: pixels, vllm, lmdeploy, detail or gemini.")] = "pixels",
    as_json: AsJson = False,
) -> None:
    """Check the installation, the embedded reader's weights, a policy and an upstream; exit status 1 on a problem.

    Example: stakes doctor --policy policy.json --upstream http://127.0.0.1:8000/v1
    """
    rows = [*_python(), *_extras(installed()), *_weights()]
    rules, found = _policy(policy, actuator)
    rows += found
    if upstream is not None:
        rows += _upstream(
            upstream, upstream_key_file, model, family, actuator, rules, broken=bool(policy and not rules)
        )
    problems = [row for row in rows if row["state"] == "bad"]
    if as_json:
        print_json({"good": not problems, "checks": rows})
    else:
        print_table("stakes doctor", ("check", "state", "found"), [(r["check"], r["state"], r["found"]) for r in rows])
        for row in rows:
            if row["advice"]:
                typer.echo(f"{row['check']}: {row['advice']}")
        warnings = sum(row["state"] in ("warning", "unknown") for row in rows)
        told = f"{len(problems)} of {len(rows)} checks found a problem" if problems else "no problem found"
        typer.echo(f"{told}; {warnings} warning{'s' if warnings > 1 else ''}" if warnings else told)
    if problems:
        raise typer.Exit(1)


def _row(check: str, state: str, found: str, advice: str = "") -> Row:
    return {"check": check, "state": state, "found": found, "advice": advice}


def _python() -> list[Row]:
    here = platform.python_version()
    return [_row("stakes", "good", f"{version('stakes')} on Python {here}, {platform.system()} {platform.machine()}")]


def _extras(packages: list[Package]) -> list[Row]:
    """One row for the core and for each extra: whole, absent as a whole (which is nobody's fault), or broken."""
    rows = []
    for extra in dict.fromkeys(one.extra for one in packages):
        mine = [one for one in packages if one.extra == extra]
        label, wanted = (f"extra {extra}", f"'.[{extra}]'") if extra else ("core", ".")
        install = f"in the clone: pip install -c constraints.txt {wanted}"
        if extra and not any(one.found for one in mine):
            rows.append(_row(label, "absent", f"not installed; for {PURPOSES.get(extra, extra)}", install))
            continue
        there = ", ".join(f"{one.name} {one.found}" for one in mine if one.good)
        wrong = [one for one in mine if not one.good]
        if not wrong:
            rows.append(_row(label, "good", there))
            continue
        told = ", ".join(
            f"{one.name} is missing" if one.found is None else f"{one.name} {one.found} is older than {one.least}"
            for one in wrong
        )
        # Packages of an extra are often there for another reason: half of one is a problem only where it is too old.
        old = not extra or any(one.found is not None for one in wrong)
        rows.append(_row(label, "bad" if old else "absent", told, install))
    return rows


def _weights() -> list[Row]:
    from stakes.models.embedded import SHIPPED, shipped_folder

    rows = []
    for name in SHIPPED:
        try:
            folder = shipped_folder(name)
        except BadInput as error:
            said, _, advice = str(error).rpartition("; ")
            advice += ", in the clone: pip install --force-reinstall --no-deps ."
            rows.append(_row(f"weights {name}", "bad", said, advice))
            continue
        files = [path for path in folder.iterdir() if path.is_file()]
        size = sum(path.stat().st_size for path in files) / 1e6
        rows.append(_row(f"weights {name}", "good", f"{len(files)} files, {size:.1f} MB, checksums agree"))
    return rows


def _policy(path: Path | None, actuator: str) -> "tuple[Policy | None, list[Row]]":
    from stakes.budgets.policy import Policy

    if path is None:
        return None, []
    try:
        rules = Policy.load(path)
    except StakesError as error:
        return None, [_row("policy", "bad", str(error), "give the path of a file that stakes calibrate wrote")]
    budgets = ", ".join(f"{name} {tokens}" for name, tokens in rules.budgets.items())
    told = (
        f"{rules.family}, {rules.mechanism}, {budgets}, mean {rules.mean_budget}, fingerprint {rules.fingerprint:.12}"
    )
    try:
        from stakes.gateway.app import check_policy
        from stakes.gateway.settings import Settings
    except ImportError:
        return rules, [_row("policy", "good", told), *_cautions(rules)]
    try:
        check_policy(rules, Settings(upstream="http://127.0.0.1/v1", **_knobs(actuator)))
    except StakesError as error:
        advice = "evaluate can use this policy, serve cannot; calibrate one by resolution or choose another --actuator"
        return rules, [_row("policy", "bad", f"{told}; {error}", advice)]
    return rules, [_row("policy", "good", told), *_cautions(rules)]


def _cautions(rules: "Policy") -> list[Row]:
    """Nothing to stop at, and not to be passed over: what the policy rests on."""
    from stakes.gateway.reload import cautions

    return [_row("policy basis", "warning", *_split(sentence)) for sentence in cautions(rules)]


def _split(sentence: str) -> tuple[str, str]:
    """What is so, and what to do about it."""
    found, _, advice = sentence.rpartition("; ")
    return found, advice


def _upstream(
    address: str, key_file: Path | None, model: str | None, family: str, actuator: str, rules: "Policy | None", *,
    broken: bool,
) -> list[Row]:  # fmt: skip
    import asyncio

    try:
        from stakes.gateway.monitoring.probe import check_upstream
        from stakes.gateway.settings import Settings
    except ImportError as error:
        return [_row("upstream", "bad", f"not asked: {error.name} is missing", "pip install 'stakes[gateway]'")]
    from stakes.commands.serve import keys_of

    try:
        key = keys_of(key_file)[0] if key_file else None
        settings = Settings(upstream=address, upstream_key=key, probe_model=model, **_knobs(actuator))
        checks: list[Check] = asyncio.run(check_upstream(settings, rules or _any_policy(family)))
    except StakesError as error:
        return [_row("upstream", "bad", str(error), _other_actuator(actuator, rules.family if rules else family))]
    rows = [_row(one.name, one.state, one.found, one.advice) for one in checks]
    if broken:
        rows.append(_row("upstream family", "unknown", f"asked as {family}, since the policy cannot be read"))
    return rows


def _other_actuator(actuator: str, family: str) -> str:
    """Which actuators would do, where this one is what does not fit the family."""
    from stakes.errors import UnknownFamily
    from stakes.gateway.proxy.actuators import fitting

    try:
        good = fitting(family)
    except UnknownFamily:
        return "give one of these with --family"
    if not good:
        return f"no --actuator sets the tokens of {family}, so no budget can reach it"
    if actuator in good:
        return "see stakes doctor --help"
    listed = " or ".join(filter(None, (", ".join(good[:-1]), good[-1])))
    return f"with --family {family} give --actuator {listed}"


def _any_policy(family: str) -> "Policy":
    """A policy that only says the family: the probe chooses its own budgets."""
    from stakes.budgets.policy import Policy

    tiers = {name: {"cost": 1, "budget": 64} for name in ("high", "low")}
    record = {"schema": 1, "family": family, "mean_budget": 64, "tiers": tiers}
    return Policy.from_record(record, "--family")


def _knobs(actuator: str) -> dict[str, Any]:
    return {"actuator": actuator}
