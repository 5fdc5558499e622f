"""How does a smaller reader start? As the larger one, cut down.

    PYTHONPATH=src:. python -m training.shrink --teacher src/stakes/models/weights/reader --out runs/shrunk --pages 24
    PYTHONPATH=src:. python -m training.train --run runs/small --size small --init runs/shrunk --level 2

Everything is cut at once and without a gradient, from the second moments C = sum x x^T of what each linear map reads on
training pages (SliceGPT, Ashkboos et al. 2024; Optimal Brain Surgeon for the neurons, Hassibi and Stork 1993):

* layers: ``GONE``;
* heads: those stay from which what all of them write is best regressed, as many of each key-value group;
* neurons: the one whose loss the others make up best goes, again and again;
* width: norms' scales are folded into the matrices behind them; then a rotation of the residual stream changes nothing,
  and of its eigenvectors the leading ones stay. A norm over k of n channels that hold the share s of the power is
  scaled by sqrt(s n / k).

Where Q^T x of x stays, G Q^T x with G = C Q (Q^T C Q)^-1 is the best linear guess at x, and the matrix behind is
multiplied by G: what stays takes over what it can of what goes. It does not read yet (answer loss 3.8, error 1), but it
learns soon: after 60 steps on cards the answer loss is 1.5, without G 2.1, from nothing 2.5.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from training.batches import prepare
from training.evaluate import load_pages
from training.examples import Layout
from training.forward import FastForward
from training.moments import Sheet, judge, moments
from training.pool import WEIGHTS, unpack

from training import architectures, reader, schedule

HEAD = 64  # head_dim of every size
# Blocks of the base reader that go, of the encoder and of the language model. Without the third layer of text the
# answer loss is 1.8, without another 2.2 or more. The encoder's block with full attention must keep its place, so that
# only the last two may go: the loss is 1.0 and 1.1 without the one and the other, but without the last it learns
# sooner (60 steps on cards: answer loss 1.52, not 1.75; ocr 1.08, not 1.36).
GONE = (4, 2)


@dataclass(frozen=True)
class Branch:
    """What adds to a residual stream: a norm, the maps behind it (fused qkv; q, k and v; gate and up), the last map."""

    norm: nn.Module
    reads: list[nn.Linear]
    write: nn.Linear


@dataclass(frozen=True)
class Stream:
    """A residual stream: the map that writes it first, its branches, the norm and the map that read it last."""

    first: nn.Module
    attentions: list[Branch]
    mlps: list[Branch]
    norm: nn.Module
    last: nn.Linear

    def readers(self) -> list[tuple[nn.Module, list[nn.Linear]]]:
        """Every norm and the maps behind it."""
        return [*((b.norm, b.reads) for b in self.attentions + self.mlps), (self.norm, [self.last])]

    def writers(self) -> list[nn.Module]:
        """Every map whose output is added to the stream."""
        return [self.first, *(b.write for b in self.attentions + self.mlps)]


def mlp(norm: nn.Module, m: nn.Module) -> Branch:
    """The same in both stacks."""
    return Branch(norm, [m.gate_proj, m.up_proj], m.down_proj)


def streams(model: nn.Module) -> tuple[Stream, Stream]:
    """The encoder's and the language model's; the merger's two maps end the one and begin the other."""
    eye, lm = model.model.visual, model.model.language_model
    inner, _, outer = eye.merger.mlp
    seeing = [Branch(b.norm1, [b.attn.qkv], b.attn.proj) for b in eye.blocks]
    attended = [(b.input_layernorm, b.self_attn) for b in lm.layers]
    telling = [Branch(norm, [a.q_proj, a.k_proj, a.v_proj], a.o_proj) for norm, a in attended]
    return (
        Stream(eye.patch_embed.proj, seeing, [mlp(b.norm2, b.mlp) for b in eye.blocks], eye.merger.ln_q, inner),
        Stream(outer, telling, [mlp(b.post_attention_layernorm, b.mlp) for b in lm.layers], lm.norm, model.lm_head),
    )


@torch.no_grad()
def guess(c: Tensor, q: Tensor) -> Tensor:
    """(n, k) G with G Q^T x the best linear guess at x of moment ``c`` (n, n) from Q^T x; Q itself where k = n."""
    return torch.linalg.solve(q.T @ c @ q, q.T @ c).T


def put(f: nn.Module, weight: Tensor, bias: Tensor | None = None) -> None:
    """New values, of whatever shape."""
    f.weight = nn.Parameter(weight.float().contiguous())
    if bias is not None:
        f.bias = nn.Parameter(bias.float())


def fold(stream: Stream) -> None:
    """Norms' scales into the maps behind; one number stays, their rms, so that the matrices keep their size."""
    for norm, fs in stream.readers():
        size = norm.weight.data.pow(2).mean().sqrt()
        for f in fs:
            put(f, (f.weight.data.view(len(f.weight), -1, len(norm.weight)) * norm.weight.data / size).flatten(1))
        put(norm, size.expand(len(norm.weight)))


def basis(stream: Stream, seen: dict[nn.Linear, Tensor], k: int) -> Tensor:
    """(n, k) leading eigenvectors of the stream, as its readers see it; each counts alike."""
    read = [seen[fs[0]] for _, fs in stream.readers()]
    return torch.linalg.eigh(sum(c / c.trace() for c in read))[1].flip(1)[:, :k]


