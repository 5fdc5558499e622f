"""A real vLLM with the plugin, what is asked of it, and a selector that another package brings."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import httpx
import torch
from PIL import Image
from tests.gateway.engines import with_plugin
from tests.gateway.gateways import encoded, url_of
from torch import Tensor

from stakes.data import synthetic
from stakes.models.base import SUFFIX, confidence_of
from stakes.vision.selectors.base import Scene, Selector

TRUST = "--trust-request-mm-kwargs"

# A worker on a GPU reads vLLM's switch after it has loaded the model; the one on a CPU leaves it off.
SWITCH = """
def as_on_a_gpu():
    import os
    if os.environ.get("ACME_AS_ON_A_GPU"):
        from vllm.v1.worker.cpu_model_runner import CPUModelRunner
        from vllm.model_executor.models.interfaces import supports_multimodal_pruning
        load = CPUModelRunner.load_model
        def load_model(self, *given, **options):
            load(self, *given, **options)
            assert supports_multimodal_pruning(self.get_model())
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


@dataclass(frozen=True)
class Read:
    """An answer of vLLM. ``images``: tokens of all images by its count, ``prompt``: of the whole prompt."""

    text: str
    images: int
    prompt: int
    logprobs: tuple[float, ...]

    @property
    def confidence(self) -> float | None:
        return confidence_of(self.logprobs)


@dataclass(frozen=True)
class Server:
    """A vLLM with the plugin."""

    url: str

    def body(self, images: list[Image.Image], question: str, length: int = 24, **own: Any) -> dict[str, Any]:
        """A chat request; ``own``: its ``mm_processor_kwargs``."""
        parts: list[Any] = [{"type": "image_url", "image_url": {"url": url_of(encoded(image))}} for image in images]
        turn = {"role": "user", "content": [*parts, {"type": "text", "text": question + SUFFIX}]}
        body = {"model": "reader", "messages": [turn], "temperature": 0, "max_tokens": length, "logprobs": True}
        return body | ({"mm_processor_kwargs": own} if own else {})

    def post(self, body: Mapping[str, Any]) -> httpx.Response:
        return httpx.post(f"{self.url}/chat/completions", json=dict(body), timeout=300, trust_env=False)

    def ask(self, images: list[Image.Image], question: str, length: int = 24, **own: Any) -> httpx.Response:
        return self.post(self.body(images, question, length, **own))

    def read(self, images: list[Image.Image], question: str, length: int = 24, **own: Any) -> Read:
        return read(self.ask(images, question, length, **own))

    def metric(self, name: str) -> float:
        """A counter of vLLM's, over all labels."""
        text = httpx.get(f"{self.url.removesuffix('/v1')}/metrics", timeout=60, trust_env=False).text
        return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(f"vllm:{name}"))


def read(reply: httpx.Response, choice: int = 0) -> Read:
    assert reply.status_code == 200, reply.text
    record = reply.json()
    usage, found = record["usage"], record["choices"][choice]
    counted = (usage["prompt_tokens_details"].get("multimodal_tokens") or {}).get("image", 0)
    logprobs = tuple(one["logprob"] for one in found["logprobs"]["content"])
    return Read(found["message"]["content"].strip(), counted, usage["prompt_tokens"], logprobs)


def with_plugin_and_selector(folder: Path) -> Path:
    """A folder that brings vLLM the plugin, and a package of another author's: a selector, and the switch of a GPU."""
    with_plugin(folder)
    info = next(folder.glob("stakes-*.dist-info")) / "entry_points.txt"
    groups = info.read_text().replace("[vllm.general_plugins]", "[vllm.general_plugins]\nacme = acme_top:as_on_a_gpu")
    info.write_text(groups + "[stakes.selectors]\ntop = acme_top:Top\n")
    source = Path(__file__).read_text("utf-8")
    start = source.index("@dataclass(frozen=True)\nclass Top")
    imports = "import torch\nfrom dataclasses import dataclass\nfrom typing import ClassVar\nfrom torch import Tensor\n"
    imports += "from stakes.vision.selectors.base import Scene, Selector\n\n"
    own = source[start : source.index("@dataclass(frozen=True)\nclass Read")]
    (folder / "acme_top.py").write_text(imports + own + SWITCH)
    return folder


def pages(number: int, family: str = "forms") -> list[tuple[Image.Image, str]]:
    return [(page.image, one.text) for page, one in synthetic.samples(family, "test", number, per_page=1)]
