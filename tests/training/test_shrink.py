"""The cut of a reader on a CPU: what says nothing new can go without a trace, and what is chosen is the best choice."""

import itertools
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the trainer needs the [local] extra")
pytest.importorskip("transformers", reason="the trainer needs the [local] extra")

import numpy as np  # noqa: E402
import torch.nn.functional as F  # noqa: E402, N812
from torch import Tensor, nn  # noqa: E402
from training.batches import Batch  # noqa: E402
from training.examples import Layout, fill  # noqa: E402
from training.forward import FastForward, Geometry  # noqa: E402
from training.pool import WEIGHTS, unpack  # noqa: E402

from training import architectures, check, families, moments, reader, schedule, shrink  # noqa: E402

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small tensors on a busy machine: two threads that wait for each other take ten times as long as one."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(before)


def uneven(size: str) -> nn.Module:
    """A new reader whose scales and biases differ from channel to channel, as a trained one's do."""
    model = reader.new_model(size)
    for p in model.parameters():
        if p.ndim == 1:
            p.data += 0.3 * torch.randn_like(p)
    model.model.language_model.embed_tokens.weight.data *= 25  # of power 1, beside which a norm's epsilon is nothing
    return model


def sheet_of(model: nn.Module, gh: int = 6, gw: int = 5) -> moments.Sheet:
    """Noise on a grid of 6 x 5 visual tokens, with three questions of different lengths."""
    geo = FastForward(model).geometry(gh, gw, False, CPU)
    qa, start = torch.randint(8, 110, (1, 3, 20)), torch.tensor([[5, 9, 14]])
    end, ones = torch.tensor([[12, 13, 20]]), torch.ones(1, 3)
    return Batch(torch.randn(1, gh * gw, 4, 588), qa, start, end, ones, ones.bool(), ones, ones), geo


@torch.no_grad()
def logits(model: nn.Module, sheet: moments.Sheet) -> Tensor:
    batch, geo = sheet
    fast = FastForward(model)
    states, _ = fast.decode(fast.encode(batch.x, geo), batch.qa, geo)
    said = (torch.arange(batch.qa.shape[2]) < batch.end[..., None]).flatten()  # padding is not measured
    return F.linear(states, model.lm_head.weight)[said]


def difference(a: Tensor, b: Tensor) -> float:
    return ((a - b).norm() / b.norm()).item()


def orthonormal(n: int, k: int) -> Tensor:
    return torch.linalg.qr(torch.randn(n, k, dtype=torch.float64))[0]


def copy_rows(fs: Sequence[nn.Linear], source: Tensor, target: Tensor) -> None:
    """Rows ``target`` of every map become rows ``source``."""
    for p in (p for f in fs for p in f.parameters()):
        p.data[target] = p.data[source]


def head(*numbers: int) -> Tensor:
    """Channels of these heads."""
    return (torch.tensor(numbers)[:, None] * 64 + torch.arange(64)).flatten()


def test_norms_scales_move_into_the_maps_behind_them() -> None:
    model = uneven("small")
    sheet = sheet_of(model)
    before = logits(model, sheet)
    for stream in shrink.streams(model):
        shrink.fold(stream)
        assert all(len(norm.weight.unique()) == 1 for norm, _ in stream.readers())
    assert difference(logits(model, sheet), before) < 1e-5


def test_a_rotation_of_the_streams_changes_nothing() -> None:
    model = uneven("small")
    sheet = sheet_of(model)
    before = logits(model, sheet)
    for stream in shrink.streams(model):
        shrink.fold(stream)
    seen, embed = moments.moments(model, [sheet]), model.model.language_model.embed_tokens
    for stream in shrink.streams(model):
        q = orthonormal(len(stream.norm.weight), len(stream.norm.weight))
        shrink.narrow(stream, seen, q)
    shrink.put(embed, embed.weight.data.double() @ q)
    assert difference(logits(model, sheet), before) < 1e-5


