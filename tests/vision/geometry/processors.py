"""Real Hugging Face processors built from their classes and a tokenizer of a few words."""

import importlib
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from PIL import Image

from stakes.errors import BadInput
from stakes.vision.geometry import count_tokens

CORNERS = [(1, 1), (6000, 200), (200, 6000), (1, 5000), (5000, 1), (3, 1), (1, 3), (1654, 2339), (28, 28), (384, 384)]


def sizes(count: int, seed: int) -> list[tuple[int, int]]:
    """Half of the sizes spread evenly from 1x1 to 6000x6000, half by orders of magnitude."""
    generator = random.Random(seed)
    even = [(generator.randint(1, 6000), generator.randint(1, 6000)) for _ in range(count // 2)]
    spread = [(round(6000 ** generator.random()), round(6000 ** generator.random())) for _ in range(count - len(even))]
    return CORNERS + even + spread


def model_module(name: str) -> Any:
    return importlib.import_module(f"transformers.models.{name}")


def small_tokenizer(*specials: str, **named: str) -> Any:
    """Every special word is one token, and so are two newlines, as in the published tokenizers."""
    tokenizers, transformers = importlib.import_module("tokenizers"), importlib.import_module("transformers")
    words = tokenizers.models.WordLevel({"<unk>": 0, "\n": 1, "\n\n": 2}, unk_token="<unk>")
    tokenizer = tokenizers.Tokenizer(words)
    tokenizer.add_special_tokens([*named.values(), *specials])
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", pad_token="<unk>", extra_special_tokens=named
    )


def without_parts(processor: Any) -> Any:
    """The same class without a video processor or a feature extractor (they need torchvision)."""

    def check(self: Any, name: str, part: Any) -> Any:
        return None if part is None else processor.check_argument_for_proper_class(self, name, part)

    return type(processor.__name__, (processor,), {"check_argument_for_proper_class": check})


@dataclass
class Built:
    """A real processor, the word that stands for an image in its prompts, and what it adds that is no visual token."""

    processor: Any
    image: str
    around: int = 0

    def really(self, width: int, height: int) -> int:
        """Run the whole processor on an image and count the tokens of its text."""
        image = Image.new("RGB", (width, height))
        out = self.processor(text=[self.image], images=[image], do_rescale=False, do_normalize=False, resample=0)
        return len(out["input_ids"][0]) - self.around

    def counted(self, width: int, height: int, **kwargs: int) -> int:
        """Ask the processor's own counter."""
        data = self.processor._get_num_multimodal_tokens(image_sizes=[(height, width)], **kwargs)
        return int(data["num_image_tokens"][0])


def or_refusal(count: Callable[[int, int], int], width: int, height: int) -> int | None:
    """None stands for every error: the processors raise ValueError, TypeError and others."""
    try:
        return count(width, height)
    except Exception:
        return None


def mine(name: str, width: int, height: int) -> int | None:
    try:
        return count_tokens(name, width, height)
    except BadInput:
        return None
