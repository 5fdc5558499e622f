"""The trainer on a CPU: the fast forward is the stock model, the tokenizer is the encoder, a run survives its end."""

import argparse
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the trainer needs the [local] extra")
pytest.importorskip("transformers", reason="the trainer needs the [local] extra")

import numpy as np  # noqa: E402
from PIL import Image  # noqa: E402
from training.batches import prepare  # noqa: E402
from training.examples import FIELDS, Layout, crop, field_class, fill, length, lengthen, wanted  # noqa: E402
from training.heads import Heads, targets  # noqa: E402
from training.optim import Optimizer  # noqa: E402
from training.pool import FIRST, WEIGHTS, Pool, draw_into, unpack  # noqa: E402
from training.state import Progress, export, load_state, load_travelled, save_state  # noqa: E402
from training.train import Trainer, build  # noqa: E402

from stakes.data import synthetic as pages  # noqa: E402
from stakes.data.synthetic.page import Glyph, Page, Question  # noqa: E402
from training import check, families, images, reader, schedule  # noqa: E402


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small tensors on a busy machine: two threads that wait for each other take ten times as long as one."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def page() -> Page:
    rng = np.random.default_rng(0)
    image = Image.fromarray(rng.integers(0, 255, (168, 280, 3), dtype=np.uint8))
    questions = (
        Question("What is the total?", ("$12.50",), "high", (150, 100, 200, 115), "total"),
        Question("Who is the author?", ("Ann Lee",), "low", (160, 20, 220, 35), "author"),
    )
    glyphs = (Glyph(155.0, 107.0, "$", 0), Glyph(163.0, 107.0, "1", 0), Glyph(10.0, 10.0, "T", -1))
    return Page("forms", "forms/train/000000", image, questions, glyphs)


def rows_of(page: Page, n: int = 2) -> dict[str, torch.Tensor]:
    layout = Layout(*page.image.size)
    rows = np.zeros((n, layout.bytes), np.uint8)
    for i in range(n):
        assert fill(rows[i], page, random.Random(i), augment=False) == 2
    return unpack(torch.from_numpy(rows), layout)


@pytest.mark.parametrize(("gh", "gw", "system"), [(7, 6, False), (5, 9, True)])
def test_fast_forward_gives_the_stock_models_logits(gh: int, gw: int, system: bool) -> None:
    assert check.forward_difference("cpu", "small", gh, gw, 2, 2, system) < 1e-5


def test_encode_equals_the_saved_tokenizer() -> None:
    tokenizer = reader.build_tokenizer()
    for text in ["What is the invoice number?", "How much is the tax? Answer briefly.", "x is the name\n", "~!@ 5%"]:
        assert tokenizer(text)["input_ids"] == reader.encode(text)
        assert tokenizer.decode(reader.encode(text)) == text


def test_template_puts_the_image_first_and_prints_a_system_message() -> None:
    content = [{"type": "text", "text": "Hi?"}, {"type": "image"}]
    messages = [{"role": "system", "content": "You are a helpful assistant."}, {"role": "user", "content": content}]
    ids = reader.build_tokenizer().apply_chat_template(messages, add_generation_prompt=True)["input_ids"]
    image = [reader.ID[t] for t in ("<|im_start|>", "user\n", "<|vision_start|>", "<|image_pad|>", "<|vision_end|>")]
    assert list(ids) == reader.SYSTEM + image + reader.encode("Hi?") + reader.TAIL


def test_sizes_stay_within_their_bytes() -> None:
    count = {size: sum(p.numel() for p in reader.new_model(size).parameters()) for size in reader.SIZES}
    assert count["base"] * 2 <= 18.5e6
    assert 0.28 < count["small"] / count["base"] < 0.42


def test_a_row_carries_the_page_unchanged(page: Page) -> None:
    rows = rows_of(page)
    assert np.array_equal(rows["image"][0].numpy(), np.asarray(page.image))
    assert set(rows) == {"image", *(name for name, _, _ in FIELDS)}
    answers = {
        reader.build_tokenizer().decode(rows["qa"][0, i, rows["start"][0, i] : rows["end"][0, i] - 1].tolist())
        for i in range(2)
    }
    assert answers == {"$12.50", "Ann Lee"}


def test_targets_put_characters_into_their_patch(page: Page) -> None:
    ocr, fields = targets(rows_of(page)["glyphs"], 6, 10, (20 / 280, 0.0), (12 / 168, 0.0))
    # "$" and "1" of the total at y 107: token row 3, lower half; x 155 is patch column 11, x 163 too
    cell = 3 * 10 + 5
    assert ocr[0, cell].view(4, -1)[3, :2].tolist() == [ord("$") - 31, ord("1") - 31]
    assert fields[0, cell] == field_class("total")
    assert (fields[0] > 0).sum() == 1


