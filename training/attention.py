"""Which token sees which? The three attention patterns of the fast forward, each on flash kernels.

* encoder windows: every window (112 x 112 px) of every image is one sequence of a variable-length flash call;
* image prefix: plain causal attention, one sequence an image;
* questions: all questions of a page share its prefix. Each sees the prefix and itself, not the others. Attention to the
  prefix and to itself are two flash calls, merged exactly by their log-sum-exp: ``o = sum_i o_i exp(lse_i - lse)``.

On a CPU the same patterns run as one dense mask: slow, and the reference that the tests compare with.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor


class PrefixAttention(torch.autograd.Function):
    """Questions over [shared prefix] + [own causal block].

    q, k, v: ``(b, nq * L, heads, d)``; kp, vp: ``(b, P, heads, d)``. Backward calls flash backward on each part with
    the *merged* output and log-sum-exp, which makes both parts' probabilities the true ones.
    """

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, kp: Tensor, vp: Tensor, nq: int) -> Tensor:
        """Merge the two flash outputs."""
        b, total, h, d = q.shape
        length = total // nq
        flash = torch.ops.aten._flash_attention_forward
        oa, la, ra, ua, _ = flash(q, kp, vp, None, None, total, kp.shape[1], 0.0, False, False)
        q2, k2, v2 = (t.reshape(b * nq, length, h, d) for t in (q, k, v))
        ob, lb, rb, ub, _ = flash(q2, k2, v2, None, None, length, length, 0.0, True, False)
        lb = lb.view(b, nq, h, length).transpose(1, 2).reshape(b, h, total)
        lse = torch.logaddexp(la, lb)
        wa, wb = ((t - lse).exp().transpose(1, 2)[..., None] for t in (la, lb))
        o = (oa.float() * wa + ob.view(b, total, h, d).float() * wb).to(q.dtype)
        ctx.save_for_backward(q, k, v, kp, vp, o, lse, ra, ua, rb, ub)
        ctx.nq = nq
        return o

    @staticmethod
    def backward(ctx: Any, do: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of both parts; the query's is their sum."""
        q, k, v, kp, vp, o, lse, ra, ua, rb, ub = ctx.saved_tensors
        b, total, h, d = q.shape
        nq, length = ctx.nq, total // ctx.nq
        do = do.contiguous()
        flash = torch.ops.aten._flash_attention_backward
        dq, dkp, dvp = flash(do, q, kp, vp, o, lse, None, None, total, kp.shape[1], 0.0, False, ra, ua)
        q2, k2, v2, o2, do2 = (t.reshape(b * nq, length, h, d) for t in (q, k, v, o, do))
        l2 = lse.view(b, h, nq, length).transpose(1, 2).reshape(b * nq, h, length).contiguous()
        dq2, dk, dv = flash(do2, q2, k2, v2, o2, l2, None, None, length, length, 0.0, True, rb, ub)
        return dq + dq2.view_as(dq), dk.view_as(k), dv.view_as(v), dkp, dvp, None


def text_attention(q: Tensor, k: Tensor, v: Tensor, b: int, prefix: int, nq: int) -> Tensor:
    """Flat tokens ``(b * prefix + b * nq * L, heads, d)``, prefixes first -> ``(tokens, heads * d)``."""
    n, d = b * prefix, q.shape[-1]
    qp, kp, vp = (t[:n].view(b, prefix, -1, d) for t in (q, k, v))
    qq, kq, vq = (t[n:].view(b, -1, t.shape[1], d) for t in (q, k, v))
    if q.is_cuda:
        op = F.scaled_dot_product_attention(
            qp.transpose(1, 2), kp.transpose(1, 2), vp.transpose(1, 2), is_causal=True, enable_gqa=True
        ).transpose(1, 2)
        group = q.shape[1] // k.shape[1]  # repeated keys are small and keep flash backward on its plain path
        wide = [t.repeat_interleave(group, 2) for t in (kq, vq, kp, vp)]
        oq = PrefixAttention.apply(qq.contiguous(), *wide, nq)
    else:
        total, length = prefix + qq.shape[1], qq.shape[1] // nq
        block = torch.cat([torch.full((prefix,), -1), torch.arange(nq).repeat_interleave(length)])
        mask = (block[None] == -1) | (block[None] == block[:, None])
        mask &= torch.ones(total, total, dtype=torch.bool).tril()
        dense = (torch.cat(pair, 1).transpose(1, 2) for pair in ((qp, qq), (kp, kq), (vp, vq)))
        o = F.scaled_dot_product_attention(*dense, attn_mask=mask, enable_gqa=True).transpose(1, 2)
        op, oq = o[:, :prefix], o[:, prefix:]
    return torch.cat([op.reshape(n, -1), oq.reshape(q.shape[0] - n, -1)])


def full_attention(q: Tensor, k: Tensor, v: Tensor, b: int) -> Tensor:
    """Every patch of an image sees every other: ``(b * N, heads, d)`` -> ``(b * N, heads * d)``."""
    per_image = (t.view(b, -1, *t.shape[1:]).transpose(1, 2) for t in (q, k, v))
    return F.scaled_dot_product_attention(*per_image).transpose(1, 2).reshape(q.shape[0], -1)


def window_attention(q: Tensor, k: Tensor, v: Tensor, cu: Tensor, longest: int) -> Tensor:
    """Patches see their own window; ``cu`` holds the windows' starts over the whole batch, int32."""
    if q.is_cuda:
        from torch.nn.attention.varlen import varlen_attn

        return varlen_attn(q, k, v, cu, cu, longest, longest).reshape(q.shape[0], -1)
    window = torch.searchsorted(cu[1:].long(), torch.arange(q.shape[0]), right=True)
    mask = window[:, None] == window[None]
    o = F.scaled_dot_product_attention(*(t.transpose(0, 1)[None] for t in (q, k, v)), attn_mask=mask)
    return o[0].transpose(0, 1).reshape(q.shape[0], -1)
