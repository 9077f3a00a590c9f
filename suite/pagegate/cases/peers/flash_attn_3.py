"""FlashAttention-3: its own interface, vLLM's build of it, or the fa3-fwd wheel.

fa3-fwd is built without paged caches, windows and float16 (its config says so): there, `prepare` gathers
the pages, so the call attends over dense keys. That is a bound for paged kernels rather than a peer.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch

from pagegate.cases.inputs import Inputs
from pagegate.cases.spec import AttentionSpec

from . import find_library, longest, safe_table, scale_of, window_of

_PAGED = ("flash_attn_interface", "flash_attn_3.flash_attn_interface")
_VLLM = "vllm.vllm_flash_attn.flash_attn_interface"
_DENSE = "fa3_fwd_interface"


def parameters(
    causal: Any = None, softmax_scale: Any = None, sliding_window: Any = None, logits_soft_cap: Any = None
) -> None:
    """What all three builds take; windows only where they were built in."""


@cache
def _library() -> tuple[Any, str]:
    """The first build that is there and loads; or None and why none does. Paged ones first."""
    reasons = []
    for name in (*_PAGED, _VLLM, _DENSE):
        module, reason = find_library(name)
        if module is not None and name == _VLLM and not module.FA3_AVAILABLE:
            reason = f"{name}: {module.FA3_UNAVAILABLE_REASON}"
        if not reason:
            return module, ""
        reasons.append(reason)
    return None, "; ".join(reasons)


def unsupported(spec: AttentionSpec) -> str | None:
    module, reason = _library()
    if module is None:
        return reason
    if not _on_hopper():
        return "required a Hopper GPU (sm_90), found another device"
    if spec.dtype == "fp32" or (spec.dtype == "fp16" and module.__name__ == _DENSE):
        return f"not built for {spec.dtype}"
    if spec.head_dim % 8:
        return f"required a head_dim that is a multiple of 8, found {spec.head_dim}"
    if spec.sliding_window is not None and module.__name__ == _DENSE:
        return "fa3-fwd is built without windows"
    return None


def _on_hopper() -> bool:
    return torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0)


def prepare(inputs: Inputs) -> Callable[[], torch.Tensor]:
    module, _ = _library()
    left, right = window_of(inputs)
    common: dict[str, Any] = {
        "softmax_scale": scale_of(inputs),
        "causal": inputs.features.get("causal", True),
        "softcap": inputs.features.get("logits_soft_cap") or 0.0,
        # FlashAttention takes causal and (-1, -1) together
        "window_size": (left, right) if left >= 0 else (-1, -1),
    }
    if module.__name__ == _DENSE:
        return _over_gathered_keys(module, inputs, common)
    metadata = _plan(module, inputs, common)
    if module.__name__ == _VLLM:
        return _vllm_call(module, inputs, common | {"scheduler_metadata": metadata})
    return partial(
        module.flash_attn_with_kvcache,
        inputs.q,
        inputs.k_cache,
        inputs.v_cache,
        cache_seqlens=inputs.seq_lens,
        page_table=safe_table(inputs),
        cu_seqlens_q=inputs.cu_seqlens_q,
        max_seqlen_q=inputs.max_query_len,
        scheduler_metadata=metadata,
        **common,
    )


def _plan(module: Any, inputs: Inputs, common: dict[str, Any]) -> Any:
    """How tiles are dealt out: made once per step of a model, so outside the call."""
    return module.get_scheduler_metadata(
        batch_size=inputs.seq_lens.shape[0],
        max_seqlen_q=inputs.max_query_len,
        max_seqlen_k=longest(inputs)
        if module.__name__ == _VLLM
        else inputs.block_table.shape[1] * inputs.k_cache.shape[1],
        num_heads_q=inputs.q.shape[1],
        num_heads_kv=inputs.k_cache.shape[2],
        headdim=inputs.q.shape[2],
        cache_seqlens=inputs.seq_lens,
        qkv_dtype=inputs.q.dtype,
        cu_seqlens_q=inputs.cu_seqlens_q,
        page_size=inputs.k_cache.shape[1],
        causal=common["causal"],
        window_size=common["window_size"],
        has_softcap=common["softcap"] > 0,
    )


def _vllm_call(module: Any, inputs: Inputs, common: dict[str, Any]) -> Callable[[], torch.Tensor]:
    return partial(
        module.flash_attn_varlen_func,
        q=inputs.q,
        k=inputs.k_cache,
        v=inputs.v_cache,
        max_seqlen_q=inputs.max_query_len,
        cu_seqlens_q=inputs.cu_seqlens_q,
        max_seqlen_k=longest(inputs),
        seqused_k=inputs.seq_lens,
        block_table=safe_table(inputs),
        num_splits=0,
        fa_version=3,
        **common | {"window_size": list(common["window_size"])},
    )


def _over_gathered_keys(module: Any, inputs: Inputs, common: dict[str, Any]) -> Callable[[], torch.Tensor]:
    """Dense caches [num_seqs, longest, num_kv_heads, head_dim]; what lies past a sequence is zero."""
    size, most = inputs.k_cache.shape[1], longest(inputs)
    table = safe_table(inputs)[:, : -(-most // size)].long()
    past = torch.arange(table.shape[1] * size, device=table.device)[None] >= inputs.seq_lens[:, None]
    k, v = (
        cache[table].flatten(1, 2).masked_fill(past[..., None, None], 0.0)
        for cache in (inputs.k_cache, inputs.v_cache)
    )
    return partial(
        module.flash_attn_with_kvcache,
        inputs.q,
        k,
        v,
        cache_seqlens=inputs.seq_lens,
        cu_seqlens_q=inputs.cu_seqlens_q,
        max_seqlen_q=inputs.max_query_len,
        **common,
    )
