"""``stakes serve`` as a separate process: it reloads, drains on SIGTERM and reports bad input in one sentence."""

import json
import signal
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import pytest
from tests.gateway.gateways import ask, policy
from tests.gateway.processes import process
from tests.gateway.upstream import DONE, Seen, Upstream, Wire, frame, until

from stakes import BadInput
from stakes.commands.serve import describe_policy, format_start
from stakes.gateway import run
from stakes.gateway.run import serve

BUDGETS = ["--budget", "high=256", "--budget", "low=64"]


def test_it_serves_reloads_and_drains_on_sigterm(upstream: Upstream, tmp_path: Path, http: httpx.Client) -> None:
    path = tmp_path / "policy.json"
    policy().save(path)
    go_on, begun = threading.Event(), threading.Event()

    def script(seen: Seen, wire: Wire) -> None:
        wire.begin_stream()
        wire.chunk(frame("4"))
        begun.set()
        go_on.wait(20)
        wire.chunk(frame("2"))
        wire.done()

    with process("--policy", str(path), "--upstream", upstream.url) as (running, about):
        assert about["budgets"] == {"high": 256, "low": 64}
        reply = http.post(f"{about['address']}/chat/completions", json=ask())
        assert reply.headers["x-stakes-budget"] == "256"
        upstream.script = script
        text: list[str] = []
        reader = threading.Thread(
            target=lambda: text.append(
                http.post(f"{about['address']}/chat/completions", json={"messages": [], "stream": True}).text
            )
        )
        reader.start()
        assert begun.wait(10)
        running.send_signal(signal.SIGTERM)
        assert not until(lambda: running.poll() is not None, 0.4)  # it waits for the stream
        go_on.set()
        reader.join(10)
        assert text == [(frame("4") + frame("2") + DONE).decode()]
        assert running.wait(10) in (0, -signal.SIGTERM)
        assert running.stderr is not None
        events = [json.loads(line)["event"] for line in running.stderr.read().splitlines()]
        assert events == ["request"]


def test_chosen_budgets_are_served_and_labeled_as_chosen(
    upstream: Upstream, tmp_path: Path, http: httpx.Client
) -> None:
    keys = tmp_path / "keys"
    keys.write_text("first-key-1\nsecond-key-2\n")
    with process(*BUDGETS, "--upstream", upstream.url, "--key-file", str(keys), "--mode", "observe") as (_, about):
        assert about["origin"] == "chosen, not calibrated"
        assert http.post(f"{about['address']}/chat/completions", json=ask()).status_code == 401
        reply = http.post(
            f"{about['address']}/chat/completions", json=ask(), headers={"authorization": "Bearer second-key-2"}
        )
        assert (reply.headers["x-stakes-mode"], reply.headers["x-stakes-policy"]) == ("observe", "uncalibrated")


