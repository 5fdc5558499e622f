"""Every family that the plugin deletes in, as a tiny random checkpoint in a real vLLM (``make test-engine``).

The server reads at most 40 tokens in one step, so that images are cut in chunks, and has memory for 576, so that
requests which are answered together are stopped and computed again.
"""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image
from tests.gateway.engines import free_port, vllm
from tests.models.tiny import picture
from tests.vllm.checkpoints import save_tiny
from tests.vllm.servers import TRUST, Read, Server, Top, read

from stakes import models
from stakes.models import Request

SMALL = "--max-num-batched-tokens 40 --max-model-len 512 --block-size 32 --num-gpu-blocks-override 18".split()
# 48 and 45 tokens in a Qwen, 76 and 94 in a LLaVA-OneVision, 16 and 12 in an InternVL
SIZES = {
    "qwen2_5_vl": ((112, 336), (252, 140)),
    "llava_onevision": ((56, 168), (140, 80)),
    "internvl": ((56, 168), (140, 80)),
}
SIZES |= dict.fromkeys(("qwen3_vl", "qwen3_vl_moe"), ((128, 384), (288, 160)))
MARKERS = {"internvl": 2}  # vLLM counts the start and the end of an image among its tokens
HOW = ((1, "top"), (6, "top"), (9, "redundancy"), (10, "divprune"))
NUMBERED = ("llava_onevision", "internvl")


@pytest.mark.parametrize("as_on_a_gpu", [False, True], ids=["cpu", "as-on-a-gpu"])
@pytest.mark.parametrize("family", ["qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "llava_onevision", "internvl"])
def test_a_tiny_checkpoint_deletes_as_the_local_model_does(
    script: str, site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: str, as_on_a_gpu: bool
) -> None:
    """By both ways of vLLM's workers to positions: the CPU's own, and the GPU's, which a second plugin switches on."""
    if as_on_a_gpu:
        monkeypatch.setenv("ACME_AS_ON_A_GPU", "1")
    folder = tmp_path / "checkpoint"
    save_tiny(family, folder)
    tall, wide = (picture(width, height, seed) for seed, (width, height) in enumerate(SIZES[family], 1))
    options = (str(folder), TRUST, *SMALL)
    stock = None
    if family in NUMBERED and not as_on_a_gpu:
        with vllm(script, free_port(), tmp_path / "stock.log", *options) as url:
            stock = plain(Server(url), tall, wide)
    with vllm(script, free_port(), tmp_path / "log", *options, site=site) as url:
        check_answers(family, folder, Server(url), tall, wide)
        if stock is not None:
            assert plain(Server(url), tall, wide) == stock  # log-probabilities included, bit for bit
        check_recomputed(Server(url), tall, wide)


def check_answers(family: str, folder: Path, server: Server, tall: Image.Image, wide: Image.Image) -> None:
    """Tokens, text and confidence are those of local deletion."""
    named: dict[str, Any] = {"family": "tile=28,tiles=4,per_tile=4"} if family == "internvl" else {}
    local = models.load(str(folder), max_new_tokens=8, **named)
    whole = local.answer([Request(tall, "What?"), Request(wide, "What?")])
    asked = [(image, *how) for image in (tall, wide) for how in HOW]
    asked += [(tall, whole[0].native_tokens, "top"), (wide, whole[1].native_tokens - 1, "saliency")]
    ours = local.answer([
        Request(image, "What?", budget, "deletion", Top() if name == "top" else name) for image, budget, name in asked
    ])  # fmt: skip
    theirs = [
        server.read([image], "What?", 8, stakes_budget=budget, stakes_selector=name) for image, budget, name in asked
    ]
    theirs += [server.read([tall], "What?", 8), server.read([wide], "What?", 8)]
    for mine, other in zip((*ours, *whole), theirs, strict=True):
        # vLLM leaves out bytes at the end that are no character yet
        assert other.text.rstrip("\ufffd") == mine.text.strip().rstrip("\ufffd")
        assert other.images == mine.realised_tokens + MARKERS.get(family, 0)
        assert other.confidence == pytest.approx(mine.confidence, abs=1e-3)
    assert len({other.prompt - other.images for other in theirs}) == 1
    assert len({one.text for one in (*ours, *whole)}) > 4
    refused = server.ask([tall], "What?", 8, stakes_budget=whole[0].native_tokens + 1)
    assert refused.status_code == 400
    assert f"exceeds the {whole[0].native_tokens} tokens of image 1" in refused.json()["error"]["message"]


def check_recomputed(server: Server, tall: Image.Image, wide: Image.Image) -> None:
    """Budgets, whole images and text together, beyond the server's memory, beside a client that leaves."""
    bodies = [
        server.body([(tall, wide)[at % 2]], f"What {at}?", 300, **({"stakes_budget": 2 + at} if at % 3 else {}))
        for at in range(7)
    ]
    bodies.append(server.body([tall, wide], "Both?", 200, stakes_budget=[7, None]))
    bodies.append(server.body([], "What?", 300))
    bodies = [{**body, "ignore_eos": True} for body in bodies]
    alone = [read(server.post(body)) for body in bodies]
    before = server.metric("num_preemptions_total")
    with ThreadPoolExecutor(len(bodies) + 1) as pool:
        leaving = pool.submit(leave, server, {**bodies[1], "stream": True})
        together = list(pool.map(lambda body: read(server.post(body)), bodies))
        leaving.result()
    assert server.metric("num_preemptions_total") > before
    for one, other in zip(alone, together, strict=True):
        assert (one.text, one.images, one.prompt) == (other.text, other.images, other.prompt)
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-3)


def leave(server: Server, body: dict[str, Any]) -> None:
    """Read the beginning of an answer and close the connection."""
    with httpx.stream("POST", f"{server.url}/chat/completions", json=body, timeout=300, trust_env=False) as reply:
        next(reply.iter_lines())


def plain(server: Server, tall: Image.Image, wide: Image.Image) -> list[Read]:
    """Requests without a budget, none from a prefix cache."""
    bodies = [server.body(images, "What?", 24) for images in ([tall], [wide], [wide, tall], [])]
    return [read(server.post({**body, "cache_salt": f"plain {at}"})) for at, body in enumerate(bodies)]
