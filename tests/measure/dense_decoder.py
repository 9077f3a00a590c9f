"""A decoder step from its definition: dense keys and values, one sequence at a time, in float64 or as a twin
that rounds to the model's dtype where tensors are stored. Shares with the decoder only weights and batches."""

import math
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Step:
    """logits [num_seqs, vocab]; keys and values: per sequence and layer, [new tokens, num_kv_heads, head_dim]."""

    logits: torch.Tensor
    keys: list
    values: list


def dense_step(model, caches, running, exact):
    """caches: as they were before the step. exact: float64 throughout, or else rounded as the model stores."""
    stored = model.embedding.dtype
    compute = torch.float64 if exact else torch.float32

    def rounded(x):
        return x if exact else x.to(stored).to(compute)

    def times(x, weight):
        return rounded(x @ weight.to(compute).t())

    shape = model.shape
    keys, values, logits = [], [], []
    for seq in running:
        count, context = len(seq.tokens), seq.seq_len - len(seq.tokens)
        positions = torch.arange(context, seq.seq_len, dtype=torch.float64)
        x = model.embedding[list(seq.tokens)].to(compute)
        mine = ([], [])
        for number, layer in enumerate(model.layers):
            row = times(rounded(norm(x, layer.attention_norm, shape.norm_eps)), layer.qkv)
            q, k, v = row.view(count, -1, shape.head_dim).split(
                [shape.num_query_heads, shape.num_kv_heads, shape.num_kv_heads], dim=1
            )
            q, k = (rounded(rotate(heads, positions, shape.rope_theta)) for heads in (q, k))
            mine[0].append(k)
            mine[1].append(v)
            old = (gather(cache, seq.pages, context).to(compute) for cache in caches[number])
            all_k, all_v = (torch.cat(pair) for pair in zip(old, (k, v), strict=True))
            attended = rounded(attend(q, all_k, all_v))
            x = rounded(x + times(attended.flatten(1), layer.output))
            gate, up = times(rounded(norm(x, layer.mlp_norm, shape.norm_eps)), layer.gate_up).chunk(2, dim=1)
            x = rounded(x + times(rounded(rounded(gate * torch.sigmoid(gate)) * up), layer.down))
        logits.append(times(rounded(norm(x[-1:], model.norm, shape.norm_eps)), model.head)[0])
        keys.append(mine[0])
        values.append(mine[1])
    return Step(torch.stack(logits), keys, values)


def norm(x, weight, eps):
    return x / (x.pow(2).mean(-1, keepdim=True) + eps).sqrt() * weight.to(x.dtype)


def rotate(heads, positions, theta):
    """Neighbouring dimensions turn together."""
    half = heads.shape[-1] // 2
    angles = positions[:, None] / theta ** (torch.arange(half, dtype=torch.float64) / half)
    cos, sin = (f(angles)[:, None].to(heads.dtype) for f in (torch.cos, torch.sin))
    even, odd = heads[..., 0::2], heads[..., 1::2]
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1).flatten(-2)


def gather(cache, pages, count):
    """The first `count` slots of a sequence's pages."""
    return torch.cat([cache[page] for page in pages] or [cache[:0].flatten(0, 1)])[:count]


def attend(q, k, v):
    """Causal, aligned at the end; query heads in groups of one KV head each."""
    ratio = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(ratio, dim=1) for x in (k, v))
    logits = torch.einsum("qhd,khd->hqk", q, k) / math.sqrt(q.shape[-1])
    seen = torch.ones(q.shape[0], k.shape[0], dtype=torch.bool).tril(k.shape[0] - q.shape[0])
    return torch.einsum("hqk,khd->qhd", logits.masked_fill(~seen, -torch.inf).softmax(-1), v)
