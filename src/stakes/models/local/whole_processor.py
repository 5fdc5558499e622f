"""A family's own processor of transformers, with or without torchvision.

Pixels and the text that stands for an image come from the processor, so the prompt is the one that a user of
transformers gets. Without torchvision, transformers does not build a processor that has a part for videos (InternVL,
SmolVLM, GLM-4V), nor Pixtral's: the first are loaded without that part, the second is written out here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.processing_utils import ProcessorMixin

from stakes.errors import BadInput
from stakes.models.base import SUFFIX

TEXT_INPUTS = {"input_ids", "attention_mask", "token_type_ids", "mm_token_type_ids", "text_replacement_offsets"}


@dataclass(frozen=True)
class WholeProcessor:
    """A processor of transformers, and the id of the image token."""

    whole: Any
    image_token_id: int

    @property
    def images(self) -> Any:
        """Its image processor."""
        return self.whole.image_processor

    @property
    def tokenizer(self) -> Any:
        """Its tokenizer."""
        return self.whole.tokenizer

    @property
    def template(self) -> str:
        """Its chat template."""
        return str(self.whole.chat_template)

    def read(self, image: Any) -> tuple[Mapping[str, Any], str]:
        """What the encoder takes of a PIL image, and the text that stands for the image in a prompt."""
        inputs = self.whole(
            images=[image],
            text=[self.whole.image_token],
            return_tensors="pt",
            return_mm_token_type_ids=False,
            return_text_replacement_offsets=True,
        )
        ((replaced,),) = inputs["text_replacement_offsets"]
        return {name: values for name, values in inputs.items() if name not in TEXT_INPUTS}, replaced["replacement"]

    def ids(self, question: str, image_text: str) -> Tensor:
        """[T] ids of the prompt with the text of one image, as the processor's own ``apply_chat_template`` has them."""
        content = [{"type": "image"}, {"type": "text", "text": question + SUFFIX}]
        text = self.tokenizer.apply_chat_template(  # the processor's own may ask for its part for videos
            [{"role": "user", "content": content}],
            chat_template=self.template,
            add_generation_prompt=True,
            tokenize=False,
        )
        placeholder, start = self.whole.image_token, self.tokenizer.bos_token
        if text.count(placeholder) != 1:
            raise BadInput(f"a prompt has one image, but {question!r} has {text.count(placeholder)} placeholders")
        ids = self.tokenizer(
            text.replace(placeholder, image_text),
            add_special_tokens=start is None or not text.startswith(start),  # a template may have written them
        )["input_ids"]
        return torch.tensor(ids)

    def question_ids(self, question: str) -> Tensor:
        """[L] ids of the question alone."""
        return torch.tensor(self.tokenizer(question, add_special_tokens=False)["input_ids"], dtype=torch.long)


class PixtralImages(ProcessorMixin):
    """Pixtral's processor: an image is rows of patches, a break after each and an end after the last."""

    image_break_token, image_end_token = "[IMG_BREAK]", "[IMG_END]"

    def __init__(
        self,
        image_processor: Any = None,
        tokenizer: Any = None,
        patch_size: int = 16,
        spatial_merge_size: int = 1,
        chat_template: str | None = None,
        image_token: str = "[IMG]",
    ):
        super().__init__(image_processor, tokenizer, chat_template=chat_template)  # type: ignore[no-untyped-call]
        self.patch_size, self.spatial_merge_size = patch_size, spatial_merge_size
        self.image_token, self.image_token_id = image_token, tokenizer.convert_tokens_to_ids(image_token)

    def _process_images(self, images: Any, **kwargs: Any) -> Any:
        side = self.patch_size * self.spatial_merge_size
        return super()._process_images(images, **{**kwargs, "patch_size": side})

    def replace_image_token(self, image_inputs: Any, image_idx: int, **_: Any) -> str:
        """The text of one image."""
        side = self.patch_size * self.spatial_merge_size
        rows, columns = (int(length) // side for length in image_inputs["image_sizes"][image_idx])
        return self.image_break_token.join([self.image_token * columns] * rows) + self.image_end_token


def load_whole_processor(source: str, config: Any) -> WholeProcessor:
    """The processor of a checkpoint, its images by PIL; without its part for videos where torchvision is missing."""
    from transformers import AutoProcessor

    try:
        try:
            whole: Any = AutoProcessor.from_pretrained(source, backend="pil")  # type: ignore[no-untyped-call]
        except (ImportError, OSError, ValueError) as error:
            if not any(word in str(error).lower() for word in ("torchvision", "video processor")):
                raise
            kind = PixtralImages if config.vision_config.model_type == "pixtral" else _without_videos(config)
            whole = kind.from_pretrained(source, backend="pil")
    except ImportError as error:
        raise BadInput(f"{source!r} is a {config.model_type}, whose processor cannot be built: {error}") from error
    if not hasattr(whole, "image_processor"):
        raise BadInput(f"{source!r} is a {config.model_type}, whose folder names no processor for images")
    if not isinstance(getattr(whole, "chat_template", None), str):
        raise BadInput(f"{source!r} has no chat template, so no prompt can be built for it; add a chat_template.jinja")
    return WholeProcessor(whole, config.image_token_id)


def _without_videos(config: Any) -> Any:
    """The processor class of a configuration, as a subclass that does without its last part, the one for videos."""
    from transformers.models.auto.processing_auto import PROCESSOR_MAPPING

    base: Any = PROCESSOR_MAPPING[type(config)]

    class ImagesOnly(base):  # type: ignore[misc]
        @classmethod
        def get_attributes(cls) -> list[str]:
            return [name for name in base.get_attributes() if name != "video_processor"]

        @classmethod
        def _get_arguments_from_pretrained(cls, *args: Any, **kwargs: Any) -> list[Any]:
            return [*super()._get_arguments_from_pretrained(*args, **kwargs), None]

    return ImagesOnly
