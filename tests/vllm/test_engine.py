"""Against a real vLLM with the plugin (``make test-engine``): it deletes as local models do, and counts to the token.

The server reads at most 200 tokens in one step, so that images are cut into chunks.
"""

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import httpx
import pytest
import torch
from PIL import Image
from tests.gateway.engines import free_port, vllm, with_plugin
from tests.gateway.gateways import encoded, gateway, policy, url_of
from tests.models.tiny import picture
from tests.vllm.checkpoints import save_tiny
from torch import Tensor

import stakes.vllm
from stakes import models
from stakes.data import synthetic
from stakes.gateway.monitoring.probe import check_upstream
from stakes.gateway.settings import Settings
from stakes.models import Request
from stakes.models.base import SUFFIX
from stakes.models.embedded import shipped_folder
from stakes.vision.selectors.base import Scene, Selector

TRUST = ("--trust-request-mm-kwargs", "--max-num-batched-tokens", "200")
BOUNDS: Any = {"min_pixels": 12544, "max_pixels": 1019200}  # of the embedded reader
DELETION = {"mechanism": "deletion", "selector": "redundancy", "mean_budget": 300}
HOW = ((304, "redundancy"), (64, "divprune"), (128, "saliency"), (100, "random"), (160, "top"))

# A worker on a GPU reads vLLM's switch after it has loaded the model; the one on a CPU leaves it off.
SWITCH = """
def as_on_a_gpu():
    import os
    if os.environ.get("ACME_AS_ON_A_GPU"):
        from vllm.v1.worker.cpu_model_runner import CPUModelRunner
        load = CPUModelRunner.load_model
        def load_model(self, *given, **options):
            load(self, *given, **options)
            self.is_multimodal_pruning_enabled = self.model_config.multimodal_config.is_multimodal_pruning_enabled()
            assert self.is_multimodal_pruning_enabled
        CPUModelRunner.load_model = load_model
"""


@dataclass(frozen=True)
class Top(Selector):
    """The upper rows of a page: the lowest position of the image is never among the kept."""

    name: ClassVar[str] = "top"

    def rank(self, scene: Scene, count: int) -> Tensor:
        """[count] indices in reading order."""
        return torch.arange(count)


@dataclass
class Server:
    """A vLLM with the plugin."""

    url: str

    def ask(self, images: list[Image.Image], question: str, length: int = 24, **own: Any) -> httpx.Response:
        parts: list[Any] = [{"type": "image_url", "image_url": {"url": url_of(encoded(image))}} for image in images]
        turn = {"role": "user", "content": [*parts, {"type": "text", "text": question + SUFFIX}]}
        body = {"model": "reader", "messages": [turn], "temperature": 0, "max_tokens": length}
        body |= {"mm_processor_kwargs": own} if own else {}
        return httpx.post(f"{self.url}/chat/completions", json=body, timeout=300, trust_env=False)

    def read(self, images: list[Image.Image], question: str, length: int = 24, **own: Any) -> tuple[str, int, int]:
        """Text, image tokens and prompt tokens."""
        reply = self.ask(images, question, length, **own)
        assert reply.status_code == 200, reply.text
        record = reply.json()
        usage = record["usage"]
        counted = usage["prompt_tokens_details"]["multimodal_tokens"]["image"]
        return record["choices"][0]["message"]["content"].strip(), counted, usage["prompt_tokens"]


