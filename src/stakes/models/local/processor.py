"""Turn an image and a question into a model's inputs, with or without torchvision.

Transformers' own processors of the Qwen-VL families need torchvision for video, which this project never uses. So the
image processor is loaded in its PIL form, which gives the same pixels on every machine, and the image's placeholder is
repeated in the token ids here, once for each token of the encoder.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from stakes.errors import BadInput
from stakes.models.base import SUFFIX
from stakes.models.fast.patches import PatchTable, learn_patch_table


@dataclass(frozen=True)
class Processor:
    """Image processor, tokenizer and chat template of one checkpoint."""

    images: Any
    tokenizer: Any
    template: str
    image_token_id: int

    @cached_property
    def patch_table(self) -> PatchTable | None:
        """The image processor's arithmetic as a table, where it is one."""
        return learn_patch_table(self.images)

    def ids(self, question: str, *tokens: int) -> Tensor:
        """[T] ids of the prompt with so many placeholders for each image; a system prompt only if the template has one.

        Images come first, the question after them.
        """
        ids = torch.tensor(self.prompt_ids(question, len(tokens)))
        counts = torch.ones_like(ids)
        counts[ids == self.image_token_id] = torch.tensor(tokens)
        return ids.repeat_interleave(counts)

    @cached_property
    def prompt_ids(self) -> Callable[[str, int], tuple[int, ...]]:
        """The ids of a question about so many images, with one placeholder each; the last ones are remembered."""
        return lru_cache(1024)(self._prompt_ids)

    def _prompt_ids(self, question: str, images: int) -> tuple[int, ...]:
        content = [{"type": "image"}] * images + [{"type": "text", "text": question + SUFFIX}]
        text = self.tokenizer.apply_chat_template(
            [{"role": "user", "content": content}],
            chat_template=self.template,
            add_generation_prompt=True,
            tokenize=False,
        )
        ids = self.tokenizer(text)["input_ids"]
        found = ids.count(self.image_token_id)
        if found != images:
            have = "one image" if images == 1 else f"{images} images"
            raise BadInput(f"a prompt has {have}, but {question!r} has {found} placeholders")
        return tuple(ids)

    def question_ids(self, question: str) -> Tensor:
        """[L] ids of the question alone."""
        return torch.tensor(self.tokenizer(question, add_special_tokens=False)["input_ids"], dtype=torch.long)


def load_processor(source: str, image_token_id: int) -> Processor:
    """The processor of a checkpoint, from a local folder or a hub name."""
    from transformers import AutoImageProcessor, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(source)
    template = chat_template(source) or tokenizer.chat_template
    if not isinstance(template, str):
        raise BadInput(f"{source} has no chat template, so no prompt can be built for it")
    images = AutoImageProcessor.from_pretrained(source, backend="pil")  # type: ignore[no-untyped-call]
    return Processor(images, tokenizer, template, image_token_id)


def chat_template(source: str) -> str | None:
    """The processor's chat template, which handles images; the tokenizer's may be for text alone (LLaVA-OneVision)."""
    from transformers.utils.hub import cached_file

    for name in ("chat_template.jinja", "chat_template.json", "processor_config.json"):
        path = cached_file(
            source,
            name,
            _raise_exceptions_for_missing_entries=False,
            _raise_exceptions_for_connection_errors=False,
        )
        if path is None:
            continue
        text = Path(path).read_text(encoding="utf-8")
        template = text if name.endswith(".jinja") else json.loads(text).get("chat_template")
        if isinstance(template, str):
            return template
    return None
