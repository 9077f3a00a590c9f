"""torch's scaled_dot_product_attention, after gathering the pages inside the call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pagegate.cases.inputs import Inputs
from pagegate.cases.spec import AttentionSpec


def parameters(
    out: Any = None,
    causal: Any = None,
    softmax_scale: Any = None,
    sliding_window: Any = None,
) -> None:
    """What torch's scaled_dot_product_attention can be made to do; the call itself is prepared."""


def unsupported(spec: AttentionSpec) -> str | None:
    return None


def prepare(inputs: Inputs) -> Callable[..., torch.Tensor]:
    """Sequences of equal lengths as one dense batch: gather their pages, then attend. Lengths are read
    on the host here, so a captured graph holds for these lengths only."""
    page_size = inputs.k_cache.shape[1]
    ratio = inputs.q.shape[1] // inputs.k_cache.shape[2]
    starts, lengths = inputs.cu_seqlens_q.tolist(), inputs.seq_lens.tolist()
    groups: dict[tuple[int, int], list[int]] = {}
    for seq, seq_len in enumerate(lengths):
        query_len = starts[seq + 1] - starts[seq]
        if query_len:
            groups.setdefault((query_len, seq_len), []).append(seq)
    device = inputs.q.device
    batches = []
    for (query_len, seq_len), seqs in groups.items():
        mask = _mask(inputs, query_len, seq_len)
        # a key that no query sees may lie in a page that must not be read
        first = 0 if mask is None or not seq_len else int(mask.any(0).to(torch.int8).argmax()) // page_size
        blind = mask is not None and not bool(mask.any())
        pages = [inputs.block_table[s, first : 0 if blind else -(-seq_len // page_size)] for s in seqs]
        rows = [list(range(starts[s], starts[s] + query_len)) for s in seqs]
        if mask is not None:
            mask = mask[:, first * page_size :] if not blind else mask[:, :0]
        keys = 0 if blind else seq_len - first * page_size
        index = torch.tensor(rows, device=device)
        batches.append((index, torch.stack(pages).long(), keys, mask))

    def attend(out: torch.Tensor) -> torch.Tensor:
        for rows, pages, keys, mask in batches:
            q = inputs.q[rows].transpose(1, 2)
            k, v = (
                cache[pages].flatten(1, 2)[:, :keys].transpose(1, 2)
                for cache in (inputs.k_cache, inputs.v_cache)
            )
            if mask is not None:
                # unseen slots of a read page may hold anything, and 0 * NaN is NaN
                dead = ~mask.any(0)[:, None]
                k, v = k.masked_fill(dead, 0.0), v.masked_fill(dead, 0.0)
            attended = torch.nn.functional.scaled_dot_product_attention(
                q, k, v, mask, scale=inputs.features.get("softmax_scale"), enable_gqa=ratio > 1
            )
            if mask is not None:
                attended = attended.masked_fill(~mask.any(1)[:, None], 0.0)
            out[rows] = attended.transpose(1, 2)
        return out

    return attend


def _mask(inputs: Inputs, query_len: int, seq_len: int) -> torch.Tensor | None:
    """[query_len, seq_len], True where seen; None if everything is."""
    queries = torch.arange(query_len, device=inputs.q.device)[:, None] + seq_len - query_len
    keys = torch.arange(seq_len, device=inputs.q.device)[None]
    seen = torch.ones(query_len, seq_len, dtype=torch.bool, device=inputs.q.device)
    if inputs.features.get("causal", True):
        seen &= keys <= queries
    window = inputs.features.get("sliding_window")
    if window is not None:
        seen &= queries - keys < window
    return None if bool(seen.all()) and seq_len else seen
