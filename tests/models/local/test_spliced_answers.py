"""Answers of the families that run by their own processor: counts, checkpoints, selectors, windows, refusals."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from tests.models.tiny import picture, stock_inputs, tf, tiny
from tests.models.tiny_spliced import SPLICED, save_spliced, spliced
from tests.vision.deletion.test_deletion import assert_same_as_masking, others

from stakes import models
from stakes.errors import BadInput, LedgerBreach
from stakes.models import Request
from stakes.models.identity import identity, menu_of, native_tokens
from stakes.models.local.generate import DecodeOptions, greedy
from stakes.models.local.image_cache import EncodedCache
from stakes.models.local.resources import Clock
from stakes.models.local.spliced import SplicedVLM
from stakes.models.local.stock import StockVLM
from stakes.vision.deletion.exact import pack, splice
from stakes.vision.deletion.inside_layers import dropping
from stakes.vision.geometry import count_tokens
from stakes.vision.image.resize import fitted_size
from stakes.vision.selectors.fastv import FastV

MARKED = {"llava-pixtral": 6, "mistral3": 3, "idefics3": 13, "smolvlm": 13}  # tokens that count beside 60 x 40 pixels


@pytest.mark.parametrize("kind", SPLICED)
def test_a_folder_loads_and_spends_the_budget_exactly(kind: str, tmp_path: Path) -> None:
    loaded = models.load(str(save_spliced(kind, tmp_path)), device="cpu", max_new_tokens=8, family=SPLICED[kind])
    assert isinstance(loaded, SplicedVLM)
    native, markers = count_tokens(SPLICED[kind], 60, 40), MARKED.get(kind, 0)
    budgets = [native - 1, markers + 1, None]
    requests = [Request(picture(60, 40), "What is it?", budget, "deletion") for budget in budgets]
    answers = loaded.answer(requests)
    assert [answer.text for answer in answers] == [answer.text for answer in spliced(kind).answer(requests)]
    for answer, budget in zip(answers, budgets, strict=True):
        assert answer.native_tokens == native == native_tokens(loaded, 60, 40, "deletion")
        assert answer.realised_tokens == answer.input_tokens == answer.layer_tokens == (budget or native)
    assert identity(loaded)["weights"] == identity(spliced(kind))["weights"]


def test_glm_counts_the_pixels_of_two_frames() -> None:
    model = spliced("glm4v")
    for size in [(20, 30), (60, 40), (500, 90), (333, 444)]:
        count = len(model.encode(picture(*size), exact=False, attention=False).features)
        assert native_tokens(model, *size, "deletion") == count, size


RESIZED = {"mistral3": 14, "llava-pixtral": 40, "llava_next": 60, "glm4v": 15}


@pytest.mark.parametrize(("kind", "budget"), RESIZED.items())
def test_a_budget_by_resolution_is_that_of_the_fitted_size(kind: str, budget: int) -> None:
    (answer,) = spliced(kind).answer([Request(picture(300, 240), "What?", budget)])
    fitted = fitted_size(300, 240, budget, SPLICED[kind]).tokens
    assert answer.realised_tokens == answer.encoder_tokens == fitted <= budget
    assert answer.native_tokens == count_tokens(SPLICED[kind], 300, 240) > fitted


@pytest.mark.parametrize("kind", ["internvl", "idefics3", "smolvlm"])
def test_where_resizing_changes_nothing_a_parameter_of_the_processor_realises_the_budget(
    kind: str, tmp_path: Path
) -> None:
    loaded = models.load(str(save_spliced(kind, tmp_path)), device="cpu", max_new_tokens=8, family=SPLICED[kind])
    entries = menu_of(loaded, "resolution")
    assert entries is not None
    assert menu_of(loaded, "deletion") is None
    least, image = entries[0], picture(300, 240)
    hows: list[tuple[int | None, Any]] = [(least, "resolution"), (None, "resolution"), (15, "deletion")]
    small, whole, pruned = loaded.answer([Request(image, "What?", *how) for how in hows])
    assert small.realised_tokens == small.encoder_tokens <= least < 15 == pruned.realised_tokens < whole.realised_tokens
    assert small.native_tokens == entries[-1] == native_tokens(loaded, 300, 240, "resolution")
    assert pruned.encoder_tokens == whole.realised_tokens == count_tokens(SPLICED[kind], 300, 240)
    assert len({small.confidence, whole.confidence, pruned.confidence}) == 3


@pytest.mark.parametrize("kind", SPLICED)
def test_questions_on_one_image_answer_as_if_asked_alone(kind: str) -> None:
    """Those with plain attention share what stands before the question, markers between tiles included."""
    requests = [
        Request(picture(60, 40), f"What is {'it ' * i}?", budget and budget + MARKED.get(kind, 0), "deletion")
        for i, budget in enumerate([4, None, 4, 3])
    ]
    together = replace(spliced(kind), cache=EncodedCache()).answer(requests)
    for request, answer in zip(requests, together, strict=True):
        (alone,) = spliced(kind).answer([request])
        assert (answer.text, answer.realised_tokens) == (alone.text, alone.realised_tokens)
        assert answer.confidence == pytest.approx(alone.confidence, abs=1e-5)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("kind", ["llava", "llava_next", "internvl", "idefics3", "mistral3"])
@torch.inference_mode()
def test_in_model_drops_equal_hiding_the_keys_layer_by_layer(kind: str, attention: str) -> None:
    model = spliced(kind, attention)
    jobs = [model.prepare(Request(picture(*size), "What?")) for size in ((60, 40), (30, 90))]
    batch = pack([job.prompt for job in jobs])
    with dropping(model.model.get_decoder(), batch, FastV(layer=1), [5, 3]) as drops:
        options = DecodeOptions(5, Clock(model.device), keep_logits=True, drops=drops)
        ours = greedy(model.model, batch, [job.ids for job in jobs], options)
    hidden = []
    for row, job in enumerate(jobs):
        kept = torch.searchsorted(job.prompt.visual, drops.columns[row][drops.visual[row]])
        gone = others(kept, job.prompt.tokens)
        hidden.append([gone[:0], gone, gone])
        assert drops.counts[row] == [job.prompt.tokens, len(kept), len(kept)]
    assert_same_as_masking(model, jobs, ours, hidden)
    (answer,) = model.answer([Request(picture(60, 40), "What?", 15, "deletion", "fastv:layer=1")])
    assert (answer.realised_tokens, answer.layer_tokens) == (15, pytest.approx((answer.native_tokens + 30) / 3))


@pytest.mark.parametrize(
    ("kind", "selector", "message"),
    [
        ("gemma3", "fastv", "'fastv' drops inside the model, and the attention of a gemma3_text decoder is not"),
        ("glm4v", "fastv", "'fastv' drops inside the model, and the attention of a glm4v_text decoder is not"),
        ("mistral3+windows", "fastv", "'fastv' drops inside the model, and its layers have sliding windows"),
        ("llava", "visionzip", "reads the attention of the encoder, which is not read from a llava; take another"),
    ],
)
def test_selectors_that_cannot_see_what_they_need_are_refused(kind: str, selector: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        spliced(kind).answer([Request(picture(60, 40), "What?", 5, "deletion", selector)])


def test_a_budget_that_only_pays_for_markers_is_refused() -> None:
    with pytest.raises(LedgerBreach, match="its 3 markers count and stay; give at least 4"):
        spliced("mistral3").answer([Request(picture(60, 40), "What?", 3, "deletion")])


def test_a_question_cannot_smuggle_in_image_tokens() -> None:
    with pytest.raises(BadInput, match="a prompt has one image, but .* has 2 placeholders"):
        spliced("llava").answer([Request(picture(60, 40), "What <|image_pad|>?")])
    with pytest.raises(LedgerBreach, match="a prompt has 17 image tokens for 16 features"):
        spliced("gemma3").answer([Request(picture(60, 40), "What <|image_pad|>?")])


def test_a_family_that_counts_otherwise_is_an_error_with_both_numbers() -> None:
    with pytest.raises(LedgerBreach, match="takes 20 tokens in per_image=20, and .* processor wrote 16; give the"):
        replace(spliced("llava"), family="per_image=20", cache=EncodedCache()).answer([Request(picture(60, 40), "?")])


def _windowed(kind: str, attention: str) -> Any:
    """A Qwen-VL whose last layers have windows that are shorter than a prompt."""
    model = tiny(kind, attention)
    made = type(model.model.config).from_dict(model.model.config.to_dict())
    text = made.get_text_config()
    text.sliding_window, text.layer_types = 16, ["full_attention"] * 2 + ["sliding_attention"] * 2
    with torch.inference_mode(False):
        other = tf.AutoModelForImageTextToText.from_config(made, attn_implementation=attention).eval()
        other.load_state_dict(model.model.state_dict())
    other.generation_config = model.model.generation_config
    return replace(model, model=other, cache=EncodedCache())


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("kind", ["qwen2_vl", "llava_onevision"])
def test_windows_shorter_than_a_prompt_answer_as_stock_generate(kind: str, attention: str) -> None:
    model = _windowed(kind, attention)
    image = picture(150, 120)
    inputs = stock_inputs(kind, [image], ["What is it?"])
    assert inputs["input_ids"].shape[1] > 16
    stock = model.model.generate(**inputs, max_new_tokens=8, do_sample=False)[0, inputs["input_ids"].shape[1] :]
    (answer,) = model.answer([Request(image, "What is it?")])
    assert answer.text == model.processor.tokenizer.decode(stock, skip_special_tokens=True).strip()
    deletion = Request(image, "What is it?", 12, "deletion")
    if kind == "qwen2_vl":
        assert model.answer([replace(deletion, mechanism="resolution")])[0].realised_tokens <= 12
        with pytest.raises(BadInput, match="sliding-window attention with M-RoPE, whose positions do not count"):
            model.answer([deletion])
    else:
        assert model.answer([deletion])[0].realised_tokens == 12


@pytest.mark.parametrize("kind", ["Qwen3_5", "Qwen3_5Moe"])
def test_decoders_with_a_recurrent_state_are_refused_by_name(kind: str) -> None:
    model: Any = type("Configured", (), {"config": getattr(tf, f"{kind}Config")()})()
    stock = StockVLM(model, cast(Any, None), "qwen3.5")
    with pytest.raises(
        BadInput, match=r"a qwen3_5(_moe)? has layers of linear_attention, which carry a state .* no ma"
    ):
        stock.answer([Request(picture(60, 40), "What?", 5, "deletion")])


def test_features_of_several_images_are_spliced_between_their_words() -> None:
    words, features = torch.arange(5.0)[:, None], -torch.arange(1.0, 6)[:, None]
    visual = torch.tensor([0, 1, 1, 0, 0, 1, 0, 1, 1, 0], dtype=torch.bool)
    assert splice(words, features, visual)[:, 0].tolist() == [0, -1, -2, 1, 2, -3, 3, -4, -5, 4]
    assert splice(words[:0], features, torch.ones(5, dtype=torch.bool)).tolist() == features.tolist()
