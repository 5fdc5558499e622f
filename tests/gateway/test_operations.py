"""Running a gateway: SIGHUP, changed keys and certificates, request ids, draining and TLS."""

import json
import logging
import os
import signal
import ssl
import subprocess
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.gateway.gateways import Gateway, ask, gateway, policy
from tests.gateway.processes import process
from tests.gateway.upstream import DONE, Seen, Upstream, Wire, frame, until

from stakes import BadInput
from stakes.gateway.monitoring.logs import LOGGER
from stakes.gateway.proxy.clients import Authenticator
from stakes.gateway.secret_files import SecretFiles
from stakes.gateway.settings import Settings

A, B = "alpha-key-1", "beta-key-22"


def status(http: httpx.Client, base: object, key: str) -> int:
    return http.post(f"{base}/chat/completions", json={}, headers={"x-api-key": key}).status_code


def lines(running: "subprocess.Popen[str]") -> list[dict[str, Any]]:
    """The log of a process so far."""
    assert running.stderr is not None
    running.stderr.seek(0)
    return [json.loads(line) for line in running.stderr.read().splitlines()]


def secret(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o600)
    return path


def test_sighup_reloads_the_policy_and_the_keys(upstream: Upstream, tmp_path: Path, http: httpx.Client) -> None:
    path, keys = tmp_path / "policy.json", secret(tmp_path / "keys", f"{A}\n")
    policy().save(path)
    options = ["--policy", str(path), "--upstream", upstream.url, "--key-file", str(keys)]
    with process(*options) as (running, about):
        assert status(http, about["address"], A) == 200
        for reloads in (1, 2):  # nothing changed: it reloads all the same
            running.send_signal(signal.SIGHUP)
            assert until(lambda n=reloads: [x["event"] for x in lines(running)].count("policy reloaded") == n)  # type: ignore[misc]
        keys.write_text(f"{B}\n")
        running.send_signal(signal.SIGHUP)
        assert until(lambda: status(http, about["address"], B) == 200)
        assert status(http, about["address"], A) == 401
        assert running.poll() is None
        assert "keys reloaded" in [one["event"] for one in lines(running)]


def test_changed_key_files_are_read_again_and_bad_ones_are_not_used(
    upstream: Upstream, tmp_path: Path, http: httpx.Client, caplog: pytest.LogCaptureFixture
) -> None:
    keys, lent = secret(tmp_path / "keys", f"a {A}\n"), secret(tmp_path / "upstream", "sk-one\n")
    with (
        caplog.at_level(logging.INFO, LOGGER),
        gateway(upstream.url, key_file=keys, upstream_key_file=lent) as front,
    ):
        assert status(http, front.base_url, A) == 200
        assert upstream.last.header("authorization") == "Bearer sk-one"
        keys.write_text(f"# both teams\na {A}\nb {B} rpm=9\n")
        lent.write_text("sk-two\n")
        assert until(lambda: status(http, front.base_url, B) == 200)
        assert until(lambda: status(http, front.base_url, A) == 200 and "sk-two" in str(upstream.last.headers))
        for bad in ("", "short\n", f"a {A}\na {B}\n"):
            seen = len([one for one in caplog.records if "not reloaded" in one.getMessage()])
            keys.write_text(bad)
            assert until(
                lambda n=seen: len([x for x in caplog.records if "not reloaded" in x.getMessage()]) > n  # type: ignore[misc]
            )
            assert status(http, front.base_url, B) == 200
        assert not any(key in caplog.text for key in (A, B, "sk-two"))
        keys.write_text(f"{B}\n")
        assert until(lambda: status(http, front.base_url, A) == 401)


