"""The processor of any image-text-to-text checkpoint as it is, and the family that its numbers describe.

Pixels and the text that stands for an image come from the processor, so the prompt is the one that a user of
transformers gets. Without torchvision, transformers does not build a processor that has a part for videos (InternVL,
SmolVLM, GLM-4V), nor Pixtral's: for ``WholeProcessor`` the first are loaded without that part, the second is written
out here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from PIL import Image
from torch import Tensor
from transformers.processing_utils import ProcessorMixin

from stakes.errors import BadInput
from stakes.models.base import SUFFIX
from stakes.vision.geometry import family as named_family
from stakes.vision.geometry.checkpoint import description

TEXT_INPUTS = {"input_ids", "attention_mask", "token_type_ids", "mm_token_type_ids", "text_replacement_offsets"}
WITHOUT_TORCHVISION = ("torchvision", "video processor")  # words of transformers' error where it is missing
PROBED = ((64, 64), (640, 480), (300, 900))


@dataclass(frozen=True)
class StockProcessor:
    """A processor of transformers: ``whole`` turns a conversation into a model's inputs."""

    whole: Any

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

    def inputs(self, images: Sequence[Any], question: str, setting: Mapping[str, Any] | None = None) -> Any:
        """The inputs of one question about PIL images, as a user of transformers would make them.

        ``setting``: parameters of the image processor in place of its own.
        """
        content = [
            *({"type": "image", "image": image} for image in images),
            {"type": "text", "text": question + SUFFIX},
        ]
        more = {"processor_kwargs": {"images_kwargs": dict(setting)}} if setting else {}
        return self.whole.apply_chat_template(
            [{"role": "user", "content": content}],
            add_generation_prompt=True,
            tokenize=True,
            return_dict=True,
            return_tensors="pt",
            **more,
        )

    def image_ids(self, config: Any) -> list[int]:
        """The ids that stand for parts of an image in a prompt of this model."""
        named = ((config, "image_token_id"), (config, "image_token_index"), (self.whole, "image_token_id"))
        ids = [one for holder, name in named if isinstance(one := getattr(holder, name, None), int)][:1]
        if not ids:
            raise BadInput(
                f"a {config.model_type} does not say which token of its prompt stands for an image, so its visual "
                "tokens cannot be counted"
            )
        return ids


@dataclass(frozen=True)
class WholeProcessor(StockProcessor):
    """The same with the id of the image token: an image is read once, and its text stands in any prompt."""

    image_token_id: int

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

    def ids(self, question: str, *image_texts: str) -> Tensor:
        """[T] ids of the prompt with the text of each image, as the processor's own ``apply_chat_template`` has them.

        Images come first, the question after them.
        """
        text = self._text(question, len(image_texts))
        words = text.split(self.whole.image_token)
        if len(words) != len(image_texts) + 1:
            images = "one image" if len(image_texts) == 1 else f"{len(image_texts)} images"
            raise BadInput(f"a prompt has {images}, but {question!r} has {len(words) - 1} placeholders")
        ids = self.tokenizer(
            words[0] + "".join(chain.from_iterable(zip(image_texts, words[1:], strict=True))),
            add_special_tokens=self._adds_start(text),
        )["input_ids"]
        return torch.tensor(ids)

    def inputs(self, images: Sequence[Any], question: str, setting: Mapping[str, Any] | None = None) -> Any:
        """The same as that of ``StockProcessor``, without a part for videos."""
        text = self._text(question, len(images))
        return self.whole(
            images=[list(images)],
            text=[text],
            return_tensors="pt",
            text_kwargs={"add_special_tokens": self._adds_start(text)},
            images_kwargs=dict(setting or {}),
        )

    def _text(self, question: str, images: int) -> str:
        """The prompt with one placeholder for each image; the processor's own method may ask for its video part."""
        content = [{"type": "image"}] * images + [{"type": "text", "text": question + SUFFIX}]
        chat = [{"role": "user", "content": content}]
        return str(
            self.tokenizer.apply_chat_template(
                chat, chat_template=self.template, add_generation_prompt=True, tokenize=False
            )
        )

    def _adds_start(self, text: str) -> bool:
        """Whether the tokenizer adds its special tokens: a template may have written them."""
        start = self.tokenizer.bos_token
        return start is None or not text.startswith(start)

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


def load_stock_processor(source: str, config: Any) -> StockProcessor:
    """The processor of a checkpoint, its images by PIL."""
    from transformers import AutoProcessor

    try:
        whole: Any = AutoProcessor.from_pretrained(source, backend="pil")  # type: ignore[no-untyped-call]
    except (ImportError, OSError, ValueError) as error:
        if not any(word in str(error).lower() for word in WITHOUT_TORCHVISION):
            raise
        raise BadInput(
            f"{source!r} is a {config.model_type}, whose processor in transformers needs torchvision; install the "
            "torchvision of this torch"
        ) from error
    if not isinstance(getattr(whole, "chat_template", None), str):
        raise BadInput(f"{source!r} has no chat template, so no prompt can be built for it; add a chat_template.jinja")
    if not hasattr(whole, "image_processor"):
        raise BadInput(f"{source!r} is a {config.model_type}, whose processor takes no images")
    return StockProcessor(whole)


def load_whole_processor(source: str, config: Any) -> WholeProcessor:
    """The processor of a checkpoint, its images by PIL; without its part for videos where torchvision is missing."""
    from transformers import AutoProcessor

    try:
        try:
            whole: Any = AutoProcessor.from_pretrained(source, backend="pil")  # type: ignore[no-untyped-call]
        except (ImportError, OSError, ValueError) as error:
            if not any(word in str(error).lower() for word in WITHOUT_TORCHVISION):
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


def checkpoint_family(processor: StockProcessor, config: Any, own: str | None) -> str:
    """What counts a checkpoint's tokens: its image processor's numbers, else its type's family ``own``.

    Where neither is known and blank images of three sizes take the same, every image does: ``per_image=…``.
    """
    numbers = {name: getattr(processor.whole, name, None) for name in ("image_seq_len", "spatial_merge_size")}
    kind = {"image_processor_type": type(processor.images).__name__}
    found = description(processor.images.to_dict() | kind, numbers, config.to_dict())
    if found is not None and (own is None or named_family(own).formula != named_family(found).formula):
        return named_family(found).name
    if own is not None:
        return own
    ids = torch.tensor(processor.image_ids(config))
    prompts = [processor.inputs([Image.new("RGB", size)], "What?")["input_ids"][0] for size in PROBED]
    counts = [int(torch.isin(prompt, ids).sum()) for prompt in prompts]
    if len(set(counts)) == 1 and counts[0] > 0:
        return f"per_image={counts[0]}"
    raise BadInput(
        f"a {config.model_type} does not say how its tokens are counted: images of "
        f"{', '.join(f'{width}x{height}' for width, height in PROBED)} take {', '.join(map(str, counts))}; give the "
        "family that counts them with --family (`stakes families` lists them)"
    )
