"""Writing new keys and values into the paged cache, and merging two partial attention states."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .device import LOG2E, finite_max, log_sum_exp, reciprocal
from .validation import (
    FP8_DTYPES,
    QUERY_DTYPES,
    check_companion,
    check_device,
    check_last_stride,
    require,
)


@triton.jit
def write_kv_kernel(
    k_ptr,
    v_ptr,
    k_cache_ptr,
    v_cache_ptr,
    slot_mapping_ptr,
    k_scale_ptr,
    v_scale_ptr,
    stride_k_token,
    stride_k_head,
    stride_v_token,
    stride_v_head,
    stride_k_cache_page,
    stride_k_cache_slot,
    stride_k_cache_head,
    stride_v_cache_page,
    stride_v_cache_slot,
    stride_v_cache_head,
    HEAD_DIM: tl.constexpr,
    HEAD_DIM_PADDED: tl.constexpr,
    PAGE_SIZE: tl.constexpr,
    FP8_MAX: tl.constexpr,
):
    """Grid: (num_tokens, num_kv_heads). A negative slot marks a padding token."""
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1).to(tl.int64)
    slot = tl.load(slot_mapping_ptr + token)
    if slot < 0:
        return
    page = slot // PAGE_SIZE
    offset = slot % PAGE_SIZE
    dims = tl.arange(0, HEAD_DIM_PADDED)
    live = dims < HEAD_DIM
    k = tl.load(k_ptr + token * stride_k_token + head * stride_k_head + dims, mask=live, other=0.0)
    v = tl.load(v_ptr + token * stride_v_token + head * stride_v_head + dims, mask=live, other=0.0)
    if FP8_MAX > 0:
        k = k.to(tl.float32)
        v = v.to(tl.float32)
        if k_scale_ptr is not None:
            k = k / tl.load(k_scale_ptr)
        if v_scale_ptr is not None:
            v = v / tl.load(v_scale_ptr)
        # saturate: a cast of larger values gives NaN
        k = tl.minimum(tl.maximum(k, -FP8_MAX), FP8_MAX)
        v = tl.minimum(tl.maximum(v, -FP8_MAX), FP8_MAX)
    k_cache_ptr += page * stride_k_cache_page + offset * stride_k_cache_slot + head * stride_k_cache_head
    v_cache_ptr += page * stride_v_cache_page + offset * stride_v_cache_slot + head * stride_v_cache_head
    tl.store(k_cache_ptr + dims, k.to(k_cache_ptr.dtype.element_ty), mask=live)
    tl.store(v_cache_ptr + dims, v.to(v_cache_ptr.dtype.element_ty), mask=live)


def write_kv_cache(
    k: torch.Tensor,
    v: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    *,
    slot_mapping: torch.Tensor,
    k_scale: torch.Tensor | None = None,
    v_scale: torch.Tensor | None = None,
) -> None:
    """Scatter new keys and values into the cache, in place.

    Args:
        k, v: [num_tokens, num_kv_heads, head_dim], float16, bfloat16 or float32.
        k_cache, v_cache: [num_pages, page_size, num_kv_heads, head_dim], any strides with a contiguous
            last dimension; k's dtype, or fp8 e4m3 (values are divided by the scale and saturated).
        slot_mapping: [num_tokens] int64, page * page_size + slot; negative for padding tokens.
        k_scale, v_scale: [1] float32, only with an fp8 cache.

    Raises:
        ValueError: an argument cannot work; names it, what was required and what was found.
    """
    require(isinstance(k, torch.Tensor), "k", "a tensor", type(k).__name__)
    require(k.dim() == 3, "k", "3 dimensions [num_tokens, num_kv_heads, head_dim]", list(k.shape))
    require(k.dtype in QUERY_DTYPES, "k", "dtype float16, bfloat16 or float32", k.dtype)
    check_device(k)
    check_last_stride("k", k)
    num_tokens, num_kv_heads, head_dim = k.shape
    check_companion("v", v, k, (num_tokens, num_kv_heads, head_dim), k.dtype)
    for name, cache in (("k_cache", k_cache), ("v_cache", v_cache)):
        require(isinstance(cache, torch.Tensor), name, "a tensor", type(cache).__name__)
        require(cache.dim() == 4, name, "4 dimensions [num_pages, page_size, ...]", list(cache.shape))
        shape = (*cache.shape[:2], num_kv_heads, head_dim)
        dtype = cache.dtype if cache.dtype in FP8_DTYPES else k.dtype
        check_companion(name, cache, k, shape, dtype)
    require(k_cache.shape == v_cache.shape, "v_cache", f"shape {list(k_cache.shape)}", list(v_cache.shape))
    require(k_cache.dtype == v_cache.dtype, "v_cache", f"dtype {k_cache.dtype}", v_cache.dtype)
    check_companion("slot_mapping", slot_mapping, k, (num_tokens,), torch.int64)
    fp8 = k_cache.dtype in FP8_DTYPES
    for name, scale in (("k_scale", k_scale), ("v_scale", v_scale)):
        if scale is not None:
            require(fp8, name, f"None with a {k_cache.dtype} cache", "a scale")
            check_companion(name, scale, k, (1,), torch.float32)
    if num_tokens == 0:
        return
    write_kv_kernel[(num_tokens, num_kv_heads)](
        k,
        v,
        k_cache,
        v_cache,
        slot_mapping,
        k_scale,
        v_scale,
        *k.stride()[:2],
        *v.stride()[:2],
        *k_cache.stride()[:3],
        *v_cache.stride()[:3],
        HEAD_DIM=head_dim,
        HEAD_DIM_PADDED=triton.next_power_of_2(head_dim),
        PAGE_SIZE=k_cache.shape[1],
        FP8_MAX=torch.finfo(k_cache.dtype).max if fp8 else 0,
        num_warps=1,
        enable_fp_fusion=True,
    )


@triton.jit
def merge_states_kernel(
    out_a_ptr,
    lse_a_ptr,
    out_b_ptr,
    lse_b_ptr,
    out_ptr,
    lse_ptr,
    stride_a_token,
    stride_a_head,
    stride_b_token,
    stride_b_head,
    stride_out_token,
    stride_out_head,
    NUM_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    HEAD_DIM_PADDED: tl.constexpr,
):
    """Grid: (num_tokens, num_heads)."""
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    row = token * NUM_HEADS + head + tl.arange(0, 1)
    lse_a = tl.load(lse_a_ptr + row) * LOG2E
    lse_b = tl.load(lse_b_ptr + row) * LOG2E
    largest = tl.maximum(lse_a, lse_b)
    weight_a = tl.exp2(lse_a - finite_max(largest))
    weight_b = tl.exp2(lse_b - finite_max(largest))
    total = weight_a + weight_b
    dims = tl.arange(0, HEAD_DIM_PADDED)
    live = dims < HEAD_DIM
    # a state that saw no key is not read: its output carries no meaning
    live_a = live & (weight_a > 0)
    live_b = live & (weight_b > 0)
    a = tl.load(out_a_ptr + token * stride_a_token + head * stride_a_head + dims, mask=live_a, other=0.0)
    b = tl.load(out_b_ptr + token * stride_b_token + head * stride_b_head + dims, mask=live_b, other=0.0)
    merged = (a.to(tl.float32) * weight_a + b.to(tl.float32) * weight_b) * reciprocal(total)
    pointers = out_ptr + token * stride_out_token + head * stride_out_head + dims
    tl.store(pointers, merged.to(out_ptr.dtype.element_ty), mask=live)
    tl.store(lse_ptr + row, log_sum_exp(total, largest))


def merge_states(
    out_a: torch.Tensor,
    lse_a: torch.Tensor,
    out_b: torch.Tensor,
    lse_b: torch.Tensor,
    *,
    out: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Merge attention over two disjoint sets of keys, such as a shared prefix and what follows it.

    Args:
        out_a, out_b: [num_tokens, num_heads, head_dim], each normalised over its own keys.
        lse_a, lse_b: [num_tokens, num_heads] float32, natural log-sum-exps; -inf where a state saw no
            key. A sink belongs into one of the two states only.
        out: like out_a; allocated if None.

    Returns:
        (out, lse) over the union of the keys.

    Raises:
        ValueError: an argument cannot work; names it, what was required and what was found.
    """
    require(isinstance(out_a, torch.Tensor), "out_a", "a tensor", type(out_a).__name__)
    require(out_a.dim() == 3, "out_a", "3 dimensions [num_tokens, num_heads, head_dim]", list(out_a.shape))
    require(out_a.dtype in QUERY_DTYPES, "out_a", "dtype float16, bfloat16 or float32", out_a.dtype)
    check_device(out_a)
    check_last_stride("out_a", out_a)
    shape = tuple(out_a.shape)
    check_companion("out_b", out_b, out_a, shape, out_a.dtype)
    for name, lse in (("lse_a", lse_a), ("lse_b", lse_b)):
        check_companion(name, lse, out_a, shape[:2], torch.float32)
        require(lse.is_contiguous(), name, "a contiguous tensor", f"strides {lse.stride()}")
    if out is None:
        out = torch.empty_like(out_a, memory_format=torch.contiguous_format)
    else:
        check_companion("out", out, out_a, shape, out_a.dtype)
    merged_lse = torch.empty(shape[:2], dtype=torch.float32, device=out_a.device)
    if shape[0]:
        merge_states_kernel[shape[:2]](
            out_a,
            lse_a,
            out_b,
            lse_b,
            out,
            merged_lse,
            *out_a.stride()[:2],
            *out_b.stride()[:2],
            *out.stride()[:2],
            NUM_HEADS=shape[1],
            HEAD_DIM=shape[2],
            HEAD_DIM_PADDED=triton.next_power_of_2(shape[2]),
            num_warps=1,
            enable_fp_fusion=True,
        )
    return out, merged_lse
