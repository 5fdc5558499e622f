"""The second architecture on a CPU: its fast forward is the stock model, its pixels are the stock processor's."""

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the trainer needs the [local] extra")
pytest.importorskip("transformers", reason="the trainer needs the [local] extra")

import numpy as np  # noqa: E402
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from PIL import Image  # noqa: E402
from training.align import Aligner  # noqa: E402
from training.batches import prepare  # noqa: E402
from training.evaluate import Evaluator  # noqa: E402
from training.examples import Layout, field_class, fill  # noqa: E402
from training.forward import FastForward  # noqa: E402
from training.forward_llava import Canvas, LlavaForward  # noqa: E402
from training.heads import Heads  # noqa: E402
from training.optim import Optimizer  # noqa: E402
from training.pool import unpack  # noqa: E402
from training.state import Progress, export, load_state, save_state  # noqa: E402
from training.train import Trainer  # noqa: E402
from transformers import (  # noqa: E402
    AutoImageProcessor,
    AutoModelForImageTextToText,
    AutoTokenizer,
    LlavaOnevisionProcessor,
)

from stakes import models  # noqa: E402
from stakes.data.synthetic.page import Glyph, Page, Question  # noqa: E402
from stakes.models import Request  # noqa: E402
from stakes.vision.geometry import count_tokens, family  # noqa: E402
from stakes.vision.geometry.tiles import AnyRes  # noqa: E402
from stakes.vision.image.resize import fitted_size  # noqa: E402
from training import architectures, check, images, reader, reader_llava  # noqa: E402

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small tensors on a busy machine: two threads that wait for each other take ten times as long as one."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def model() -> torch.nn.Module:
    return reader_llava.new_model()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, model: torch.nn.Module) -> Path:
    path = tmp_path_factory.mktemp("llava") / "export"
    reader_llava.save(model, str(path))
    return path


