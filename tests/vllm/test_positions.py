"""Kept tokens have the positions of the unpruned prompt, and text goes on after it, whatever was dropped."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.models.tiny import tiny
from torch import Tensor

from stakes.vision.deletion.exact import PromptTensors, Selection, delete
from stakes.vllm.positions import Reduced, place, shrink, unprune, with_places, without_places

TEXT, IMAGE = 9, 5


def unpruned(rows: list[tuple[int, int]], words: int) -> tuple[Tensor, Tensor, list[tuple[int, int]]]:
    """Ids and [3, T] positions of words, an image, words, …, words, by transformers' own ``get_rope_index``."""
    model = tiny("qwen2_5_vl").model
    image = model.config.image_token_id
    start = model.config.vision_start_token_id
    ids: list[int] = []
    spans = []
    for height, width in rows:
        ids += [TEXT] * words + [start]
        spans.append((len(ids), height * width))
        ids += [image] * (height * width)
    ids += [TEXT] * words
    whole = torch.tensor(ids)
    kinds = (whole == image).int()[None]
    grid = torch.tensor([[1, 2 * height, 2 * width] for height, width in rows])
    positions, _ = model.model.get_rope_index(whole[None], mm_token_type_ids=kinds, image_grid_thw=grid)
    return whole, positions[:, 0], spans


def pruned(rows: list[tuple[int, int]], kept: list[list[int]], words: int, chunk: int) -> tuple[Tensor, Tensor, Tensor]:
    """Positions by the plugin in chunks of ``chunk`` tokens; those of ``delete``; and the ids of the pruned prompt."""
    ids, positions, spans = unpruned(rows, words)
    stays = torch.ones(len(ids), dtype=torch.bool)
    images, outputs = [], []
    for (height, width), (at, native), indices in zip(rows, spans, kept, strict=True):
        stays[at : at + native] = False
        stays[at + torch.tensor(indices)] = True
        before = int(stays[:at].sum())
        images.append(Reduced(before, len(indices), native))
        outputs.append(with_places(torch.zeros(len(indices), 3, dtype=torch.bfloat16), torch.tensor(indices), width))
        assert height * width == native
    short = ids[stays]
    assert unprune(short.tolist(), images) == ids.tolist()
    found = shrink(positions, images)
    media = short == tiny("qwen2_5_vl").model.config.image_token_id
    for start in range(0, len(short), chunk):
        items = []
        for image, output in zip(images, outputs, strict=True):
            first, last = max(start, image.offset), min(start + chunk, image.offset + image.kept)
            if first < last:
                part = output[first - image.offset : last - image.offset]
                items.append((len(part), without_places(part, 3)[1]))
        found = place(found, media, start, items)
        assert torch.equal(place(found, media, start, items), found)  # a chunk that is computed again
    return found, positions[:, stays], short


def test_a_portrait_page_without_its_lowest_rows_goes_on_after_the_whole_page() -> None:
    """12 rows of 4: vLLM's pruning of videos goes on at base plus width (4), or after the kept maximum (6)."""
    found, expected, short = pruned([(12, 4)], [list(range(16))], words=3, chunk=1000)
    assert torch.equal(found, expected)
    base = int(found[0, 4])
    assert found[:, 20].tolist() == [base + 12] * 3
    assert int(found.max()) + 1 - len(short) == base + 12 + 3 - len(short)  # where decoding goes on


def test_a_landscape_page_without_its_right_half_goes_on_after_the_whole_page() -> None:
    kept = [row * 12 + column for row in range(4) for column in range(6)]
    found, expected, _ = pruned([(4, 12)], [kept], words=2, chunk=1000)
    assert torch.equal(found, expected)


@given(st.data())
def test_positions_equal_those_of_deletion_for_any_tokens_images_and_chunks(data: st.DataObject) -> None:
    side = st.integers(1, 9)
    rows = data.draw(st.lists(st.tuples(side, side), min_size=1, max_size=3))
    kept = [sorted(data.draw(st.sets(st.integers(0, height * width - 1), min_size=1))) for height, width in rows]
    found, expected, _ = pruned(rows, kept, data.draw(st.integers(1, 3)), data.draw(st.integers(1, 40)))
    assert torch.equal(found, expected)


def test_positions_are_those_of_local_deletion() -> None:
    ids, positions, ((at, native),) = unpruned([(7, 3)], 2)
    kept = torch.tensor([0, 4, 5, 20])
    whole = PromptTensors(torch.zeros(len(ids), 2), positions, torch.arange(at, at + native), int(positions.max()) + 1)
    found, _, short = pruned([(7, 3)], [kept.tolist()], words=2, chunk=4)
    local = delete(whole, Selection(kept))
    assert torch.equal(found, local.positions)
    assert int(found.max()) + 1 == local.next_position
    assert len(short) == len(local.embeds)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_rows_and_columns_survive_the_encoders_number_format(dtype: torch.dtype) -> None:
    """A strip of 3 x 700 tokens: bfloat16 alone would round columns above 256."""
    indices = torch.tensor([0, 257, 699, 700, 1399, 2099])
    features, where = without_places(with_places(torch.zeros(6, 8, dtype=dtype), indices, 700), 8)
    assert where is not None
    assert features.shape == (6, 8)
    assert torch.equal(where[0] * 700 + where[1], indices)
    assert without_places(features, 8)[1] is None
