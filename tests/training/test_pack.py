"""Packed weights have half the bytes and stay close to the original; validation compares values, not strings."""

from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the trainer needs the [local] extra")
pytest.importorskip("transformers", reason="the trainer needs the [local] extra")

from training.images import relight  # noqa: E402
from training.pack import PACKED, SHIPPED, pack, quantize, read, restore, unpack  # noqa: E402

from training import architectures, reader, validate  # noqa: E402

CHECKPOINT = Path(__file__).parents[2] / "training" / "checkpoints" / "receipts"


def shapes(tensors: dict[str, torch.Tensor]) -> dict[str, tuple[torch.Size, torch.dtype]]:
    return {name: (tensor.shape, tensor.dtype) for name, tensor in tensors.items()}


def test_a_restored_weight_is_off_by_half_a_step_at_most() -> None:
    weight = torch.randn(6, 40) * torch.tensor([1e-3, 1.0, 5.0, 0.1, 2.0, 0.0])[:, None]
    values, step = quantize(weight)
    assert values.dtype == torch.int8
    off = (restore(values, step).float() - weight).abs().amax(1)
    largest = weight.abs().amax(1)
    assert (off <= largest / 254 + largest / 256 + 1e-9).all()  # half a step, and the rounding to bf16


def test_a_packed_reader_is_unpacked_to_a_normal_folder(tmp_path: Path) -> None:
    reader.save(reader.new_model("small"), str(tmp_path / "export"))
    size = pack(tmp_path / "export", tmp_path / "packed")
    unpack(tmp_path / "packed", tmp_path / "again")
    before, after = read(tmp_path / "export"), read(tmp_path / "again")
    assert size < 0.56 * sum(t.nbytes for t in before.values())
    assert shapes(before) == shapes(after)
    for name, tensor in before.items():
        assert (after[name].float() - tensor.float()).abs().max() <= tensor.float().abs().max() / 100, name
    packed = {f.name for f in (tmp_path / "packed").iterdir()}
    assert {PACKED, "config.json"} <= packed
    assert "tokenizer.json" not in packed  # it is the shipped reader's
    assert (tmp_path / "again" / "config.json").read_bytes() == (tmp_path / "export" / "config.json").read_bytes()
    assert architectures.load(tmp_path / "again", torch.float32).config.model_type == "qwen2_5_vl"


def test_the_checkpoint_of_receipts_is_a_reader_of_the_shipped_shape(tmp_path: Path) -> None:
    unpack(CHECKPOINT, tmp_path)
    assert shapes(read(tmp_path)) == shapes(read(SHIPPED))
    assert (tmp_path / "tokenizer.json").read_bytes() == (SHIPPED / "tokenizer.json").read_bytes()
    assert not (tmp_path / "checksums.json").exists()


def test_other_light_changes_levels_and_not_shapes() -> None:
    page = torch.full((8, 56, 84, 3), 200, dtype=torch.uint8)
    page[:, 10:20] = 20
    lit = relight(page)
    assert lit.shape == page.shape
    assert lit.dtype == torch.uint8
    assert (lit[:, 40].float().mean((1, 2)) <= 215).all()
    assert (lit != page).any()


@pytest.mark.parametrize(
    ("field", "answer", "gold", "expected"),
    [
        ("total", "USD 41.70", "41.70", True),
        ("total", "41,70", "41.70", True),
        ("total", "417.0", "41.70", False),
        ("total", "1,041.70", "1041.70", True),
        ("total", "none", "41.70", False),
        ("date", "28/03/2014", "28/03/2014", True),
        ("date", "28-03-14", "28/03/2014", True),
        ("date", "28/03/2015", "28/03/2014", False),
        ("date", "", "28/03/2014", False),
        ("company", "NORTHGAT TOOLS", "NORTHGATE TOOLS", True),
        ("company", "JADE GAS", "NORTHGATE TOOLS", False),
    ],
)
def test_answers_are_compared_by_value(field: str, answer: str, gold: str, expected: bool) -> None:
    assert validate.is_right(field, answer, gold) is expected