def test_resize_is_pillows_bicubic(page: Page) -> None:
    x = torch.from_numpy(np.asarray(page.image).copy())[None].float() / 255
    ours = images.resize(x, 84, 112)[0].permute(0, 2, 1).mul(255).round().numpy()
    pillow = np.asarray(page.image.resize((112, 84), Image.Resampling.BICUBIC), np.float32)
    assert np.abs(ours - pillow).max() <= 1
    assert np.abs(ours - pillow).mean() < 0.02


def test_a_crop_keeps_only_questions_inside_it(page: Page) -> None:
    view = crop(page, 224, 112, random.Random(1))
    assert view is not None
    assert view.image.size == (224, 112)
    for q in view.questions:
        assert q.box is not None
        assert q.box[0] >= 0
        assert q.box[3] <= 112
    assert all(g.question < len(view.questions) for g in view.glyphs)


def test_a_run_resumes_with_the_same_weights_and_momenta(page: Page, tmp_path: Path) -> None:
    def fresh() -> Trainer:
        model = reader.new_model("small")
        heads = Heads(256)
        return Trainer(model, heads, Optimizer(model, heads), compiled=False)

    trainer = fresh()
    geo = trainer.run.geometry(3, 5, False, torch.device("cpu"))
    batch = prepare(rows_of(page), geo, 2, torch.float32)
    losses = [trainer.step(batch, geo, 2e-3, 1.0)[0].item() for _ in range(6)]
    assert losses[-1] < losses[0]
    progress = Progress(step=6, elapsed=3.5, next_seed=77, size="small")
    save_state(tmp_path, trainer.optimizer, progress)
    export(tmp_path, trainer.model, trainer.heads, trainer.optimizer, progress)

    again = fresh()
    assert load_state(tmp_path, again.optimizer) == progress
    for a, b in zip(trainer.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(a, b)
    first, second = (t.step(batch, geo, 2e-3, 1.0)[0].item() for t in (trainer, again))
    assert first == pytest.approx(second, rel=1e-5)

    model = type(again.model).from_pretrained(tmp_path / "export", dtype=torch.float32)
    heads = Heads(256)
    travelled = Optimizer(model, heads)
    assert load_travelled(tmp_path, heads, travelled).elapsed == 3.5
    for name, tensor in load_momenta(tmp_path).items():
        assert torch.allclose(travelled.tensors()[name], tensor, rtol=1e-2, atol=1e-6)


def test_a_resumed_run_keeps_the_window_it_was_started_with(tmp_path: Path) -> None:
    (tmp_path / "init").mkdir()
    model = reader.new_model("small")
    model.config.vision_config.window_size = 224
    reader.save(model, str(tmp_path / "init" / "export"))
    wanted = argparse.Namespace(
        run=tmp_path / "run", init=tmp_path / "init", size="small", window=None, level=0, seconds=60.0, skip=0.0
    )
    wanted.run.mkdir()
    trainer, progress = build(wanted, torch.device("cpu"))
    save_state(wanted.run, trainer.optimizer, progress)
    export(wanted.run, trainer.model, trainer.heads, trainer.optimizer, progress)
    wanted.init = None
    again, _ = build(wanted, torch.device("cpu"))
    assert again.model.config.vision_config.window_size == 224


def load_momenta(run: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return {k: v for k, v in load_file(run / "state.safetensors").items() if k.startswith("momentum")}


def test_the_schedule_covers_every_budget_and_sums_to_one() -> None:
    last = len(schedule.LEVELS) - 1
    for level in range(last + 1):
        assert sum(schedule.shares(level)) == pytest.approx(1)
        assert sum(schedule.render_shares(level)) == pytest.approx(1)
    assert schedule.learning_rate(1.0, 10**6, 2e-3) == pytest.approx(2e-5)
    rng = random.Random(0)
    cells = [gh * gw for gh, gw in (schedule.grid("forms", 756, 1008, rng) for _ in range(2000))]
    assert min(cells) <= 48
    assert 0.70 < sum(c == 972 for c in cells) / 2000 < 0.80
    assert len({c // 100 for c in cells}) == 10


@pytest.mark.parametrize(
    ("family", "expected"),
    [("forms", {0.35, 0.6, 1.0}), ("charts", {0.6, 1.0}), ("shapes", {0.3, 1.0}), ("signs", {1.0})],
)
def test_what_is_read_early_is_asked_less_often(family: str, expected: set[float]) -> None:
    page = pages.draw(family, 3, split="train")
    shares = [wanted(page, question) for question in page.questions]
    assert {*shares} == expected
    row = np.zeros(Layout(*page.image.size).bytes, np.uint8)
    assert fill(row, page, random.Random(0), augment=False) == len(page.questions)
    asked = [fill(row, page, random.Random(seed)) for seed in range(200)]
    assert np.mean(asked) == pytest.approx(sum(shares), abs=0.7)


def test_only_questions_about_documents_are_long() -> None:
    rng = random.Random(0)
    plain = "What is the date of the letter?"
    texts = [lengthen(plain, rng) for _ in range(600)]
    assert 0.28 < np.mean([text != plain for text in texts]) < 0.42
    assert all("date of the letter" in text for text in texts)
    longest = {}
    for family in ("documents", "receipts"):
        longest[family] = 0
        for seed in range(8):
            page = families.draw(family, seed)
            layout = Layout(*page.image.size)
            row = np.zeros(layout.bytes, np.uint8)
            n = fill(row, page, rng)
            longest[family] = max(longest[family], *unpack(torch.from_numpy(row)[None], layout)["end"][0, :n].tolist())
    assert longest["receipts"] <= length("receipts") < longest["documents"] <= length("documents")


def test_documents_are_most_frequent_while_they_are_new() -> None:
    last = len(schedule.LEVELS) - 1
    assert schedule.LEVELS[last - 1].mix["documents"] > 1.5 * schedule.LEVELS[last].mix["documents"]
    assert schedule.next_level(last - 1, 0.3, {"forms": 0.0}) == last - 1
    assert schedule.next_level(last - 1, 0.46, {}) == last


def test_pages_become_plain_towards_the_end() -> None:
    assert 0 < schedule.plain(0.5) < schedule.plain(0.7) < 1
    row = Layout(756, 1008).bytes
    drawn = {share: np.zeros((1, row), np.uint8) for share in (0.0, 1.0)}
    for share, slots in drawn.items():
        draw_into(slots, lambda: 0, "forms", 3, random.Random(3), "train", {}, share)
    assert not np.array_equal(drawn[0.0], drawn[1.0])


@pytest.mark.parametrize("family", ["receipts", "documents"])
def test_workers_draw_families_that_the_package_has_not(family: str) -> None:
    assert {*WEIGHTS} == {*families.FAMILIES} == {*pages.FAMILIES, "documents"}
    assert sum(WEIGHTS.values()) == sum(FIRST.values()) == pytest.approx(1)
    assert {*FIRST} == {*WEIGHTS}
    slots = np.zeros((1, max(Layout(*size).bytes for size in families.SIZES[family])), np.uint8)
    ((_, kind, width, height),) = draw_into(slots, lambda: 0, family, 3, random.Random(3), "train", {}, 0.0)
    assert kind == family
    layout = Layout(width, height)
    assert unpack(torch.from_numpy(slots[:, : layout.bytes]), layout)["n"].item() >= 6


def test_the_heads_weigh_less_as_whole_pages_are_learnt() -> None:
    assert schedule.head_weight(2, 0.9) == 1.0
    assert schedule.head_weight(4, 0.0) == pytest.approx(0.8)
    assert schedule.head_weight(4, 1.0) == schedule.head_weight(4, 1.2) == pytest.approx(0.3)


def test_a_level_ends_when_it_is_read_or_its_time_is_up() -> None:
    assert schedule.next_level(0, 0.05, {"cards": 0.9}) == 0
    assert schedule.next_level(0, 0.05, {"cards": 0.4}) == 1
    assert schedule.next_level(0, 0.31, {}) == 1
    assert schedule.next_level(len(schedule.LEVELS) - 1, 1.0, {"forms": 0.0}) == len(schedule.LEVELS) - 1


def test_workers_fill_the_pool_and_count_their_seeds() -> None:
    pool = Pool(workers=1, first_seed=5, slots_n=8)
    try:
        pool.start(torch.device("cpu"), 0.05)
        pool.wait(["cards"], 6, seconds=60)
        seen, began = pool.pages, time.time()
        pool.wait_for_new(seen + 4, seconds=60)
        assert pool.pages >= seen + 4
        pool.wait_for_new(10**9, seconds=0.05)  # a stalled worker must not stop a run for ever
        assert time.time() - began < 60
        rows = pool.pick("cards", random.Random(0))
        assert pool.seeds.value > 5
    finally:
        pool.close()
    if rows is not None:
        assert rows.sample(3)["image"].shape == (3, 168, 280, 3)
        assert (rows.sample(3)["n"] > 0).all()
