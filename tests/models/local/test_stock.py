"""Types with the geometry of published checkpoints, by stock ``generate`` and resolution alone or by ``SplicedVLM``."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.models.tiny import QWEN, picture, text_config, tf, token_id, tokenizer

from stakes import models
from stakes.errors import BadInput, LedgerBreach
from stakes.gateway.local_server.app import load_served
from stakes.models import Request
from stakes.models.identity import identity, menu_of, native_tokens
from stakes.models.local.spliced import SplicedVLM
from stakes.models.local.stock import StockVLM
from stakes.vision.geometry import count_tokens, families
from stakes.vision.image.resize import fitted_size

# type -> the family of its tokens, None where the type says it
TYPES = {"paddleocr_vl": None, "llava": "llava-1.5", "llava_next": None, "gemma3": None, "idefics3": None}
TEMPLATE = QWEN.replace("<|vision_start|>", "").replace("<|vision_end|>", "")
IMAGE = "<|image_pad|>"
CLIP: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}


def _tokenizer() -> Any:
    """The byte tokenizer, with the names that processors look for."""
    names = {"image_token": IMAGE, "boi_token": "<|vision_start|>", "eoi_token": "<|vision_end|>"}
    return tf.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer().backend_tokenizer,
        eos_token="<|im_end|>",
        pad_token="<pad>",
        padding_side="left",
        extra_special_tokens=names,
    )


def _parts(kind: str) -> tuple[Any, Any]:
    """A configuration and a processor with the geometry of the published ones."""
    words, text, at = _tokenizer(), text_config(), {"image_token_id": token_id(IMAGE)}
    if kind == "paddleocr_vl":
        images = tf.PaddleOCRVLImageProcessorPil()
        text |= {"head_dim": 8, "rope_parameters": {"rope_type": "default", "mrope_section": [1, 1, 2]}}
        vision = CLIP | {"patch_size": 14, "spatial_merge_size": 2}
        ids = at | {"vision_start_token_id": token_id("<|vision_start|>")}
        made = tf.PaddleOCRVLConfig(text_config=text, vision_config=vision, **ids)
        return made, tf.PaddleOCRVLProcessor(images, words, chat_template=TEMPLATE)
    if kind in ("llava", "llava_next"):
        size = {"size": {"shortest_edge": 336}, "crop_size": {"height": 336, "width": 336}}
        vision = CLIP | {"model_type": "clip_vision_model", "image_size": 336, "patch_size": 14}
        both = {"text_config": {"model_type": "llama", **text}, "vision_config": vision, **at}
        more = {"patch_size": 14, "vision_feature_select_strategy": "default", "num_additional_image_tokens": 1}
        more |= {"tokenizer": words, "chat_template": TEMPLATE, "image_token": IMAGE}
        if kind == "llava":
            return tf.LlavaConfig(**both), tf.LlavaProcessor(tf.CLIPImageProcessorPil(**size), **more)
        return tf.LlavaNextConfig(**both), tf.LlavaNextProcessor(tf.LlavaNextImageProcessorPil(**size), **more)
    if kind == "gemma3":
        images = tf.Gemma3ImageProcessorPil(size={"height": 224, "width": 224})
        vision = CLIP | {"image_size": 224, "patch_size": 14, "vision_use_head": False}
        text |= {"head_dim": 8, "sliding_window": 64}
        ids = at | {"boi_token_index": token_id("<|vision_start|>"), "eoi_token_index": token_id("<|vision_end|>")}
        made = tf.Gemma3Config(text_config=text, vision_config=vision, mm_tokens_per_image=256, **ids)
        return made, tf.Gemma3Processor(images, words, TEMPLATE.replace(IMAGE, "<|vision_start|>"))
    images = tf.Idefics3ImageProcessorPil(size={"longest_edge": 1456}, max_image_size={"longest_edge": 364})
    marks = ["<image>", "<fake_token_around_image>", "<end_of_utterance>"]
    words.add_special_tokens({"additional_special_tokens": marks})
    vision = CLIP | {"image_size": 364, "patch_size": 14}
    text |= {"vocab_size": len(words), "model_type": "llama"}
    made = tf.Idefics3Config(
        text_config=text, vision_config=vision, scale_factor=2, image_token_id=words.convert_tokens_to_ids("<image>")
    )
    return made, tf.Idefics3Processor(images, words, 169, TEMPLATE.replace(IMAGE, "<image>"))


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A random checkpoint of each type."""
    made = {}
    for kind in TYPES:
        torch.manual_seed(1)
        folder = made[kind] = tmp_path_factory.mktemp(kind)
        config, processor = _parts(kind)
        model = tf.AutoModelForImageTextToText.from_config(config)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if parameter.dim() > 1 and "norm" not in name:
                    torch.nn.init.normal_(parameter, std=0.25)
        model.generation_config.eos_token_id = token_id("<|im_end|>")
        model.generation_config.pad_token_id = token_id("<pad>")
        model.save_pretrained(folder)
        processor.save_pretrained(folder)
    return made


def _load(folders: dict[str, Path], kind: str) -> StockVLM | SplicedVLM:
    model = models.load(str(folders[kind]), device="cpu", max_new_tokens=6, family=TYPES[kind])
    assert isinstance(model, SplicedVLM if kind in models.SPLICED else StockVLM)
    return model