def narrow(stream: Stream, seen: dict[nn.Linear, Tensor], q: Tensor) -> None:
    """The stream x becomes Q^T x; Q is (n, k) with orthonormal columns."""
    n, k = q.shape
    for norm, fs in stream.readers():
        c = seen[fs[0]]
        for f in fs:
            put(f, (f.weight.data.double().view(len(f.weight), -1, n) @ guess(c, q)).flatten(1))
        put(norm, norm.weight.data[:k] * ((q.T @ c @ q).trace() / c.trace() * n / k).sqrt())
    for f in stream.writers():
        weight = (q.T @ f.weight.data.double().flatten(1)).view(k, *f.weight.shape[1:])
        put(f, weight, None if f.bias is None else q.T @ f.bias.data.double())


def thin(reads: Sequence[nn.Linear], write: nn.Linear, c: Tensor, kept: Tensor) -> None:
    """Of the channels between ``reads`` and ``write``, of moment ``c``, some stay; a fused qkv has them three times."""
    for f in reads:
        rows = (torch.arange(len(f.weight) // len(c))[:, None] * len(c) + kept).flatten()
        put(f, f.weight.data[rows], None if f.bias is None else f.bias.data[rows])
    put(write, write.weight.data.double() @ guess(c, torch.eye(len(c), dtype=c.dtype)[:, kept]))


def best_heads(c: Tensor, w: Tensor, groups: int, heads: int) -> Tensor:
    """Channels of the ``heads`` from which w x is best regressed, as many of each of the ``groups`` in turn."""
    each, w, eye = len(c) // HEAD // groups, w.double(), torch.eye(len(c), dtype=c.dtype)
    choices = [itertools.combinations(range(g * each, (g + 1) * each), heads // groups) for g in range(groups)]
    sets = [torch.tensor(sum(choice, ())) for choice in itertools.product(*choices)]
    channels = [(s[:, None] * HEAD + torch.arange(HEAD)).flatten() for s in sets]
    # the power of w x that its guess has
    return max(channels, key=lambda kept: ((w @ guess(c, eye[:, kept])) * (w @ c[:, kept])).sum().item())


def best_neurons(c: Tensor, w: Tensor, n: int) -> Tensor:
    """n columns of w: what goes costs |w_i|^2 / (C^-1)_ii of the power of w x, after the others have made up for it."""
    inverse, w, here = torch.linalg.inv(c), w.double().clone(), torch.ones(len(c), dtype=torch.bool)
    for _ in range(len(c) - n):
        i = int((w.pow(2).sum(0) / inverse.diagonal()).masked_fill(~here, torch.inf).argmin())
        row = inverse[i] / inverse[i, i]
        w -= w[:, i, None] * row
        inverse -= inverse[:, i, None] * row
        here[i], inverse[i, i] = False, 1.0
    return here.nonzero()[:, 0]


def shrink(model: nn.Module, sheets: Iterable[Sheet], size: str) -> nn.Module:
    """A stock model of ``size`` from a larger one, which is cut in place and of no use afterwards."""
    eye, lm = model.model.visual, model.model.language_model
    _, eye_width, eye_heads, eye_neurons, _ = reader.SIZES[size]["vision"]
    _, width, heads, groups, neurons = reader.SIZES[size]["text"]
    for stream in streams(model):
        fold(stream)
    seen = moments(model, sheets)
    for stack, i in zip((eye.blocks, lm.layers), GONE, strict=True):
        stack.pop(i)
    seeing, telling = streams(model)
    for stream, g, h, n in ((seeing, 1, eye_heads, eye_neurons), (telling, groups, heads, neurons)):
        for b in stream.attentions:  # of q, k and v only q: its heads share the others, all of which stay
            thin(b.reads[:1], b.write, seen[b.write], best_heads(seen[b.write], b.write.weight.data, g, h))
        for b in stream.mlps:
            thin(b.reads, b.write, seen[b.write], best_neurons(seen[b.write], b.write.weight.data, n))
    inner, outer = seeing.last, telling.first
    thin([inner], outer, seen[outer], best_neurons(seen[outer], outer.weight.data, 4 * eye_width))
    narrow(seeing, seen, basis(seeing, seen, eye_width))
    q = basis(telling, seen, width)
    narrow(telling, seen, q)
    put(lm.embed_tokens, lm.embed_tokens.weight.data.double() @ q)
    config = reader.build_config(size)
    config.vision_config.window_size = model.config.vision_config.window_size
    small = type(model)(config)
    small.load_state_dict(model.state_dict())
    return small


def training_sheets(model: nn.Module, n: int) -> list[Sheet]:
    """The first ``n`` pages of the training split, rounded up to as many of each family, one a sheet, in full size."""
    fast, sheets = FastForward(model), []
    for (family, w, h), rows in load_pages(list(WEIGHTS), -(-n // len(WEIGHTS)), "train").items():
        geo = fast.geometry(h // 28, w // 28, False, torch.device("cpu"))
        for row in rows.split(1):
            batch = prepare(unpack(row, Layout(w, h)), geo, schedule.questions(family), torch.float32, noise=False)
            sheets.append((batch, geo))
    return sheets


def main() -> None:
    """Cut, say what is left of the reading, save a normal folder."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--teacher", type=Path, required=True, help="folder of the larger reader")
    p.add_argument("--out", type=Path, required=True, help="folder to write; --init of training.train")
    p.add_argument("--pages", type=int, default=24, help="training pages to measure on")
    a = p.parse_args()
    model = architectures.load(a.teacher, torch.float32)
    sheets = training_sheets(model, a.pages)
    small = shrink(model, sheets, "small")
    print("answer loss {:.3f}, error {:.3f}".format(*judge(small, sheets)), flush=True)
    reader.save(small, str(a.out))


if __name__ == "__main__":
    main()