def noise(width: int, height: int, seed: int = 0) -> Image.Image:
    rng = np.random.default_rng(seed)
    small = Image.fromarray(rng.integers(0, 255, (height // 4 + 1, width // 4 + 1, 3), dtype=np.uint8))
    return small.resize((width, height))


def rows_of(width: int = 280, height: int = 168, n: int = 2) -> dict[str, torch.Tensor]:
    questions = (
        Question("What is the total?", ("$12.50",), "high", (150, 100, 200, 115), "total"),
        Question("Who is the author?", ("Ann Lee",), "low", (160, 20, 220, 35), "author"),
    )
    glyphs = (Glyph(155.0, 107.0, "$", 0), Glyph(163.0, 107.0, "1", 0), Glyph(10.0, 10.0, "T", -1))
    page = Page("forms", "forms/train/000000", noise(width, height), questions, glyphs)
    rows = np.zeros((n, Layout(width, height).bytes), np.uint8)
    for row in rows:
        assert fill(row, page, random.Random(1), augment=False) == 2
    return unpack(torch.from_numpy(rows), Layout(width, height))


# one tile; three rows of two with padding on the sides; two with padding above and below, an odd number of pixels over
@pytest.mark.parametrize(("gh", "gw", "system"), [(6, 9, False), (19, 13, True), (5, 13, False)])
def test_fast_forward_gives_the_stock_models_logits(gh: int, gw: int, system: bool) -> None:
    assert check.forward_difference("cpu", "llava", gh, gw, 2, 2, system) < 1e-5


@pytest.mark.parametrize("size", [(252, 252), (280, 168), (200, 300), (378, 504), (501, 377), (100, 700)])
def test_pages_are_shown_as_the_stock_processor_shows_them(
    size: tuple[int, int], model: torch.nn.Module, folder: Path
) -> None:
    stock = AutoImageProcessor.from_pretrained(folder, backend="pil")
    image = noise(*size)
    pixels = stock(images=[image], return_tensors="pt")["pixel_values"][0]
    geo = LlavaForward(model).canvas(image.height, image.width, False, CPU)
    shown = geo.show(torch.from_numpy(np.asarray(image).copy())[None], torch.float32, noise=False, colour=False)
    ours = check.stock_images(shown[0], geo)["pixel_values"][0]
    assert ours.shape == pixels.shape
    grey = (ours - pixels).abs() * min(reader_llava.STD) * 255
    assert grey.max() < 4.5  # Pillow rounds its filter to 8 bits
    assert grey.mean() < 0.1


@settings(deadline=None, max_examples=25)
@given(st.integers(20, 1500), st.integers(20, 1500))
def test_a_canvas_has_the_tokens_that_the_family_counts(width: int, height: int) -> None:
    formula = family(reader_llava.FAMILY).formula
    assert formula == AnyRes(reader_llava.TILE, reader_llava.SIDE, reader_llava.MOST_TILES, reader_llava.CAP)
    columns, rows = formula.canvas(width, height)
    tiles = rows * columns
    if tiles > reader_llava.CAP:
        return  # beyond the cap the stock model interpolates: never trained
    shape = _CANVAS.setdefault("model", reader_llava.new_model())
    assert Canvas(shape, height, width, False, CPU).tokens == count_tokens(reader_llava.FAMILY, width, height)


_CANVAS: dict[str, torch.nn.Module] = {}


def test_targets_put_characters_into_the_token_that_shows_them(model: torch.nn.Module) -> None:
    geo = LlavaForward(model).canvas(168, 280, False, CPU)  # shown at 420 x 252 on 504 x 252: 1.5 times, 42 px aside
    ocr, fields = geo.targets(rows_of()["glyphs"], 280, 168)
    assert (geo.gh, geo.gw, geo.cut) == (12, 20, (0, 2))
    # "$" at x 155, y 107: 232.5 + 42 is cell 13.07 of the canvas, 11.07 after the cut; y 160.5 is cell 7.64
    at = 144 + 7 * 21 + 11
    assert ocr[0, at].view(4, -1)[2, 0] == ord("$") - 31
    assert fields[0, at] == field_class("total")
    assert (ocr[0, :144] == -100).all()
    assert (ocr[0, 144:].view(12, 21, -1)[:, -1] == -100).all()
    assert ocr.shape[1] == fields.shape[1] == geo.tokens


def test_the_language_model_starts_from_the_first_readers(tmp_path: Path) -> None:
    first = reader.new_model("base", seed=3)
    reader.save(first, str(tmp_path / "reader"))
    first = architectures.load(tmp_path / "reader", torch.float32)
    adopted = architectures.start("llava", tmp_path / "reader")
    mine, theirs = (m.model.language_model.layers[3] for m in (adopted, first))
    assert torch.equal(mine.self_attn.o_proj.weight, theirs.self_attn.o_proj.weight)
    assert torch.equal(mine.self_attn.k_proj.weight[64 + 2], theirs.self_attn.k_proj.weight[64 + 7])
    assert torch.equal(mine.self_attn.q_proj.bias[32 + 14], theirs.self_attn.q_proj.bias[32 + 2])
    kept = [row for row in theirs.mlp.up_proj.weight if (row == mine.mlp.up_proj.weight).all(1).any()]
    assert len(kept) == 448
    assert torch.equal(adopted.lm_head.weight, first.lm_head.weight)
    fast = FastForward(first)
    white = images.patches(torch.ones(1, 84, 3, 84), 3, 3, torch.float32)
    token = fast.encode(white, fast.geometry(3, 3, False, CPU))[0, 4]
    assert torch.allclose(adopted.model.image_newline, token, atol=1e-4)
    reader_llava.save(adopted, str(tmp_path / "llava"))
    with pytest.raises(ValueError, match="only the LLaVA reader"):
        architectures.start("base", tmp_path / "llava")


def test_pairs_and_their_frequencies_in_another_order_are_the_same_model() -> None:
    language = reader_llava.new_model(seed=4).model.language_model.eval()
    ids = torch.arange(40)[None]
    slots = torch.randperm(32, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        for layer in language.layers:
            layer.self_attn.q_proj.bias.normal_(), layer.self_attn.k_proj.bias.normal_()
        before = language(input_ids=ids).last_hidden_state
        for layer in language.layers:
            reader_llava.reorder(layer.self_attn, slots.tolist())
        moved = language(input_ids=ids).last_hidden_state
        language.rotary_emb.inv_freq.copy_(language.rotary_emb.inv_freq[slots])
        after = language(input_ids=ids).last_hidden_state
    assert not torch.allclose(before, moved, atol=1e-2)
    assert torch.allclose(before, after, atol=1e-4)


def test_units_that_do_nothing_go_first() -> None:
    mlp = reader_llava.new_model(seed=5).model.language_model.layers[0].mlp
    x = torch.randn(3, 384, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        mlp.down_proj.weight[:, ::7] = 0
        before = mlp(x)
        reader_llava.keep_strongest(mlp, 448 - 64)
        assert torch.allclose(mlp(x), before, atol=1e-5)
        reader_llava.keep_strongest(mlp, 300)
        assert not torch.allclose(mlp(x), before, atol=1e-3)


def test_the_export_is_small_enough_to_ship_and_freezes_nothing_else(folder: Path, model: torch.nn.Module) -> None:
    files = [f for f in folder.iterdir() if f.suffix == ".safetensors"]
    assert sum(f.stat().st_size for f in files) <= 15e6
    assert json.loads((folder / "config.json").read_text())["dtype"] == "bfloat16"
    still = {name for name, p in model.named_parameters() if not p.requires_grad}
    assert {name.rsplit(".", 2)[1] for name in still} == {"post_layernorm"}


def test_an_untrained_export_answers_at_its_budget_by_both_mechanisms(folder: Path) -> None:
    loaded = models.load(str(folder), max_new_tokens=3)
    assert loaded.family == reader_llava.FAMILY
    image = noise(504, 672)
    native = count_tokens(loaded.family, *image.size)
    for budget in (300, 620):
        requests = [Request(image, "What?", budget, mechanism) for mechanism in ("resolution", "deletion")]
        resized, deleted = loaded.answer(requests)
        assert resized.realised_tokens == fitted_size(*image.size, budget, loaded.family).tokens <= budget
        assert deleted.realised_tokens == budget
        assert resized.native_tokens == deleted.native_tokens == native


def test_stock_processor_and_generate_give_the_same_answer(folder: Path) -> None:
    class WithoutVideo(LlavaOnevisionProcessor):  # the video part needs torchvision
        def check_argument_for_proper_class(self, name: str, argument: object) -> object:
            return None if argument is None else super().check_argument_for_proper_class(name, argument)

    saved = json.loads((folder / "processor_config.json").read_text())
    named = ("num_image_tokens", "vision_feature_select_strategy", "image_token", "video_token", "vision_aspect_ratio")
    parts = AutoImageProcessor.from_pretrained(folder, backend="pil"), AutoTokenizer.from_pretrained(folder), None
    template = (folder / "chat_template.jinja").read_text()
    processor = WithoutVideo(*parts, chat_template=template, **{name: saved[name] for name in named})
    content = [{"type": "image"}, {"type": "text", "text": "Who? Answer briefly."}]
    text = processor.apply_chat_template([{"role": "user", "content": content}], add_generation_prompt=True)
    image = noise(392, 280)
    inputs = processor(text=[text], images=[image], return_tensors="pt")
    stock = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32)
    out = stock.generate(**inputs, max_new_tokens=4)[0, inputs["input_ids"].shape[1] :]
    ours = models.load(str(folder), max_new_tokens=4).answer([Request(image, "Who?")])[0]
    assert ours.text == processor.decode(out, skip_special_tokens=True).strip()
    assert ours.realised_tokens == (inputs["input_ids"] == reader.ID["<|image_pad|>"]).sum()


def test_a_run_learns_resumes_and_is_evaluated(tmp_path: Path) -> None:
    def fresh() -> Trainer:
        model = architectures.start("llava")
        heads = Heads(384)
        return Trainer(model, heads, Optimizer(model, heads), compiled=False)

    trainer = fresh()
    geo = trainer.run.geometry(6, 9, False, CPU)
    batch = prepare(rows_of(252, 168), geo, 2, torch.float32)
    losses = [trainer.step(batch, geo, 2e-3, 1.0)[0].item() for _ in range(3)]
    assert losses[-1] < losses[0]
    progress = Progress(step=4, size="llava")
    save_state(tmp_path, trainer.optimizer, progress)
    export(tmp_path, trainer.model, trainer.heads, trainer.optimizer, progress)
    again = fresh()
    assert load_state(tmp_path, again.optimizer) == progress
    assert all(torch.equal(a, b) for a, b in zip(trainer.model.parameters(), again.model.parameters(), strict=True))

    evaluator = Evaluator(architectures.load(tmp_path / "export", torch.float32), CPU, 1)
    layout = Layout(252, 168)
    rows = np.zeros((1, layout.bytes), np.uint8)
    page = Page("forms", "forms/test/0", noise(252, 168), (Question("Who?", ("Ann",), "low", None, "author"),), ())
    fill(rows[0], page, random.Random(0), augment=False)
    tally, tokens = evaluator.resolution(torch.from_numpy(rows), layout, 10**6)
    assert tokens == geo.tokens
    assert tally["low"][1] == 1
    assert evaluator.resolution(torch.from_numpy(rows), layout, 100) is None  # the squashed page alone takes 144
    assert evaluator.deletion(torch.from_numpy(rows), layout, [16, 64])[16]["low"][1] == 1


def test_the_tower_regresses_the_first_readers_tokens_of_the_same_pixels(tmp_path: Path) -> None:
    reader.save(reader.new_model("base", seed=3), str(tmp_path / "reader"))
    aligner = Aligner(tmp_path / "reader", "llava", CPU)
    geo = aligner.run.canvas(168, 280, False, CPU)
    rows = rows_of()
    x = geo.show(rows["image"], torch.float32, noise=False, colour=False)
    page = geo.seen(x)  # the two columns of padding are cut: nothing but the page
    assert page.shape == (2, 12 * 21, 3, 20 * 21)
    straight = images.resize(rows["image"].float() / 255, 252, 420)
    assert torch.allclose(page, straight, atol=1e-5)
    places = geo.cells(torch.arange(geo.tokens).view(1, -1, 1)).view(12, 20)
    assert torch.equal(places, 144 + 21 * torch.arange(12)[:, None] + torch.arange(20)[None])
    before = {name: p.clone() for name, p in aligner.model.named_parameters() if "language_model" in name}
    missed = [aligner.step(rows, geo, 5e-3, colour=False)[0].item() for _ in range(3)]
    assert missed[-1] < missed[0]
    reader_llava.save(aligner.model, str(tmp_path / "aligned"))
    again = Aligner(tmp_path / "reader", "llava", CPU, init=tmp_path / "aligned")
    assert again.step(rows, geo, 0.0, colour=False)[0].item() < missed[0]
    assert all(torch.equal(p, before[name]) for name, p in aligner.model.named_parameters() if name in before)