def test_moments_are_of_what_the_stock_models_maps_read() -> None:
    model = uneven("small")
    batch, geo = sheet_of(model)
    for name in ("qa", "start", "end", "asked"):  # the stock model is asked once: the second question, which is padded
        setattr(batch, name, getattr(batch, name)[:, 1:2])
    seen, read = moments.moments(model, [(batch, geo)]), {}
    handles = [
        f.register_forward_pre_hook(lambda f, args: read.__setitem__(f, args[0].detach().flatten(0, -2)))
        for f in model.modules()
        if isinstance(f, nn.Linear)
    ]
    check.stock_logits(model, batch.x[0], batch.qa[0, 0, : batch.end.item()], geo)
    for handle in handles:
        handle.remove()
    assert len(read) == len(seen) == 4 * 5 + 2 + 4 * 7 + 1  # encoder, merger, language model, head
    inner, told = model.model.visual.merger.mlp[0], batch.end.item() - batch.start.item() + 1
    read[inner] = read[inner].reshape(-1, len(seen[inner]))
    read[model.lm_head] = read[model.lm_head][-told:]
    for f, x in read.items():
        c = (x.T @ x).double()
        c += moments.RIDGE * c.diagonal().mean() * torch.eye(len(c))
        assert difference(seen[f], c) < 1e-5


def test_guess_is_the_least_squares_guess() -> None:
    x = torch.randn(400, 9, dtype=torch.float64) @ torch.randn(9, 9, dtype=torch.float64)
    for k in (1, 4, 9):
        q = orthonormal(9, k)
        expected = torch.linalg.lstsq(x @ q, x).solution.T
        assert torch.allclose(shrink.guess(x.T @ x, q), expected, atol=1e-9)
    assert torch.allclose(shrink.guess(x.T @ x, q), q, atol=1e-9)


def missed(x: Tensor, w: Tensor, kept: Sequence[int]) -> float:
    """Power of w x that no linear map of the kept channels gives."""
    y, x = x @ w.T, x[:, kept]
    return (y - x @ torch.linalg.lstsq(x, y).solution).pow(2).sum().item()


def test_the_neuron_that_goes_is_the_one_that_is_missed_least() -> None:
    x = torch.randn(300, 8, dtype=torch.float64) @ torch.randn(8, 8, dtype=torch.float64)
    w, here = torch.randn(5, 8, dtype=torch.float64), list(range(8))
    c, before = x.T @ x, w.clone()
    while len(here) > 1:
        here = min(([i for i in here if i != gone] for gone in here), key=lambda kept: missed(x, w, kept))
        assert shrink.best_neurons(c, w, len(here)).tolist() == here
    assert torch.equal(w, before)


def test_of_two_equal_neurons_one_goes_first_however_loud() -> None:
    x, w = torch.randn(300, 8, dtype=torch.float64), torch.randn(5, 8, dtype=torch.float64)
    x[:, 2] *= 10
    x[:, 5] = x[:, 2] + 1e-3 * torch.randn(300)
    kept = shrink.best_neurons(x.T @ x, w, 7).tolist()
    assert len({2, 5} & set(kept)) == 1


def test_heads_that_stay_are_missed_least_as_many_of_each_group() -> None:
    x, w = torch.randn(700, 6 * 64, dtype=torch.float64), torch.randn(8, 6 * 64, dtype=torch.float64)
    x[:, head(0, 1, 2)] *= 3  # any of these is missed more than any of the other group
    x[:, head(4)] = x[:, head(3)] @ torch.randn(64, 64, dtype=torch.float64) / 5 + torch.randn(700, 64) / 9
    pairs = list(itertools.combinations(range(3), 2))
    sets = [head(*a, *(3 + i for i in b)).tolist() for a in pairs for b in pairs]
    best = min(sets, key=lambda kept: missed(x, w, kept))
    assert shrink.best_heads(x.T @ x, w, 2, 4).tolist() == best
    assert not {3 * 64, 4 * 64} <= set(best)  # not both of the pair of which one nearly says it all