@pytest.mark.parametrize("kind", TYPES)
def test_an_answer_is_that_of_stock_generate_and_its_tokens_are_the_familys(
    kind: str, folders: dict[str, Path]
) -> None:
    model = _load(folders, kind)
    image = picture(400, 100)
    whole = tf.AutoProcessor.from_pretrained(folders[kind])
    content = [{"type": "image", "image": image}, {"type": "text", "text": "What is it? Answer briefly."}]
    inputs = whole.apply_chat_template(
        [{"role": "user", "content": content}],
        add_generation_prompt=True,
        tokenize=True,
        return_dict=True,
        return_tensors="pt",
    )
    out = model.model.generate(
        **inputs, max_new_tokens=6, do_sample=False, output_logits=True, return_dict_in_generate=True
    )
    stock = out.sequences[0, inputs["input_ids"].shape[1] :]
    logprobs = [float(step[0].log_softmax(-1)[token]) for step, token in zip(out.logits, stock, strict=True)]
    (answer,) = model.answer([Request(image, "What is it?")])
    assert answer.text == whole.tokenizer.decode(stock, skip_special_tokens=True).strip()
    assert answer.realised_tokens == answer.native_tokens == count_tokens(model.family, 400, 100)
    entries = menu_of(model, "resolution")
    most = answer.realised_tokens if entries is None else entries[-1]
    assert native_tokens(model, 400, 100, "resolution") == most
    assert answer.confidence == pytest.approx(math.exp(sum(logprobs) / len(logprobs)), abs=1e-5)
    assert identity(model)["family"] == model.family
    other = model.answer([Request(picture(400, 100, seed=3), "What is it?")])[0]
    assert other.confidence != answer.confidence, "the image is read"


@pytest.mark.parametrize(("kind", "low", "high"), [("paddleocr_vl", 240, 350), ("llava_next", 1200, 2000)])
def test_a_budget_resizes_the_image(kind: str, low: int, high: int, folders: dict[str, Path]) -> None:
    model = _load(folders, kind)
    answers = model.answer([Request(picture(620, 700), "What is it?", budget) for budget in (low, high, None)])
    native = count_tokens(model.family, 620, 700)
    sizes = [fitted_size(620, 700, budget, model.family).tokens for budget in (low, high)]
    assert [answer.realised_tokens for answer in answers] == [*sizes, native]
    assert [answer.native_tokens for answer in answers] == [native] * 3
    assert 0 < sizes[0] <= low < sizes[1] <= high < native


@pytest.mark.parametrize("mechanism", ["deletion", "zero-mask"])
def test_deletion_is_refused_with_the_reason(mechanism: Any, folders: dict[str, Path]) -> None:
    with pytest.raises(BadInput, match=f"a paddleocr_vl is run by stock generate, .*, so {mechanism} is not"):
        _load(folders, "paddleocr_vl").answer([Request(picture(64, 64), "What?", 5, mechanism)])


def test_a_family_that_resizing_does_not_control_refuses_a_budget(folders: dict[str, Path]) -> None:
    with pytest.raises(BadInput, match="gemma3"):
        _load(folders, "gemma3").answer([Request(picture(64, 64), "What?", 100)])


def test_a_family_that_counts_otherwise_is_an_error_with_both_numbers(folders: dict[str, Path]) -> None:
    wrong = models.load(str(folders["paddleocr_vl"]), device="cpu", family="qwen3-vl")
    size = fitted_size(640, 640, 100, "qwen3-vl")
    with pytest.raises(LedgerBreach, match=f"takes {size.tokens} tokens in qwen3-vl, and .* processor wrote [1-9]"):
        wrong.answer([Request(picture(640, 640), "What?", 100)])
    wrong = models.load(str(folders["llava"]), device="cpu", family="pixtral")
    with pytest.raises(LedgerBreach, match="processor wrote 576"):
        wrong.answer([Request(picture(64, 64), "What?")])


def test_a_type_without_a_family_of_its_own_is_measured_when_it_loads(folders: dict[str, Path]) -> None:
    assert models.load(str(folders["llava"]), device="cpu").family == "per_image=576"


def test_a_type_whose_tokens_cannot_be_counted_is_refused_by_name(tmp_path: Path) -> None:
    tf.MllamaConfig().save_pretrained(tmp_path)
    with pytest.raises(BadInput, match="is a mllama, whose visual tokens cannot be counted: .* cross-attention"):
        models.load(str(tmp_path), device="cpu")


def test_every_refused_type_is_one_that_transformers_loads() -> None:
    kinds = tf.models.auto.modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES
    assert {*models.REFUSED} <= {*kinds} - {*models.ARCHITECTURES} - {*models.FAMILIES}


def test_every_type_with_a_family_is_known_to_transformers_and_to_the_table() -> None:
    kinds = tf.models.auto.modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES
    assert {*models.FAMILIES} <= {*kinds} - {*models.ARCHITECTURES}
    assert {*models.FAMILIES.values()} <= {*families()}


def test_the_family_is_part_of_the_models_name(folders: dict[str, Path]) -> None:
    named = _load(folders, "llava").named
    assert named is not None
    assert named.model_dump() == {"name": str(folders["llava"]), "max_tokens": 6, "family": "llava-1.5"}


@pytest.mark.parametrize(
    "error",
    [
        ImportError("PixtralProcessor requires the Torchvision library but it was not found"),
        ValueError("Video processor cannot be loaded"),
    ],
)
def test_a_processor_that_needs_torchvision_says_so(
    error: Exception, folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr("transformers.AutoProcessor.from_pretrained", fail)
    with pytest.raises(BadInput, match="is a paddleocr_vl, whose processor in transformers needs torchvision; in"):
        _load(folders, "paddleocr_vl")


def test_such_a_model_is_not_served(folders: dict[str, Path]) -> None:
    with pytest.raises(BadInput, match="is a paddleocr_vl, which is not served here; serve it with an engine"):
        load_served(str(folders["paddleocr_vl"]))
