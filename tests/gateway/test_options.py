"""Every option of ``serve`` can come from the environment and a file; misspelled names are reported."""

import sys
from inspect import signature
from pathlib import Path
from typing import Any, get_args

import httpx
import pytest
from tests.gateway.gateways import Gateway, ask, gateway
from tests.gateway.processes import process
from tests.gateway.upstream import Upstream
from typer.main import get_command
from typer.testing import CliRunner

from stakes.cli import app
from stakes.commands.envoy import IN_ENVOY
from stakes.commands.options import served_policy
from stakes.commands.serve import serve as serve_command

OPTIONS = {one.name: one for one in get_command(app).commands["serve"].params if one.name != "help"}  # type: ignore[attr-defined]
KINDS = {name: one.annotation for name, one in signature(serve_command).parameters.items()}
BUDGETS = ["--budget", "high=256", "--budget", "low=64"]


def values(monkeypatch: pytest.MonkeyPatch, *words: str) -> dict[str, Any]:
    """The values that ``serve`` gets, without serving."""
    got: dict[str, Any] = {}

    def stop(path: Any, budgets: Any, mean: Any, family: Any, actuator: Any) -> None:
        got.update(policy=path, budget=budgets, mean_budget=mean, family=family)
        raise SystemExit(0)

    def keep(upstream: str) -> None:
        got["upstream"] = upstream
        raise SystemExit(0)

    monkeypatch.setattr(served_policy, "read_policy", stop)
    monkeypatch.setattr(sys.modules["stakes.commands.serve"], "_upstream", keep)
    result = CliRunner().invoke(app, ["serve", *words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return got


def test_every_option_has_a_variable_of_its_name() -> None:
    expected = {name: f"STAKES_{one.opts[0].lstrip('-').replace('-', '_').upper()}" for name, one in OPTIONS.items()}
    assert {name: one.envvar for name, one in OPTIONS.items()} == expected
    assert expected["settings_file"] == "STAKES_SETTINGS"
    assert expected["as_json"] == "STAKES_JSON"
    assert len(expected) > 40


def test_the_command_line_wins_over_the_environment_and_that_over_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / "gateway.toml"
    settings.write_text('mean-budget = 100\nbudget = ["high=9", "low=3"]\nfamily = "qwen2-vl"\n')
    assert values(monkeypatch, "--settings", str(settings)) == {
        "policy": None, "budget": ["high=9", "low=3"], "mean_budget": 100, "family": "qwen2-vl"
    }  # fmt: skip
    monkeypatch.setenv("STAKES_SETTINGS", str(settings))
    monkeypatch.setenv("STAKES_MEAN_BUDGET", "200")
    monkeypatch.setenv("STAKES_BUDGET", "high=8 low=2")
    got = values(monkeypatch)
    assert (got["mean_budget"], got["budget"], got["family"]) == (200, ["high=8", "low=2"], "qwen2-vl")
    got = values(monkeypatch, "--mean-budget", "300", "--budget", "high=7")
    assert (got["mean_budget"], got["budget"]) == (300, ["high=7"])


def typed(one: Any) -> tuple[str, Any]:
    """A value of an option as the environment and as TOML has it."""
    if one.multiple:
        return "high=8 low=2", '["high=8", "low=2"]'
    if one.is_flag:
        return "true", "true"
    if set(get_args(get_args(KINDS[one.name])[0]) or (get_args(KINDS[one.name])[0],)) & {int, float}:
        return "3", "3"
    return "text", '"text"'


@pytest.mark.parametrize("name", sorted(set(OPTIONS) - {"settings_file"}))
@pytest.mark.parametrize("source", ["environment", "file"])
def test_every_option_arrives_from_the_environment_and_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, source: str
) -> None:
    option, seen = OPTIONS[name], {}
    words, toml = typed(option)
    arguments = []
    if source == "environment":
        monkeypatch.setenv(str(option.envvar), words)
    else:
        (tmp_path / "gateway.toml").write_text(f"{option.opts[0].lstrip('-')} = {toml}\n")
        arguments = ["--settings", str(tmp_path / "gateway.toml")]
    serve: Any = get_command(app).commands["serve"]  # type: ignore[attr-defined]
    monkeypatch.setattr(serve, "invoke", lambda context: seen.update(context.params))
    serve.main(arguments, standalone_mode=False)
    expected = {"high=8 low=2": ["high=8", "low=2"], "true": True, "3": 3, "text": "text"}[words]
    got = seen[name]
    assert (list(got) if isinstance(got, tuple) else str(got) if isinstance(got, Path) else got) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("shadw = 0.01\n", "sets 'shadw', which is no option of serve; did you mean 'shadow'?"),
        ("read-timout = 9\n", "did you mean 'read_timeout'?"),
        ("nonsense = 1\n", "see stakes serve --help"),
        ('budget = "high=9"\n', "sets 'budget' to 'high=9'; give a list, as ['high=9']"),
        ("= 3\n", "no settings can be read from"),
    ],
)
def test_a_mistake_in_the_settings_file_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    from stakes.cli import main

    (tmp_path / "gateway.toml").write_text(text)
    with pytest.raises(SystemExit):
        main(["serve", *BUDGETS, "--settings", str(tmp_path / "gateway.toml")])
    assert message in capsys.readouterr().err


