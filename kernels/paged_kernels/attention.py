"""The public attention call: checks, launch configuration, launches."""

from __future__ import annotations

import math
from typing import Any

import torch
import triton

from .launch import LaunchConfig, Problem, Rung, machine_of, q_block_bound
from .naive import naive_kernel
from .planning import choose_config
from .splits import reduce_splits_kernel
from .unified import unified_kernel
from .validation import check_attention, require


def paged_attention(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    *,
    block_table: torch.Tensor,
    seq_lens: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    max_query_len: int,
    softmax_scale: float | None = None,
    causal: bool = True,
    sliding_window: int | None = None,
    logits_soft_cap: float | None = None,
    alibi_slopes: torch.Tensor | None = None,
    sinks: torch.Tensor | None = None,
    k_scale: torch.Tensor | None = None,
    v_scale: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
    return_lse: bool = False,
    config: LaunchConfig | None = None,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Attention of a ragged batch of queries over a paged KV cache.

    Args:
        q: [num_tokens, num_query_heads, head_dim], float16, bfloat16 or float32. Rows past
            cu_seqlens_q[-1] are padding: they are neither read nor written.
        k_cache, v_cache: [num_pages, page_size, num_kv_heads, head_dim] in logical order, any strides
            with a contiguous last dimension; q's dtype or fp8 e4m3.
        block_table: [num_seqs, max_pages] int32, the pages of each sequence in order.
        seq_lens: [num_seqs] int32, all keys of each sequence, the new ones included.
        cu_seqlens_q: [num_seqs + 1] int32, where each sequence's queries begin.
        max_query_len: at least the longest query.
        softmax_scale: 1 / sqrt(head_dim) if None.
        causal: query i of a sequence sees keys up to seq_len - query_len + i.
        sliding_window: visible keys up to and including the query's own position; None = off.
            It limits the past only, also when causal is False.
        logits_soft_cap: cap * tanh(logit / cap), before ALiBi and masks; None = off.
        alibi_slopes: [num_query_heads] float32; adds slope * (key position - query position).
        sinks: [num_query_heads]; one more logit per head in the softmax's denominator, without a value.
        k_scale, v_scale: [1] float32, multiply the cache's values (fp8 dequantisation).
        out: like q; allocated if None.
        return_lse: also return the natural log of the softmax's denominator (sink included),
            [num_tokens, num_query_heads] float32.
        config: launch parameters; chosen from the shapes if None.

    Returns:
        out, or (out, lse). A query that sees no key gets 0, and -inf (or its sink) as lse.

    Raises:
        ValueError: an argument cannot work; names it, what was required and what was found.
    """
    # fmt: off
    check_attention(
        q, k_cache, v_cache, block_table=block_table, seq_lens=seq_lens, cu_seqlens_q=cu_seqlens_q,
        max_query_len=max_query_len, softmax_scale=softmax_scale, sliding_window=sliding_window,
        logits_soft_cap=logits_soft_cap, alibi_slopes=alibi_slopes, sinks=sinks, k_scale=k_scale,
        v_scale=v_scale, out=out,
    )
    # fmt: on
    if out is None:
        out = torch.empty_like(q, memory_format=torch.contiguous_format)
    num_tokens, num_query_heads, head_dim = q.shape
    lse = None
    if return_lse:
        lse = torch.empty((num_tokens, num_query_heads), dtype=torch.float32, device=q.device)
    if config is None:
        config = plan(q, k_cache, block_table, max_query_len, sliding_window)
    _check_config(config, num_query_heads // k_cache.shape[2])
    if num_tokens and seq_lens.shape[0]:
        common: dict[str, Any] = dict(
            q_ptr=q,
            k_ptr=k_cache,
            v_ptr=v_cache,
            out_ptr=out,
            lse_ptr=lse,
            block_table_ptr=block_table,
            seq_lens_ptr=seq_lens,
            cu_seqlens_q_ptr=cu_seqlens_q,
            alibi_slopes_ptr=alibi_slopes,
            sinks_ptr=sinks,
            k_scale_ptr=k_scale,
            v_scale_ptr=v_scale,
            softmax_scale=1 / math.sqrt(head_dim) if softmax_scale is None else float(softmax_scale),
            logits_soft_cap=None if logits_soft_cap is None else float(logits_soft_cap),
            sliding_window=sliding_window,
            num_seqs=seq_lens.shape[0],
            stride_q_token=q.stride(0),
            stride_q_head=q.stride(1),
            stride_k_page=k_cache.stride(0),
            stride_k_slot=k_cache.stride(1),
            stride_k_head=k_cache.stride(2),
            stride_v_page=v_cache.stride(0),
            stride_v_slot=v_cache.stride(1),
            stride_v_head=v_cache.stride(2),
            stride_out_token=out.stride(0),
            stride_out_head=out.stride(1),
            stride_table_seq=block_table.stride(0),
            CAUSAL=causal,
            HEAD_DIM=head_dim,
            HEAD_DIM_PADDED=max(16, triton.next_power_of_2(head_dim)),
            PAGE_SIZE=k_cache.shape[1],
            TILE=config.tile,
            num_warps=config.num_warps,
            num_stages=config.num_stages,
            enable_fp_fusion=True,
        )
        if config.rung == "naive":
            _launch_naive(q, k_cache, common)
        else:
            _launch_unified(q, k_cache, common, config, max_query_len)
    return out if lse is None else (out, lse)


def plan(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    block_table: torch.Tensor,
    max_query_len: int,
    sliding_window: int | None = None,
    rung: Rung = "unified",
) -> LaunchConfig:
    """The launch configuration that `paged_attention` would choose; reads shapes only."""
    problem = Problem(
        num_tokens=q.shape[0],
        num_seqs=block_table.shape[0],
        max_query_len=max_query_len,
        capacity=block_table.shape[1] * k_cache.shape[1],
        num_query_heads=q.shape[1],
        num_kv_heads=k_cache.shape[2],
        head_dim=q.shape[2],
        element_size=q.element_size(),
        cache_element_size=k_cache.element_size(),
        sliding_window=sliding_window,
    )
    return choose_config(problem, machine_of(q.device), rung)


def _check_config(config: LaunchConfig, gqa_ratio: int) -> None:
    holds = config.rung == "naive" or config.block_m >= gqa_ratio
    require(holds, "config", f"block_m of at least the GQA ratio {gqa_ratio}", config.block_m)


def _fuse_across_lanes(q: torch.Tensor) -> bool:
    """Whether products may be fused into the sums of a reduction over lanes.

    Triton 3.9's AMD backend adds a lane's unrounded product to its partner's rounded one: the partners then
    differ in the last bit and write both results to one place in LDS.
    """
    return machine_of(q.device).backend != "hip"


def _launch_naive(q: torch.Tensor, k_cache: torch.Tensor, common: dict[str, Any]) -> None:
    num_query_heads = q.shape[1]
    common["enable_fp_fusion"] = _fuse_across_lanes(q)
    naive_kernel[(q.shape[0], num_query_heads)](
        **common, num_query_heads=num_query_heads, gqa_ratio=num_query_heads // k_cache.shape[2]
    )


def _launch_unified(
    q: torch.Tensor, k_cache: torch.Tensor, common: dict[str, Any], config: LaunchConfig, max_query_len: int
) -> None:
    num_tokens, num_query_heads, head_dim = q.shape
    num_kv_heads, num_seqs, splits = k_cache.shape[2], common["num_seqs"], config.num_splits
    gqa_ratio = num_query_heads // num_kv_heads
    block_q = config.block_m // gqa_ratio
    small_m = max(16, triton.next_power_of_2(gqa_ratio))
    one_block = max_query_len <= block_q
    split_small = splits > 1 and not one_block and not config.split_prompts
    num_q_blocks = num_seqs if one_block else q_block_bound(num_tokens, num_seqs, block_q)
    grid = (num_q_blocks * num_kv_heads, splits)
    if split_small:
        grid = ((num_q_blocks + num_seqs * (splits - 1)) * num_kv_heads, 1)
    partial_out = partial_lse = None
    if splits > 1:
        rows = (splits, num_tokens, num_query_heads)
        partial_out = torch.empty((*rows, head_dim), dtype=torch.float32, device=q.device)
        partial_lse = torch.empty(rows, dtype=torch.float32, device=q.device)
    shared = dict(
        GQA_RATIO=gqa_ratio,
        BLOCK_M=config.block_m,
        MOST_ROWS=small_m if split_small else 1 << 30,
        MIN_TILES=config.min_tiles,
        OVERLAP=config.overlap and splits > 1,
    )
    unified_kernel[grid](
        **common,
        **shared,
        partial_out_ptr=partial_out,
        partial_lse_ptr=partial_lse,
        num_tokens=num_tokens,
        num_kv_heads=num_kv_heads,
        num_q_blocks=num_q_blocks,
        num_splits=splits,
        SMALL_M=small_m,
        SAME_STRIDES=common["stride_k_page"] == common["stride_v_page"]
        and common["stride_k_slot"] == common["stride_v_slot"],
        LANE_SUMS=config.lane_sums,
        ONE_BLOCK=one_block,
        SPLIT_SMALL=split_small,
        **({} if config.maxnreg is None else {"maxnreg": config.maxnreg}),
    )
    if splits > 1:
        heads = config.heads_per_reduction
        # tokens that may have been split: all, or each sequence's first few
        queries = max_query_len if one_block else small_m // gqa_ratio if split_small else 0
        names = "out_ptr lse_ptr cu_seqlens_q_ptr seq_lens_ptr sinks_ptr v_scale_ptr sliding_window num_seqs "
        names += "stride_out_token stride_out_head CAUSAL HEAD_DIM HEAD_DIM_PADDED TILE"
        reduce_splits_kernel[(num_seqs * queries or num_tokens, triton.cdiv(num_query_heads, heads))](
            **{name: common[name] for name in names.split()},
            **shared,
            partial_out_ptr=partial_out,
            partial_lse_ptr=partial_lse,
            num_tokens=num_tokens,
            num_query_heads=num_query_heads,
            num_splits=splits,
            HEADS=heads,
            SPLITS_PER_STEP=max(1, min(triton.next_power_of_2(splits), 64 // heads)),
            QUERIES=queries,
            num_warps=config.reduction_warps,
            enable_fp_fusion=_fuse_across_lanes(q),
            **({"launch_pdl": True} if config.overlap else {}),
        )
