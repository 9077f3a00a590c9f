"""vLLM's Triton kernel, launched as its Triton backend launches it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch

from pagegate.cases.inputs import Inputs
from pagegate.cases.spec import AttentionSpec

from . import find_library, longest, safe_table, scale_of, window_of

_MODULE = "vllm.v1.attention.ops.triton_unified_attention"
_SEGMENTS = 16
_SMALLEST_GRID = 128  # below so many programs, vLLM splits keys into segments


def parameters(
    out: Any = None,
    causal: Any = None,
    softmax_scale: Any = None,
    sliding_window: Any = None,
    logits_soft_cap: Any = None,
    alibi_slopes: Any = None,
    sinks: Any = None,
    k_scale: Any = None,
    v_scale: Any = None,
) -> None:
    """All features; but causal only."""


def unsupported(spec: AttentionSpec) -> str | None:
    module, reason = find_library(_MODULE)
    if module is None:
        return reason
    if not spec.causal:
        return "attends causally only"
    if any(keys < queries for keys, queries in zip(spec.seq_lens, spec.query_lens, strict=True)):
        return "expects each query's own key in the cache, found more queries than keys"
    if 0 in spec.seq_lens:
        return "expects at least one key per sequence, found none"
    # its distances count from the first query, which only a sink, a logit of its own, can tell
    return "counts ALiBi's distances otherwise, which sinks show" if spec.alibi and spec.sinks else None


def prepare(inputs: Inputs) -> Callable[..., torch.Tensor]:
    module, _ = find_library(_MODULE)
    features = inputs.features
    heads, kv_heads = inputs.q.shape[1], inputs.k_cache.shape[2]
    left, _ = window_of(inputs)
    arguments: dict[str, Any] = {
        "q": inputs.q,
        "k": inputs.k_cache,
        "v": inputs.v_cache,
        "cu_seqlens_q": inputs.cu_seqlens_q,
        "max_seqlen_q": inputs.max_query_len,
        "seqused_k": inputs.seq_lens,
        "max_seqlen_k": longest(inputs),
        "softmax_scale": scale_of(inputs),
        "causal": True,
        "window_size": (left, 0) if left >= 0 else (-1, -1),
        "block_table": safe_table(inputs),
        "softcap": features.get("logits_soft_cap") or 0.0,
        "q_descale": None,
        "alibi_slopes": features.get("alibi_slopes"),
        "sinks": features.get("sinks"),
    }
    for name in ("k", "v"):
        scale = features.get(f"{name}_scale")
        per_head = (inputs.seq_lens.shape[0], kv_heads)
        arguments[f"{name}_descale"] = None if scale is None else scale.expand(per_head)
    if "k_scale" in features and hasattr(module, "KVQuantMode"):
        arguments["kv_quant_mode"] = module.KVQuantMode.FP8_PER_TENSOR
    arguments |= _segments(inputs, _SMALLEST_GRID // kv_heads, heads)
    known = inspect.signature(module.unified_attention).parameters
    arguments = {name: value for name, value in arguments.items() if name in known}

    def attend(out: torch.Tensor) -> torch.Tensor:
        module.unified_attention(out=out, **arguments)
        return out

    return attend


def _segments(inputs: Inputs, most_sequences: int, heads: int) -> dict[str, Any]:
    """Scratch for split keys, as vLLM allocates it once per engine."""
    padded = 1 << (inputs.q.shape[2] - 1).bit_length()
    shape = (max(1, most_sequences), heads, _SEGMENTS)
    new = {"dtype": torch.float32, "device": inputs.q.device}
    return {
        "seq_threshold_3D": most_sequences,
        "num_par_softmax_segments": _SEGMENTS,
        "softmax_segm_output": torch.empty((*shape, padded), **new),  # type: ignore[call-overload]
        "softmax_segm_max": torch.empty(shape, **new),  # type: ignore[call-overload]
        "softmax_segm_expsum": torch.empty(shape, **new),  # type: ignore[call-overload]
    }