def test_a_key_file_that_everybody_can_read_is_reported(
    upstream: Upstream, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    keys = tmp_path / "keys"
    keys.write_text(f"{A}\n")
    for mode, warned in ((0o644, True), (0o640, False), (0o600, False)):
        keys.chmod(mode)
        caplog.clear()
        with caplog.at_level(logging.WARNING, LOGGER), gateway(upstream.url, key_file=keys):
            pass
        assert (f"{keys} can be read by every user of this machine; run: chmod 600" in caplog.text) is warned


@pytest.mark.parametrize("body", [{"messages": []}, ask()], ids=["text", "image"])
@pytest.mark.parametrize(
    ("given", "kept"), [("trace-1", True), ("", False), ("a b", False), ("x" * 200, False), (None, False)]
)
def test_a_request_id_goes_in_out_and_into_the_log(
    front: Gateway,
    upstream: Upstream,
    http: httpx.Client,
    body: Any,
    given: str | None,
    kept: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    headers = {} if given is None else {"x-request-id": given}
    with caplog.at_level(logging.INFO, LOGGER):
        reply = http.post(f"{front.base_url}/chat/completions", json=body, headers=headers)
        front.settle()
    own = reply.headers["x-request-id"]
    assert (own == given) is kept
    assert len(own) in (32, 7)
    assert upstream.last.header("x-request-id") == own
    logged = [one.fields["request_id"] for one in caplog.records if one.name == LOGGER]  # type: ignore[attr-defined]
    assert logged == ([own] if body == ask() else [])


def test_refusals_carry_the_id_and_the_upstreams_own_is_kept(
    front: Gateway, upstream: Upstream, http: httpx.Client
) -> None:
    reply = http.post(
        f"{front.base_url}/chat/completions", json=ask("?", "data:x"), headers={"x-request-id": "trace-9"}
    )
    assert (reply.status_code, reply.headers["x-request-id"]) == (422, "trace-9")
    upstream.script = lambda _, wire: wire.reply(b"{}", 200, "application/json", "x-request-id: req-of-theirs")
    reply = http.post(f"{front.base_url}/chat/completions", json={}, headers={"x-request-id": "trace-9"})
    assert reply.headers.get_list("x-request-id") == ["trace-9"]
    assert reply.headers["x-upstream-request-id"] == "req-of-theirs"


def test_readyz_is_503_while_streams_end_and_new_requests_are_refused(upstream: Upstream, http: httpx.Client) -> None:
    go_on, begun = threading.Event(), threading.Event()
    text: list[str] = []

    def script(seen: Seen, wire: Wire) -> None:
        if seen.method == "GET":
            return wire.reply(b"{}")
        wire.begin_stream()
        wire.chunk(frame("4"))
        begun.set()
        go_on.wait(20)
        return wire.done()

    upstream.script = script
    budgets = ["--budget", "high=256", "--budget", "low=64"]
    with process(*budgets, "--upstream", upstream.url) as (running, about):
        root = str(about["address"]).removesuffix("/v1")
        ask_it = {"messages": [], "stream": True}
        reader = threading.Thread(
            target=lambda: text.append(httpx.post(f"{root}/v1/chat/completions", json=ask_it, trust_env=False).text)
        )
        reader.start()
        assert begun.wait(10)
        assert http.get(f"{root}/readyz").status_code == 200
        running.send_signal(signal.SIGTERM)
        assert until(lambda: http.get(f"{root}/readyz").status_code == 503)
        assert http.get(f"{root}/readyz").json()["why"] == "shutting down"
        assert http.get(f"{root}/healthz").status_code == 200
        refused = http.post(f"{root}/v1/chat/completions", json={})
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "draining")
        assert refused.headers["retry-after"] == "1"
        go_on.set()
        reader.join(10)
        assert text == [(frame("4") + DONE).decode()]
        assert running.wait(10) in (0, -signal.SIGTERM)


def test_draining_ends_with_its_time(upstream: Upstream) -> None:
    hold = threading.Event()

    def script(seen: Seen, wire: Wire) -> None:
        wire.begin_stream()
        wire.chunk(frame("4"))
        hold.wait(20)

    upstream.script = script
    budgets = ["--budget", "high=256", "--budget", "low=64", "--drain", "1"]
    with (
        process(*budgets, "--upstream", upstream.url) as (running, about),
        httpx.stream("POST", f"{about['address']}/chat/completions", json={"stream": True}, trust_env=False) as reply,
    ):
        next(reply.iter_raw())
        running.send_signal(signal.SIGTERM)
        assert running.wait(8) in (0, -signal.SIGTERM)
    hold.set()


def certificate(folder: Path, name: str) -> tuple[Path, Path]:
    cert, key = folder / f"{name}.pem", folder / f"{name}.key"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}",
               "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True)
    return cert, key


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Path, Path]]:
    folder = tmp_path_factory.mktemp("tls")
    return [certificate(folder, name) for name in ("first", "second")]


def served_certificate(port: int) -> str:
    return ssl.get_server_certificate(("127.0.0.1", port))


def test_https_is_served_and_a_new_certificate_is_used(
    upstream: Upstream, tmp_path: Path, certificates: list[tuple[Path, Path]]
) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    (first, first_key), (second, second_key) = certificates
    cert.write_bytes(first.read_bytes())
    secret(key, first_key.read_text())
    with gateway(upstream.url, tls_cert=cert, tls_key=key) as front:
        assert front.address.startswith("https://127.0.0.1:")
        trusted = ssl.create_default_context(cafile=str(first))
        with httpx.Client(verify=trusted, trust_env=False) as https:
            assert https.post(f"{front.base_url}/chat/completions", json=ask()).headers["x-stakes-outcome"] == "fitted"
        cert.write_bytes(second.read_bytes())
        assert not until(lambda: served_certificate(front.port) != first.read_text(), 0.4)  # its key is not there yet
        os.replace(secret(tmp_path / "next", second_key.read_text()), key)
        assert until(lambda: served_certificate(front.port) == second.read_text())
        key.write_text("nonsense")
        assert not until(lambda: served_certificate(front.port) != second.read_text(), 0.4)  # the old one stays


def test_no_connection_fails_while_a_certificate_is_read_again(certificates: list[tuple[Path, Path]]) -> None:
    """Reading is a thread's work, and a connection may begin at any moment of it."""
    (cert, key), _ = certificates
    secrets = SecretFiles(Settings(upstream="http://127.0.0.1:9", tls_cert=cert, tls_key=key), Authenticator([], None))
    assert secrets.tls is not None
    trusted = ssl.create_default_context(cafile=str(cert))
    stop = threading.Event()

    def read_again() -> None:
        while not stop.is_set():
            secrets.reload_if_changed(force=True)

    reader = threading.Thread(target=read_again)
    reader.start()
    try:
        for _ in range(300):
            shake_hands(secrets.tls, trusted)
    finally:
        stop.set()
        reader.join()


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext) -> None:
    """A whole handshake in memory."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        server.wrap_bio(to_server, to_client, server_side=True),
        client.wrap_bio(to_client, to_server, server_hostname="127.0.0.1"),
    ]
    done = [False, False]
    while not all(done):
        for which, end in enumerate(ends):
            with suppress(ssl.SSLWantReadError):
                end.do_handshake()
                done[which] = True


def test_a_bad_certificate_is_refused_at_the_start(
    upstream: Upstream, tmp_path: Path, certificates: list[tuple[Path, Path]]
) -> None:
    (first, _), (_, second_key) = certificates
    for cert, key in ((first, second_key), (first, tmp_path / "nowhere"), (second_key, second_key)):
        with (
            pytest.raises(BadInput, match="no certificate can be read from"),
            gateway(upstream.url, tls_cert=cert, tls_key=key),
        ):
            pass
    with pytest.raises(BadInput, match="together"), gateway(upstream.url, tls_cert=first):
        pass
