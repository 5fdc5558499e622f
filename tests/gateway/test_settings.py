"""Settings are checked, and the options of ``serve`` are declared by them."""

import inspect
from pathlib import Path
from typing import Any

import pytest

from stakes import BadInput
from stakes.commands.serve import serve
from stakes.gateway.proxy.clients import read_keys
from stakes.gateway.settings import Limits, Settings, Timeouts, declared_options

UPSTREAM = "http://127.0.0.1:1/v1"


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"upstream": "ftp://x"}, "not an http"),
        ({"mode": "guess"}, "mode should be 'observe' or 'enforce', not 'guess'"),
        ({"fail": "maybe"}, "fail should be 'open' or 'closed', not 'maybe'"),
        ({"actuator": "magic"}, "actuator should be 'pixels'"),
        ({"client_keys": ("short",)}, "at least 8 printable"),
        ({"limits": {"images": 0}}, "images should be greater than 0, not 0"),
        ({"timeouts": {"total_s": float("inf")}}, "total_s should be a finite number, not inf"),
        ({"keep_images": 1001}, "keep_images should be less than or equal to 1000, not 1001"),
        ({"keep_undecided": 1001}, "keep_undecided should be less than or equal to 1000, not 1001"),
        ({"keep_undecided": -1}, "keep_undecided should be greater than or equal to 0, not -1"),
        ({"keep_undecided_hours": 0}, "keep_undecided_hours should be greater than 0, not 0"),
        ({"keep_undecided_hours": float("inf")}, "keep_undecided_hours should be a finite number, not inf"),
        ({"modes": "observe"}, "there is no setting 'modes'"),
    ],
)
def test_a_bad_setting_is_refused_in_one_sentence(knobs: dict[str, object], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        Settings(**{"upstream": UPSTREAM, **knobs})  # type: ignore[arg-type]


def test_the_upstreams_key_needs_client_keys_outside_loopback() -> None:
    lent = Settings(upstream=UPSTREAM, upstream_key="sk-x")
    lent.check_host("127.0.0.1")
    with pytest.raises(BadInput, match="anybody could spend"):
        lent.check_host("0.0.0.0")
    Settings(upstream=UPSTREAM, upstream_key="sk-x", client_keys=("long-enough",)).check_host("0.0.0.0")


def test_a_bad_key_is_not_repeated() -> None:
    for knobs in ({"client_keys": ("s3cret",)}, {"client_keys": {"s3cret": 1}}, {"upstream_key": b"s3cret\n"}):
        with pytest.raises(BadInput) as caught:
            Settings(upstream=UPSTREAM, **knobs)
        assert "s3cret" not in str(caught.value)
    assert "s3cret" not in repr(Settings(upstream=UPSTREAM, client_keys=("s3cret-key",), upstream_key="s3cret"))


def test_every_declared_option_is_one_of_serve_with_its_default_and_help() -> None:
    parameters = inspect.signature(serve).parameters
    options = list(declared_options())
    assert {option.name: parameters[option.name].default for option in options} == {
        option.name: option.default for option in options
    }
    assert all(option.help.endswith(".") for option in options)


def test_typed_options_become_settings(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("first-key-1\nsecond-key-2\n")
    typed: dict[str, Any] = {option.name: option.default for option in declared_options()}
    assert Settings.from_options(UPSTREAM, typed) == Settings(upstream=UPSTREAM, limits=Limits(pixels=89_000_000))
    typed |= {"max_body_mb": 2, "read_timeout": 9.0, "no_bypass": True, "remote_host": ["*.example"], "mode": "observe"}
    typed |= {"key_file": tmp_path / "keys", "upstream_key_file": tmp_path / "keys", "max_megapixels": 0.5}
    assert Settings.from_options(UPSTREAM, typed) == Settings(
        upstream=UPSTREAM,
        mode="observe",
        allow_bypass=False,
        remote_hosts=("*.example",),
        key_file=tmp_path / "keys",
        upstream_key_file=tmp_path / "keys",
        limits=Limits(body_bytes=2 << 20, pixels=500_000),
        timeouts=Timeouts(read_s=9.0),
    )
    settings = Settings.from_options(UPSTREAM, typed)
    assert (settings.client_keys, settings.upstream_key) == (("first-key-1", "second-key-2"), "first-key-1")


def test_keeping_texts_is_announced_and_off_by_default() -> None:
    assert Settings(upstream=UPSTREAM).notes() == []
    (note,) = Settings(upstream=UPSTREAM, keep_undecided=50, keep_undecided_hours=1.5).notes()
    assert note.startswith("keeps texts of up to 50 undecided requests in memory for 1.5 hours")


def test_a_file_without_keys_is_refused(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("\n \n")
    with pytest.raises(BadInput, match="holds no key"):
        read_keys(tmp_path / "keys")
