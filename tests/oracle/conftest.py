"""Kernels in plain torch: an honest one, and ways to make it dishonest."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from pagegate.cases.registry import Kernel


def attend(
    q, k_cache, v_cache, *, block_table, seq_lens, cu_seqlens_q, max_query_len, out=None, sliding_window=None,
    **_,
):  # fmt: skip
    """Causal paged attention, with or without a window, with the roundings of a fast kernel; reads nothing that it may not."""
    out = torch.empty_like(q) if out is None else out
    ratio = q.shape[1] // k_cache.shape[2]
    for seq, n in enumerate(seq_lens.tolist()):
        start, stop = cu_seqlens_q[seq : seq + 2].tolist()
        if start == stop:
            continue
        context, size = n - (stop - start), k_cache.shape[1]
        first = 0 if sliding_window is None else max(0, context - sliding_window + 1)
        keys = torch.arange(first, max(n, first))
        pages = block_table[seq, keys // size]
        k, v = (c[pages, keys % size].float().repeat_interleave(ratio, 1) for c in (k_cache, v_cache))
        logits = torch.einsum("qhd,khd->hqk", q[start:stop].float(), k) * q.shape[2] ** -0.5
        distance = torch.arange(stop - start)[:, None] + context - keys[None]
        hidden = (distance < 0) | (distance >= (n + 1 if sliding_window is None else sliding_window))
        logits = logits.masked_fill(hidden, -torch.inf)
        weights = logits.softmax(-1).nan_to_num(0.0).to(q.dtype).float()
        out[start:stop] = torch.einsum("hqk,khd->qhd", weights, v).to(q.dtype)
    return out


@pytest.fixture
def honest() -> Callable[..., torch.Tensor]:
    return attend


@pytest.fixture
def kernel_of() -> Callable[[Callable[..., Any]], Kernel]:
    """A kernel entry around a function, with a plan, so that every relation applies."""
    return lambda function: Kernel("under_test", "", lambda: function, plan=lambda inputs: {})