@pytest.fixture(scope="module")
def script(request: pytest.FixtureRequest) -> str:
    given = request.config.getoption("--engine")
    if not given:
        pytest.skip("needs a vLLM: --engine PATH of a command that serves CHECKPOINT PORT")
    return str(given)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The plugin, and a selector of another package."""
    folder = with_plugin(tmp_path_factory.mktemp("site"))
    info = next(folder.glob("stakes-*.dist-info")) / "entry_points.txt"
    groups = info.read_text().replace("[vllm.general_plugins]", "[vllm.general_plugins]\nacme = acme_top:as_on_a_gpu")
    info.write_text(groups + "[stakes.selectors]\ntop = acme_top:Top\n")
    source = Path(__file__).read_text("utf-8")
    start = source.index("@dataclass(frozen=True)\nclass Top")
    imports = "import torch\nfrom dataclasses import dataclass\nfrom typing import ClassVar\nfrom torch import Tensor\n"
    imports += "from stakes.vision.selectors.base import Scene, Selector\n\n"
    (folder / "acme_top.py").write_text(imports + source[start : source.index("@dataclass\nclass Server")] + SWITCH)
    return folder


@pytest.fixture(scope="module")
def server(script: str, site: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with vllm(script, free_port(), tmp_path_factory.mktemp("vllm") / "log", *TRUST, site=site) as url:
        yield Server(url)


def pages(number: int, family: str = "forms") -> list[tuple[Image.Image, str]]:
    return [(page.image, one.text) for page, one in synthetic.samples(family, "test", number, per_page=1)]


def test_answers_equal_local_deletion_and_tokens_the_budget(server: Server) -> None:
    """Budgets and selectors mixed in one batch; ``top`` drops the lowest rows of portrait pages."""
    asked = [(*page, *HOW[at % len(HOW)]) for at, page in enumerate(pages(20) + pages(10, "charts"))]
    local = models.load("embedded")
    ours = local.answer([
        Request(image, question, budget, "deletion", Top() if name == "top" else name, "seed")
        for image, question, budget, name in asked
    ])  # fmt: skip
    with ThreadPoolExecutor(4) as pool:
        theirs = list(pool.map(
            lambda one: server.read(
                [one[0]], one[1], stakes_budget=one[2], stakes_selector=one[3], stakes_sample="seed"
            ), asked,
        ))  # fmt: skip
    assert [counted for _, counted, _ in theirs] == [budget for _, _, budget, _ in asked]
    different = [(own.text, text) for own, (text, _, _) in zip(ours, theirs, strict=True) if own.text != text]
    print(f"{len(asked) - len(different)} of {len(asked)} answers are the same; different: {different}")
    assert len(different) <= 1
    assert sum(image.height > image.width for image, _, _, name in asked if name == "top") >= 3


def test_without_a_budget_tokens_and_answers_are_those_of_the_whole_image(server: Server) -> None:
    local = models.load("embedded")
    for image, question in pages(4):
        (own,) = local.answer([Request(image, question)])
        assert server.read([image], question)[:2] == (own.text, own.native_tokens)


def test_a_list_stays_aligned_when_one_of_its_images_is_cached(server: Server) -> None:
    (first, question), (second, _), (third, _) = pages(33)[-3:]
    _, alone, _ = server.read([second], question, stakes_budget=[48])
    assert alone == 48
    _, counted, prompt = server.read([first, second, third], question, stakes_budget=[32, 48, None])
    native = third.width * third.height // 784
    assert counted == 32 + 48 + native
    text = server.read([first, second, third], question, stakes_budget=[32, 48, None])  # now all are cached
    assert text[1:] == (counted, prompt)
    _, swapped, _ = server.read([first, second, third], question, stakes_budget=[None, 32, 48])
    assert swapped == 32 + 48 + first.width * first.height // 784


def test_an_answer_is_the_same_from_the_prefix_cache_and_another_budget_is_not_taken_from_it(server: Server) -> None:
    image, question = pages(34)[-1]
    (once,) = {server.read([image], question, stakes_budget=160) for _ in range(2)}
    assert once[1] == 160
    assert server.read([image], question, stakes_budget=161)[1] == 161
    assert server.read([image], question, stakes_budget=160, stakes_selector="saliency")[1] == 160


def test_a_stream_states_the_budget(server: Server) -> None:
    image, question = pages(1)[0]
    turn = [{"type": "image_url", "image_url": {"url": url_of(encoded(image))}}, {"type": "text", "text": question}]
    body = {"model": "reader", "messages": [{"role": "user", "content": turn}], "max_tokens": 4, "stream": True}
    body |= {"stream_options": {"include_usage": True}, "mm_processor_kwargs": {"stakes_budget": 77}}
    with httpx.stream("POST", f"{server.url}/chat/completions", json=body, timeout=300, trust_env=False) as reply:
        lines = [line[6:] for line in reply.iter_lines() if line.startswith("data: {")]
    assert json.loads(lines[-1])["usage"]["prompt_tokens_details"]["multimodal_tokens"] == {"image": 77}


@pytest.mark.parametrize(
    ("own", "says"),
    [
        ({"stakes_budget": 0}, "at least 1"),
        ({"stakes_budget": 5000}, "exceeds the"),
        ({"stakes_budget": [1, 2]}, "2 entries and the request 1 images"),
        ({"stakes_budget": 5, "stakes_selector": "fastv"}, "needs the question"),
        ({"stakes_budget": 5, "stakes_selector": "os:system"}, "cannot name code"),
        ({"stakes_sample": "x"}, "without a stakes_budget"),
    ],
)
def test_what_cannot_be_done_is_a_400_with_the_reason(server: Server, own: dict[str, Any], says: str) -> None:
    reply = server.ask([picture(280, 420)], "What?", **own)
    assert reply.status_code == 400
    assert says in reply.json()["error"]["message"]


def test_the_gateway_serves_a_deletion_policy_and_its_predictions_agree(server: Server) -> None:
    tiers = {"high": {"cost": 5, "budget": 300}, "low": {"cost": 1, "budget": 60}}
    small = picture(140, 140)  # 25 tokens: within every budget
    with gateway(server.url, policy(**DELETION, tiers=tiers), actuator="vllm-deletion", **BOUNDS) as front:
        for tier, images, due in (
            ("high", [pages(1)[0][0]], 300), ("low", [pages(2)[1][0]], 60), ("low", [pages(3)[2][0], small], 2 * 60),
            ("high", [small], 25),
        ):  # fmt: skip
            parts = [{"type": "image_url", "image_url": {"url": url_of(encoded(image))}} for image in images]
            turn = {"role": "user", "content": [*parts, {"type": "text", "text": "What is the total?"}]}
            reply = httpx.post(
                f"{front.base_url}/chat/completions", timeout=300, trust_env=False, headers={"x-stakes-tier": tier},
                json={"model": "reader", "messages": [turn], "max_tokens": 4, "temperature": 0},
            )  # fmt: skip
            assert reply.status_code == 200, reply.text
            usage = reply.json()["usage"]["prompt_tokens_details"]["multimodal_tokens"]["image"]
            predicted = reply.headers["x-stakes-predicted-tokens"].split(",")
            assert (usage, sum(map(int, predicted))) == (due, due)
        assert front.metric("usage_checks_total", result="agreed") == 4
        assert front.metric("usage_checks_total", result="differed") == 0


def test_doctor_finds_the_plugin(server: Server) -> None:
    settings = Settings(upstream=server.url, actuator="vllm-deletion", **BOUNDS)
    found = {one.name: one for one in asyncio.run(check_upstream(settings, policy(**DELETION)))}
    assert found["upstream plugin"].state == "good"
    assert found["tokens follow"].state == "good", found["tokens follow"].found


def test_an_endpoint_answers_by_deletion(server: Server) -> None:
    local, (image, question) = models.load("embedded"), pages(35)[-1]
    request = Request(image, question, 200, "deletion")
    with models.load(server.url, actuator="vllm-deletion", max_new_tokens=local.max_new_tokens) as behind:
        (theirs,), (ours,) = behind.answer([request]), local.answer([request])
    assert (theirs.text, theirs.realised_tokens) == (ours.text, 200)


def test_the_versions_that_were_tested_hold_the_installed_vllm(server: Server) -> None:
    found = httpx.get(f"{server.url.removesuffix('/v1')}/version", trust_env=False).json()["version"]
    assert stakes.vllm.tested(found), f"vLLM {found} is not one of {stakes.vllm.TESTED}"


@pytest.mark.parametrize(("family", "as_on_a_gpu"), [("qwen3_vl", False), ("qwen3_vl", True), ("qwen2_5_vl", True)])
def test_tiny_checkpoints_delete_as_local_models_do(
    script: str, site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: str, as_on_a_gpu: bool
) -> None:
    """By both ways of vLLM's workers to positions: the CPU's own, and the GPU's, which a second plugin switches on."""
    if as_on_a_gpu:
        monkeypatch.setenv("ACME_AS_ON_A_GPU", "1")
    folder = tmp_path / "checkpoint"
    save_tiny(family, folder)
    local = models.load(str(folder), max_new_tokens=8)
    side = 28 if family == "qwen2_5_vl" else 32
    tall, wide = picture(4 * side, 12 * side, 1), picture(9 * side, 5 * side, 2)  # 48 and 45 tokens
    asked = [(image, budget, name) for image in (tall, wide) for budget, name in ((16, "top"), (20, "redundancy"))]
    ours = local.answer([
        Request(image, "What?", budget, "deletion", Top() if name == "top" else name) for image, budget, name in asked
    ])  # fmt: skip
    (whole,) = local.answer([Request(tall, "What?")])
    with vllm(script, free_port(), tmp_path / "log", str(folder), *TRUST[:2], "40", site=site) as url:
        server = Server(url)
        theirs = [
            server.read([image], "What?", 8, stakes_budget=budget, stakes_selector=name)
            for image, budget, name in asked
        ]
        theirs.append(server.read([tall], "What?", 8))
    # vLLM leaves out bytes at the end that are no character yet
    found = [(text.rstrip("\ufffd"), counted) for text, counted, _ in theirs]
    assert found == [(one.text.rstrip("\ufffd"), one.realised_tokens) for one in (*ours, whole)]
    assert len({one.text for one in ours} | {whole.text}) > 2


def test_a_family_without_positions_of_its_own_refuses_a_budget_by_name(
    script: str, site: Path, tmp_path: Path
) -> None:
    """Without weights: vLLM 0.32 expects other names of SigLIP's than transformers 5 writes."""
    options = (str(shipped_folder("embedded-llava")), *TRUST[:1], "--load-format", "dummy")
    with vllm(script, free_port(), tmp_path / "log", *options, site=site) as url:
        reply = Server(url).ask([picture(56, 56)], "What?", stakes_budget=5)
        assert reply.status_code == 400
        assert "llava_onevision takes no stakes_budget" in reply.json()["error"]["message"]
        settings = Settings(upstream=url, actuator="vllm-deletion")
        found = {one.name: one for one in asyncio.run(check_upstream(settings, policy(**DELETION)))}
        assert found["upstream plugin"].state == "bad"
