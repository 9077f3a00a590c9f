"""FlashInfer's paged wrappers; planned on the host, as serving engines do once per step."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from pagegate.cases.inputs import Inputs
from pagegate.cases.spec import AttentionSpec

from . import find_library, safe_table, scale_of, window_of

_HEAD_DIMS = (64, 128, 256)
_WORKSPACE_BYTES = 512 << 20


def parameters(
    out: Any = None,
    causal: Any = None,
    softmax_scale: Any = None,
    sliding_window: Any = None,
    logits_soft_cap: Any = None,
) -> None:
    """What the wrappers plan for."""


def unsupported(spec: AttentionSpec) -> str | None:
    module, reason = find_library("flashinfer")
    if module is None:
        return reason
    if spec.dtype == "fp32":
        return "not built for fp32"
    if spec.head_dim not in _HEAD_DIMS:
        return f"required a head_dim of {', '.join(map(str, _HEAD_DIMS))}, found {spec.head_dim}"
    if not all(spec.seq_lens) or not all(spec.query_lens):
        return "required at least one key and one query per sequence, found none of either"
    return None


@cache
def _workspace(device: torch.device) -> torch.Tensor:
    return torch.zeros(_WORKSPACE_BYTES, dtype=torch.uint8, device=device)


def prepare(inputs: Inputs) -> Callable[..., torch.Tensor]:
    module, _ = find_library("flashinfer")
    q, cache_pair = inputs.q.contiguous(), (inputs.k_cache.contiguous(), inputs.v_cache.contiguous())
    starts, pages, last = _compressed_rows(inputs)
    shape = (q.shape[1], inputs.k_cache.shape[2], q.shape[2], inputs.k_cache.shape[1])
    planned: dict[str, Any] = {
        "sm_scale": scale_of(inputs),
        "window_left": window_of(inputs)[0],
        "logits_soft_cap": inputs.features.get("logits_soft_cap"),
        "q_data_type": q.dtype,
        "kv_data_type": inputs.k_cache.dtype,
    }
    if inputs.max_query_len == 1:
        ratio = shape[0] // shape[1]
        wrapper = module.BatchDecodeWithPagedKVCacheWrapper(
            _workspace(q.device), "NHD", use_tensor_cores=ratio >= 4
        )
        wrapper.plan(starts, pages, last, *shape, **planned)
    else:
        wrapper = module.BatchPrefillWithPagedKVCacheWrapper(_workspace(q.device), "NHD")
        causal = inputs.features.get("causal", True)
        wrapper.plan(inputs.cu_seqlens_q, starts, pages, last, *shape, causal=causal, **planned)
    tokens = int(inputs.cu_seqlens_q[-1])
    q = q[:tokens]

    def attend(out: torch.Tensor) -> torch.Tensor:
        if out.is_contiguous():
            wrapper.run(q, cache_pair, out=out[:tokens])
        else:
            out[:tokens] = wrapper.run(q, cache_pair)
        return out

    return attend


def _compressed_rows(inputs: Inputs) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The block table as FlashInfer takes it: where each sequence's pages start, the pages, and how many
    slots of the last page are used."""
    size = inputs.k_cache.shape[1]
    counts = (inputs.seq_lens + size - 1) // size
    starts = torch.nn.functional.pad(counts.cumsum(0), (1, 0)).to(torch.int32)
    columns = torch.arange(inputs.block_table.shape[1], device=counts.device)
    pages = safe_table(inputs)[columns[None] < counts[:, None]]
    return starts, pages, ((inputs.seq_lens - 1) % size + 1).to(torch.int32)
