"""Attention from its definition: in float64, and as a low-precision twin that sets the budget.

The twin rounds where every fast kernel rounds: logits and softmax in float32, weights to the queries'
dtype before they meet the values, the output to its dtype. How far it strays from float64 is how far
a kernel may stray (the idea of FlashAttention's tests and of attention-gym's error budgets).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from pagegate.cases.content import Content
from pagegate.cases.features import active_features

_SCORES = {"cpu": 1 << 22, "cuda": 1 << 27}


@dataclass(frozen=True)
class Reference:
    """What is right, and how wrong one may be.

    out [num_tokens, num_query_heads, head_dim] and lse [num_tokens, num_query_heads] in float64 (0 and
    -inf, or the sink, where a query sees nothing); out_budget and lse_budget [num_tokens,
    num_query_heads]; out_mean_budget: for the mean absolute error.
    """

    out: torch.Tensor
    lse: torch.Tensor
    out_budget: torch.Tensor
    lse_budget: torch.Tensor
    out_mean_budget: float


@dataclass(frozen=True)
class _Parts:
    out: torch.Tensor
    lse: torch.Tensor
    # the rest [num_tokens, num_query_heads], for float64 only
    reach: torch.Tensor  # max over dims of sum(weight * |value|): what a wrong weight can move
    loudness: torch.Tensor  # largest |q| |k| scale: what rounding the logits scales with
    floor: torch.Tensor  # what weights too small for a normal float32 can move
    weight_rounding: torch.Tensor  # max over dims of the norm of (rounding of each weight * value)


def reference(content: Content) -> Reference:
    """The float64 result of a case and the budgets that its twin yields."""
    with _full_float32():
        exact = _attend(content, torch.float64)
        twin = _attend(content, torch.float32)
    # float32 sums of products, a fast exp2 and the final division; eight of them in a row
    eps32 = torch.finfo(torch.float32).eps
    lse_size = exact.lse.abs().nan_to_num(0.0, 0.0, 0.0)
    # a tanh through exp2 strays by two ulps of 1 where its argument is small, however small (FlashInfer,
    # vLLM and SGLang compute it so)
    cap = content.spec.logits_soft_cap or 0.0
    rounding = 8 * eps32 * (1 + exact.loudness + lse_size) + 2 * eps32 * cap
    strayed = (twin.out - exact.out).abs()
    limits = torch.finfo(content.q.dtype)
    one_rounding = (limits.eps * exact.out.abs()).clamp(min=limits.tiny * limits.eps)
    # the twin rounds a loud key's weight once, perhaps luckily: weight_rounding bounds what it may move
    margin = rounding * exact.reach + exact.floor + exact.weight_rounding
    out_budget = 2 * _largest(strayed) + _largest(one_rounding) + margin
    lse_error = (twin.lse - exact.lse).abs().nan_to_num(0.0, 0.0, 0.0)
    mean = 2 * _mean(strayed) + _mean(one_rounding) + _mean(margin)
    return Reference(exact.out, exact.lse, out_budget, 2 * lse_error + rounding, mean)


def _largest(x: torch.Tensor) -> torch.Tensor:
    return x.amax(dim=-1)


def _mean(x: torch.Tensor) -> float:
    return float(x.mean()) if x.numel() else 0.0


@contextmanager
def _full_float32() -> Iterator[None]:
    """The twin must not be rounded to TF32 behind our back."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def _attend(content: Content, compute: torch.dtype) -> _Parts:
    """Attention in `compute`; float32 means the twin, with weights and output rounded to q's dtype."""
    spec, device = content.spec, content.q.device
    shape = (spec.num_tokens, spec.num_query_heads)
    out = torch.zeros((*shape, spec.head_dim), dtype=torch.float64, device=device)
    lse = torch.full(shape, -torch.inf, dtype=torch.float64, device=device)
    bounds = torch.zeros((4, *shape), dtype=torch.float64, device=device)
    q_starts, k_starts = content.query_starts(), content.key_starts()
    for seq, query_len in enumerate(spec.query_lens):
        keys = spec.reachable(seq)
        k = _stored(content, "keys", k_starts[seq], keys, compute)
        v = _stored(content, "values", k_starts[seq], keys, compute)
        step = max(1, _SCORES.get(device.type, 1 << 22) // max(1, len(keys) * spec.num_query_heads))
        for first in range(0, query_len, step):
            rows = slice(q_starts[seq] + first, q_starts[seq] + min(first + step, query_len))
            part = _attend_rows(content, seq, first, content.q[rows].to(compute), k, v, keys)
            out[rows], lse[rows] = part.out, part.lse
            bounds[:, rows] = torch.stack([part.reach, part.loudness, part.floor, part.weight_rounding])
    return _Parts(out, lse, *bounds)


def _stored(content: Content, name: str, start: int, keys: range, compute: torch.dtype) -> torch.Tensor:
    """[num_kv_heads, keys, head_dim] of one sequence, dequantised."""
    data: torch.Tensor = getattr(content, name)[start + keys.start : start + keys.stop]
    data = data.to(compute).transpose(0, 1)
    scale = content.arguments.get("k_scale" if name == "keys" else "v_scale")
    return data if scale is None else data * scale.to(compute)


def _attend_rows(
    content: Content, seq: int, first: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, keys: range
) -> _Parts:
    """Some queries of one sequence over its reachable keys. q [queries, num_query_heads, head_dim]."""
    spec, arguments, compute = content.spec, content.arguments, q.dtype
    count = q.shape[0]
    grouped = q.reshape(count, spec.num_kv_heads, spec.gqa_ratio, spec.head_dim).permute(1, 2, 0, 3)
    # one product per KV head: its query heads and queries as rows
    rows = grouped.reshape(spec.num_kv_heads, spec.gqa_ratio * count, spec.head_dim)
    logits = (rows @ k.transpose(1, 2)).reshape(spec.num_query_heads, count, len(keys)) * spec.scale
    query_positions = spec.seq_lens[seq] - spec.query_lens[seq] + first + torch.arange(count, device=q.device)
    key_positions = torch.arange(keys.start, keys.stop, device=q.device)
    distances = key_positions[None, :] - query_positions[:, None]
    seen = torch.ones_like(distances, dtype=torch.bool)
    for feature in active_features(spec):
        if feature.logits:
            logits = feature.logits(logits, arguments, distances)
        if feature.visible:
            seen = feature.visible(seen, arguments, query_positions[:, None], key_positions[None, :])
    logits = logits.masked_fill(~seen, -torch.inf)
    sinks = arguments.get("sinks")
    if sinks is not None:
        column = sinks.to(compute)[:, None, None].expand(-1, count, 1)
        logits = torch.cat([logits, column], dim=2)
    lse = torch.logsumexp(logits, dim=2)
    # relative to the row's maximum, as kernels keep them: what fp16 rounds to subnormals depends on it
    largest = logits.amax(dim=2) if logits.shape[2] else lse
    weights = torch.exp(logits - largest.masked_fill(largest == -torch.inf, 0.0)[..., None])
    total = weights.sum(dim=2)
    inverse = torch.where(total > 0, 1 / total, 0.0)
    weights = weights[..., : len(keys)]
    if compute != torch.float64:
        weights = weights.to(content.q.dtype).to(compute)
    by_kv_head = weights.reshape(spec.num_kv_heads, spec.gqa_ratio * count, len(keys))
    out = (by_kv_head @ v).reshape(spec.num_query_heads, count, spec.head_dim) * inverse[..., None]
    out = out.transpose(0, 1)
    if compute != torch.float64:
        out = out.to(content.q.dtype).to(compute)
        zero = torch.zeros((count, spec.num_query_heads), dtype=compute, device=q.device)
        return _Parts(out, lse.transpose(0, 1), zero, zero, zero, zero)
    reach = (by_kv_head @ v.abs()).amax(-1).reshape(spec.num_query_heads, count) * inverse
    largest_key = k.norm(dim=-1).amax(dim=-1) if len(keys) else k.new_zeros(spec.num_kv_heads)
    loudness = q.norm(dim=-1) * largest_key.repeat_interleave(spec.gqa_ratio)[None] * spec.scale
    tiny = 4 * torch.finfo(torch.float32).tiny * v.abs().sum(dim=1).amax(dim=-1)
    floor = tiny.repeat_interleave(spec.gqa_ratio)[None].expand_as(loudness)
    limits = torch.finfo(content.q.dtype)
    errors = (by_kv_head * (limits.eps / 2)).clamp(min=limits.tiny * limits.eps / 2)
    spread = (errors**2 @ v**2).sqrt().amax(-1).reshape(spec.num_query_heads, count) * inverse
    return _Parts(out, lse.transpose(0, 1), reach.transpose(0, 1), loudness, floor, spread.transpose(0, 1))