def test_a_mistake_in_the_environment_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from stakes.cli import main

    monkeypatch.setenv("STAKES_ENGINES", "/somewhere")  # of others, and unlike every option
    monkeypatch.setenv("STAKES_KEYFILE", "keys.txt")
    with pytest.raises(SystemExit):
        main(["serve", *BUDGETS])
    assert "the environment sets STAKES_KEYFILE, which is no option of serve; did you mean STAKES_KEY_FILE?" in (
        capsys.readouterr().err
    )


def test_a_gateway_serves_with_options_from_both(
    upstream: Upstream, tmp_path: Path, http: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gateway.toml").write_text(f'upstream = "{upstream.url}"\nmode = "enforce"\nno_bypass = true\n')
    monkeypatch.setenv("STAKES_SETTINGS", str(tmp_path / "gateway.toml"))
    monkeypatch.setenv("STAKES_MODE", "observe")
    with process(*BUDGETS) as (_, about):
        assert (about["mode"], about["upstream"]) == ("observe", upstream.url)
        reply = http.post(f"{about['address']}/chat/completions", json=ask(), headers={"x-stakes-bypass": "1"})
        assert reply.json()["error"]["code"] == "bypass_forbidden"


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("x-stakes-teir", "there is no header 'x-stakes-teir'; did you mean x-stakes-tier?"),
        ("x-stakes-costs", "did you mean x-stakes-cost?"),
        ("x-stakes-by-pass", "did you mean x-stakes-bypass?"),
        ("x-stakes-zzz", "there are x-stakes-bypass, x-stakes-cost, x-stakes-group, x-stakes-task, x-stakes-tier"),
    ],
)
def test_a_misspelled_header_is_named(
    front: Gateway, upstream: Upstream, http: httpx.Client, header: str, message: str
) -> None:
    bodies: list[dict[str, Any]] = [ask(), {"messages": []}]
    for body in bodies:
        reply = http.post(f"{front.base_url}/chat/completions", json=body, headers={header: "high"})
        assert (reply.status_code, reply.json()["error"]["code"]) == (400, "unknown_header")
        assert message in reply.json()["error"]["message"]
    assert not upstream.seen


def test_misspelled_metadata_is_named_and_observing_lets_it_pass(upstream: Upstream, http: httpx.Client) -> None:
    body = ask(metadata={"stakes_teir": "high", "other": "x"})
    with gateway(upstream.url) as front:
        reply = http.post(f"{front.base_url}/chat/completions", json=body)
        assert (reply.status_code, reply.json()["error"]["code"]) == (400, "unknown_metadata")
        assert "did you mean stakes_tier?" in reply.json()["error"]["message"]
    with gateway(upstream.url, mode="observe") as front:
        assert http.post(f"{front.base_url}/chat/completions", json=body).status_code == 200
        reply = http.post(f"{front.base_url}/chat/completions", json=ask(), headers={"x-stakes-teir": "high"})
        assert reply.headers["x-stakes-outcome"] == "observed"
        assert front.metric("would_reject_total", reason="unknown_header") == 1


def test_the_options_of_envoy_are_those_of_serve() -> None:
    envoy: Any = get_command(app).commands["envoy"]  # type: ignore[attr-defined]
    assert {*IN_ENVOY, "ledger", "pdf"} <= {one.name for one in envoy.params} <= {*OPTIONS, "help"}