def test_tiers_are_read_by_the_named_signal(upstream: Upstream, tmp_path: Path, http: httpx.Client) -> None:
    words = tmp_path / "words.txt"
    words.write_text("Kaution\n")

    with process(*BUDGETS, "--signal", f"keywords:{words}", "--upstream", upstream.url) as (_, about):

        def budget(question: str) -> str:
            return http.post(f"{about['address']}/chat/completions", json=ask(question)).headers["x-stakes-budget"]

        assert budget("Wie hoch ist die Kaution?") == "256"
        assert budget("What is the total?") == "64"
        words.write_text("Kaution\ntotal\n")
        assert until(lambda: budget("What is the total?") == "256", 20)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ([], "give --policy FILE, or budgets of your own"),
        (["--policy", "nowhere.json"], "there is no policy file nowhere.json"),
        (["--budget", "high"], "--budget takes tier=value, such as high=5, not 'high'"),
        (["--budget", "high=0"], "--budget high=0 is no budget; give at least 1 token"),
        ([*BUDGETS, "--budget", "low=9"], "--budget names tier 'low' twice"),
        (["--budget", "high=256"], "give one beside high a budget: --budget low="),
        ([*BUDGETS, "--mode", "guess"], "mode should be 'observe' or 'enforce', not 'guess'"),
        ([*BUDGETS, "--upstream", "http://"], "not an http(s) address"),
        ([*BUDGETS, "--family", "smolvlm"], "not controllable by resizing"),
        ([*BUDGETS, "--key-file", "nowhere"], "no keys can be read from nowhere"),
        ([*BUDGETS, "--port", "99999"], "'--port' (env var: 'STAKES_PORT'): give a number from 0 to 65535, not 99999"),
        ([*BUDGETS, "--port", "-1"], "'--port' (env var: 'STAKES_PORT'): give a number from 0 to 65535, not -1"),
        ([*BUDGETS, "--workers", "0"], "'--workers' (env var: 'STAKES_WORKERS'): give a number of at least 1, not 0"),
        (
            [*BUDGETS, "--max-megapixels", "nan"],
            "'--max-megapixels' (env var: 'STAKES_MAX_MEGAPIXELS'): give a number of at least 0.001, not nan",
        ),
        (
            [*BUDGETS, "--keep-undecided", "1001"],
            "'--keep-undecided' (env var: 'STAKES_KEEP_UNDECIDED'): give a number from 0 to 1000, not 1001",
        ),
        (
            [*BUDGETS, "--keep-undecided-hours", "0"],
            "'--keep-undecided-hours' (env var: 'STAKES_KEEP_UNDECIDED_HOURS'): give a number of at least 0.01, not 0",
        ),
        ([*BUDGETS, "--drain", "inf"], "'--drain' (env var: 'STAKES_DRAIN'): give a number of at least 0, not inf"),
        (["--budget", "high=²"], "--budget high=²: '²' is not a whole number"),
        ([*BUDGETS, "--host", "host.invalid"], "choose another host or port"),
        ([*BUDGETS, "--signal", "magic"], "no signal is called 'magic'"),
        ([*BUDGETS, "--signal", "tier"], "have no labels to read; clients name tiers in the header x-stakes-tier"),
        ([*BUDGETS, "--signal", "task:mail=urgent"], "the signal can answer tier 'urgent', which this policy does not"),
    ],
)
def test_bad_input_is_one_sentence_and_status_2(
    options: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from stakes.cli import main

    upstream = [] if "--upstream" in options else ["--upstream", "http://127.0.0.1:1/v1"]
    with pytest.raises(SystemExit) as left:
        main(["serve", *options, *upstream])
    assert left.value.code == 2
    printed = capsys.readouterr()
    assert sentence in printed.err
    assert printed.err.count("\n") == 1


def test_a_bad_port_is_refused_from_python_too() -> None:
    with pytest.raises(BadInput, match="a port is a number from 1 to 65535, or 0 for any that is free, not 70000"):
        serve(None, "127.0.0.1", 70000)


def test_no_garbage_collection_walks_what_the_process_started_with() -> None:
    """Such a walk takes 40 ms, in which the event loop answers nobody."""
    script = (
        "import gc, sys; from stakes.gateway.run import serve; before = len(gc.get_objects())\n"
        "def leave(_): raise SystemExit(gc.get_freeze_count() < 0.9 * before or sys.getswitchinterval() > 0.001)\n"
        "serve(None, '127.0.0.1', 0, leave)"
    )
    assert subprocess.run([sys.executable, "-c", script], timeout=60, check=False).returncode == 0


def test_budgets_are_counted_by_the_local_models_family() -> None:
    pytest.importorskip("torch")
    llava = ["--budget", "high=600", "--budget", "low=64", "--upstream", "embedded-llava"]
    with process(*llava) as (_, about):
        assert about["family"] == "reader-llava"
        assert "requests with the budgets low 64 are refused" in str(about["warnings"])
    command = [sys.executable, "-m", "stakes", "serve", *llava, "--port", "0", "--family", "qwen2.5-vl"]
    left = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert left.returncode == 2
    assert "tokens of qwen2.5-vl, but 'embedded-llava' is reader-llava" in left.stderr


def test_kept_texts_are_announced_at_the_start_and_shown(upstream: Upstream, http: httpx.Client) -> None:
    with process(*BUDGETS, "--upstream", upstream.url, "--keep-undecided", "5") as (_, about):
        notes = about["notes"]
        assert isinstance(notes, list)
        note = str(notes[0])
        started = format_start(about).splitlines()
        assert note in started
        assert started[-2:] == [
            f'in your client: base_url="{about["address"]}"',
            f"Next, in another shell: stakes doctor --gateway {str(about['address']).removesuffix('/v1')}",
        ]
        assert "keeps texts of up to 5 undecided requests in memory for 24 hours" in note
        http.post(f"{about['address']}/chat/completions", json=ask("qwertz 12"))
        state = f"{str(about['address']).removesuffix('/v1')}/stakes/state"
        assert until(lambda: [one["text"] for one in http.get(state).json()["undecided"]["texts"]] == ["qwertz ##"], 10)


@pytest.mark.parametrize(("basis", "lines"), [("answers", 1), ("legibility", 2)])
def test_a_legibility_policy_prints_a_warning_at_the_start(basis: str, lines: int) -> None:
    about = {"address": "here", "upstream": "there", "mode": "enforce", **describe_policy(policy(basis=basis))}
    assert (about["basis"], len(about["warnings"])) == (basis, lines - 1)
    printed = format_start(about).splitlines()
    assert (
        printed[0] == "here → there (enforce; budgets high 256, low 64; calibrated with a model that it does not name)"
    )
    assert [line[:38] for line in printed[1:]] == ["warning: LEGIBILITY, not a VLM's error"] * (lines - 1)


def test_a_taken_port_is_reported(upstream: Upstream, capsys: pytest.CaptureFixture[str]) -> None:
    from stakes.cli import main

    port = upstream.url.split(":")[2].removesuffix("/v1")
    with pytest.raises(SystemExit):
        main(["serve", *BUDGETS, "--upstream", upstream.url, "--port", port])
    assert f"cannot listen on 127.0.0.1:{port}" in capsys.readouterr().err


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's malloc")
def test_the_next_page_reuses_the_memory_of_the_last_one() -> None:
    program = """
import io, resource
from concurrent.futures import ThreadPoolExecutor
from PIL import Image
from stakes.gateway.proxy.images import fit_image, measure_bytes
from stakes.gateway.run import _keep_freed_memory
from stakes.gateway.settings import Limits
{setting}
out = io.BytesIO()
Image.effect_noise((756, 1008), 8).convert("RGB").save(out, "PNG", compress_level=1)
image = measure_bytes(out.getvalue(), "qwen2.5-vl", Limits())
faults = []
with ThreadPoolExecutor(2) as pool:
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        list(pool.map(lambda _: fit_image(image, 576, "qwen2.5-vl", "png"), range(6)))
        faults.append((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / 6)
print(*faults)
"""

    def faults(setting: str) -> list[float]:
        """Page faults of one page, in each of five rounds."""
        done = subprocess.run([sys.executable, "-c", program.format(setting=setting)], capture_output=True, check=True)
        return [float(one) for one in done.stdout.split()]

    assert min(faults("_keep_freed_memory()")) < 50 < max(faults(""))  # 0 to 3, and some 280


def test_a_system_whose_allocator_cannot_be_set_serves_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def windows(name: str | None) -> None:
        raise TypeError(f"argument of type {type(name).__name__!r} is not iterable")

    monkeypatch.setattr("ctypes.CDLL", windows)
    run._keep_freed_memory()