def test_channels_that_repeat_others_go_without_a_trace() -> None:
    model = uneven("small")
    seeing, telling = shrink.streams(model)
    outer, shuffled = telling.first, torch.randperm(512)
    for b in seeing.attentions:  # two heads, three times: q, k and v
        copy_rows(b.reads, torch.cat([head(0), head(2), head(4)]), torch.cat([head(1), head(3), head(5)]))
    for b in telling.attentions:  # two groups of two heads
        copy_rows(b.reads[:1], head(0, 3), head(1, 2))
    for b in seeing.mlps:
        copy_rows(b.reads, torch.arange(160), torch.arange(160, 320))
    copy_rows([seeing.last], shuffled[:256], shuffled[256:])
    sheet = sheet_of(model)
    before, seen = logits(model, sheet), moments.moments(model, [sheet])
    for b in seeing.attentions:
        shrink.thin(b.reads, b.write, seen[b.write], head(0))
    for b in telling.attentions:
        shrink.thin(b.reads[:1], b.write, seen[b.write], head(0, 3))
    for b in seeing.mlps:
        shrink.thin(b.reads, b.write, seen[b.write], torch.arange(160, 320))
    shrink.thin([seeing.last], outer, seen[outer], shuffled[256:].sort().values)
    model.model.visual.config.num_heads = 1
    assert outer.weight.shape == (256, 256)
    assert difference(logits(model, sheet), before) < 2e-3  # what the ridge costs


def add_slack(model: nn.Module) -> None:
    """A base reader that says no more than a small one can: what ``shrink`` takes away is idle, a copy or empty."""
    seeing, telling = shrink.streams(model)
    for b in seeing.attentions:  # three heads, three times: q, k and v
        copy_rows(b.reads, head(1, 4, 7), head(2, 5, 8))
    for b in telling.attentions:  # two groups of three heads
        copy_rows(b.reads[:1], head(0, 3), head(2, 4))
    for maps, n, kept in ([b.reads for b in seeing.mlps], 512, 320), ([b.reads for b in telling.mlps], 640, 384):
        for fs in maps:
            copy_rows(fs, torch.arange(n - kept), torch.arange(kept, n))
    copy_rows([seeing.last], torch.arange(256), torch.arange(512, 768))
    for stream, gone, width in zip((seeing, telling), shrink.GONE, (128, 256), strict=True):
        for b in (stream.attentions[gone], stream.mlps[gone]):
            for p in b.write.parameters():
                p.data.zero_()
        q = orthonormal(len(stream.norm.weight), width).float()
        for p in (p for f in stream.writers() for p in f.parameters()):
            p.data = (q @ (q.T @ p.data.view(len(p), -1))).view_as(p)
    embed = model.model.language_model.embed_tokens
    embed.weight.data = embed.weight.data @ q @ q.T


def test_a_reader_with_slack_becomes_a_small_one_that_tells_the_same(tmp_path: Path) -> None:
    teacher = uneven("base")
    teacher.config.vision_config.window_size = 56
    add_slack(teacher)
    sheets = [sheet_of(teacher), sheet_of(teacher, 4, 7)]
    before = [logits(teacher, sheet) for sheet in sheets]
    small = shrink.shrink(teacher, sheets, "small")
    for sheet, expected in zip(sheets, before, strict=True):
        assert difference(logits(small, sheet), expected) < 5e-3  # what the ridge costs
    reader.save(small, str(tmp_path / "small"))
    loaded = architectures.load(tmp_path / "small", torch.float32)
    stock = reader.new_model("small")
    assert type(loaded) is type(stock)
    assert {k: v.shape for k, v in loaded.state_dict().items()} == {k: v.shape for k, v in stock.state_dict().items()}
    assert all(torch.equal(v.bfloat16().float(), loaded.state_dict()[k]) for k, v in small.state_dict().items())
    assert loaded.config.vision_config.window_size == 56


def shown(family: str, geo: Geometry) -> tuple[Tensor, Tensor]:
    """Patches and questions of a family's first page of the training split."""
    page = families.draw(family, 0, "train")
    layout = Layout(*page.image.size)
    row = np.zeros(layout.bytes, np.uint8)
    fill(row, page, random.Random(0), augment=False)
    rows = unpack(torch.from_numpy(row)[None], layout)
    return geo.show(rows["image"], torch.float32, noise=False, colour=False), rows["qa"].long()


def test_sheets_are_pages_of_the_training_split() -> None:
    model = reader.new_model("small")
    sheets = shrink.training_sheets(model, len(WEIGHTS) - 1)
    assert len(sheets) == len(WEIGHTS)  # as many of each family
    for family, (batch, geo) in zip(WEIGHTS, sheets, strict=True):
        x, qa = shown(family, geo)
        assert torch.equal(batch.x, x)
        assert torch.equal(batch.qa[:, :1], qa[:, :1])
        assert batch.qa.shape[1] == schedule.questions(family)
