"""Q-blocks, split-KV and its reduction: decode, prefill and any mix of them in one launch.

A Q-block packs the query heads that share a KV head (GQA) and a few query tokens into the rows of
one matrix product. Sequences with few queries use small blocks beside the large ones of prompts. Keys
of a Q-block may be split among programs; `splits.reduce_splits_kernel` merges the partial results.
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents

from .device import (
    LOG2E,
    absorb_sink,
    base2_logits,
    find_sequence,
    finite_max,
    load_page_ids,
    load_tile,
    log_sum_exp,
    matmul,
    reciprocal,
    slot_offsets,
    visible_keys,
)
from .splits import key_range, split_tiles


@triton.jit
def attend(
    acc,
    total,
    running_max,
    q,
    k_ptr,
    v_ptr,
    table_ptr,
    query_positions,
    slopes,
    scale,
    logits_soft_cap,
    sliding_window,
    first_tile,
    last_tile,
    begin,
    end,
    stride_k_page,
    stride_k_slot,
    stride_v_page,
    stride_v_slot,
    CAUSAL: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PAGE_SIZE: tl.constexpr,
    TILE: tl.constexpr,
    SAME_STRIDES: tl.constexpr,
    LANE_SUMS: tl.constexpr,
    MASKED: tl.constexpr,
):
    """Online softmax over tiles [first_tile, last_tile). Not MASKED: every row sees every key there.

    Page ids are loaded one tile ahead: the loads of keys and values then depend on nothing that is in
    flight, and the pipeliner keeps num_stages tiles of them on the way. Masked tiles are few: there a
    pipeline's prologue, which runs even without a tile, costs more than it hides.
    LANE_SUMS: `total` is [rows, TILE], summed by the caller after the last tile: no exchange between lanes
    per tile, for more registers.
    """
    dims = tl.arange(0, q.shape[1])
    pages = load_page_ids(table_ptr, first_tile * TILE, begin, end, PAGE_SIZE, TILE)
    for tile in tl.range(first_tile, last_tile, num_stages=1 if MASKED else None):
        positions = tile * TILE + tl.arange(0, TILE)
        live = (positions >= begin) & (positions < end)
        k_slots = slot_offsets(pages, positions, stride_k_page, stride_k_slot, PAGE_SIZE)
        v_slots = k_slots
        if not SAME_STRIDES:
            v_slots = slot_offsets(pages, positions, stride_v_page, stride_v_slot, PAGE_SIZE)
        pages = load_page_ids(table_ptr, (tile + 1) * TILE, begin, end, PAGE_SIZE, TILE)
        k = load_tile(k_ptr, k_slots, dims, live, HEAD_DIM, MASKED).to(q.dtype)
        products = matmul(q, tl.trans(k), tl.zeros([q.shape[0], TILE], tl.float32))
        if MASKED or logits_soft_cap is not None or slopes is not None:
            distances = positions[None, :] - query_positions[:, None]
            logits = base2_logits(products, scale, logits_soft_cap, slopes, distances)
            if MASKED:
                seen = visible_keys(positions[None, :], query_positions[:, None], sliding_window, CAUSAL)
                logits = tl.where(seen & live[None, :], logits, float("-inf"))
            new_max = tl.maximum(running_max, tl.max(logits, axis=1))
            subtrahend = finite_max(new_max)
            weights = tl.exp2(logits - subtrahend[:, None])
        else:
            # the scale is applied to the maximum alone, so that a weight costs one fused multiply-add
            new_max = tl.maximum(running_max, tl.max(products, axis=1) * (scale * LOG2E))
            subtrahend = new_max
            weights = tl.exp2(products * (scale * LOG2E) - subtrahend[:, None])
        shrink = tl.exp2(running_max - subtrahend)
        if LANE_SUMS:
            total = total * shrink[:, None] + weights
        else:
            total = total * shrink + tl.sum(weights, axis=1)
        running_max = new_max
        v = load_tile(v_ptr, v_slots, dims, live, HEAD_DIM, MASKED).to(q.dtype)
        acc = matmul(weights.to(q.dtype), v, acc * shrink[:, None])
    return acc, total, running_max


@triton.jit
def attend_block(
    q_ptr,
    k_ptr,
    v_ptr,
    out_ptr,
    lse_ptr,
    partial_out_ptr,
    partial_lse_ptr,
    table_ptr,
    alibi_slopes_ptr,
    sinks_ptr,
    k_scale_ptr,
    v_scale_ptr,
    softmax_scale,
    logits_soft_cap,
    sliding_window,
    num_tokens,
    num_query_heads,
    kv_head,
    query_begin,
    query_len,
    seq_len,
    first_query,
    begin,
    end,
    low,
    high,
    split,
    splits_used,
    stride_q_token,
    stride_q_head,
    stride_k_page,
    stride_k_slot,
    stride_v_page,
    stride_v_slot,
    stride_out_token,
    stride_out_head,
    CAUSAL: tl.constexpr,
    GQA_RATIO: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    HEAD_DIM_PADDED: tl.constexpr,
    PAGE_SIZE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    TILE: tl.constexpr,
    SAME_STRIDES: tl.constexpr,
    LANE_SUMS: tl.constexpr,
):
    """One Q-block over tiles [low, high): the output, or a partial result if several splits are used."""
    BLOCK_Q: tl.constexpr = BLOCK_M // GQA_RATIO
    context_len = seq_len - query_len
    rows = tl.arange(0, BLOCK_M)
    dims = tl.arange(0, HEAD_DIM_PADDED)
    queries = first_query + rows // GQA_RATIO
    heads = kv_head * GQA_RATIO + rows % GQA_RATIO
    row_live = (rows < BLOCK_Q * GQA_RATIO) & (queries < query_len)
    tokens = (query_begin + queries).to(tl.int64)
    q_offsets = tokens * stride_q_token + heads * stride_q_head
    cell_live = row_live[:, None] & (dims[None, :] < HEAD_DIM)
    q = tl.load(q_ptr + q_offsets[:, None] + dims[None, :], mask=cell_live, other=0.0)
    query_positions = context_len + queries

    scale = softmax_scale
    if k_scale_ptr is not None:
        scale = scale * tl.load(k_scale_ptr)
    slopes = None
    if alibi_slopes_ptr is not None:
        slopes = tl.load(alibi_slopes_ptr + heads, mask=row_live, other=0.0)[:, None]

    # keys that every row sees: [full_begin, full_end)
    last_query = tl.minimum(first_query + BLOCK_Q, query_len) - 1
    full_begin = 0
    full_end = seq_len
    if CAUSAL:
        full_end = tl.minimum(full_end, context_len + first_query + 1)
    if sliding_window is not None:
        full_begin = tl.maximum(context_len + last_query - sliding_window + 1, 0)
    full_low = tl.minimum(tl.maximum(tl.cdiv(full_begin, TILE), low), high)
    full_high = tl.minimum(tl.maximum(full_end // TILE, full_low), high)

    running_max = tl.full([BLOCK_M], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_M, TILE] if LANE_SUMS else [BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, HEAD_DIM_PADDED], tl.float32)
    # fmt: off
    if sliding_window is not None:
        acc, total, running_max = attend(
            acc, total, running_max, q, k_ptr, v_ptr, table_ptr, query_positions, slopes, scale,
            logits_soft_cap, sliding_window, low, full_low, begin, end,
            stride_k_page, stride_k_slot, stride_v_page, stride_v_slot,
            CAUSAL, HEAD_DIM, PAGE_SIZE, TILE, SAME_STRIDES, LANE_SUMS, MASKED=True,
        )
    acc, total, running_max = attend(
        acc, total, running_max, q, k_ptr, v_ptr, table_ptr, query_positions, slopes, scale,
        logits_soft_cap, sliding_window, full_low, full_high, begin, end,
        stride_k_page, stride_k_slot, stride_v_page, stride_v_slot,
        CAUSAL, HEAD_DIM, PAGE_SIZE, TILE, SAME_STRIDES, LANE_SUMS, MASKED=False,
    )
    acc, total, running_max = attend(
        acc, total, running_max, q, k_ptr, v_ptr, table_ptr, query_positions, slopes, scale,
        logits_soft_cap, sliding_window, full_high, high, begin, end,
        stride_k_page, stride_k_slot, stride_v_page, stride_v_slot,
        CAUSAL, HEAD_DIM, PAGE_SIZE, TILE, SAME_STRIDES, LANE_SUMS, MASKED=True,
    )
    # fmt: on

    if LANE_SUMS:
        total = tl.sum(total, axis=1)
    row_index = tokens * num_query_heads + heads
    if splits_used <= 1:
        sinks = None
        if sinks_ptr is not None:
            sinks = tl.load(sinks_ptr + heads, mask=row_live, other=0.0)
        acc_scale, total, running_max = absorb_sink(
            tl.full([BLOCK_M], 1.0, tl.float32), total, running_max, sinks
        )
        if v_scale_ptr is not None:
            acc_scale = acc_scale * tl.load(v_scale_ptr)
        out = acc * (acc_scale * reciprocal(total))[:, None]
        out_offsets = tokens * stride_out_token + heads * stride_out_head
        out_pointers = out_ptr + out_offsets[:, None] + dims[None, :]
        tl.store(out_pointers, out.to(out_ptr.dtype.element_ty), mask=cell_live)
        if lse_ptr is not None:
            tl.store(lse_ptr + row_index, log_sum_exp(total, running_max), mask=row_live)
    elif partial_out_ptr is not None:
        row_stride = num_query_heads.to(tl.int64) * num_tokens
        partial_row = split * row_stride + row_index
        partial_pointers = partial_out_ptr + partial_row[:, None] * HEAD_DIM + dims[None, :]
        tl.store(partial_pointers, acc * reciprocal(total)[:, None], mask=cell_live)
        lse = tl.where(total > 0, running_max + tl.log2(tl.where(total > 0, total, 1.0)), float("-inf"))
        tl.store(partial_lse_ptr + partial_row, lse, mask=row_live)


@triton.jit(
    do_not_specialize=[
        "num_seqs",
        "sliding_window",
        "num_tokens",
        "num_kv_heads",
        "num_q_blocks",
        "num_splits",
    ]
)
def unified_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    out_ptr,
    lse_ptr,
    partial_out_ptr,
    partial_lse_ptr,
    block_table_ptr,
    seq_lens_ptr,
    cu_seqlens_q_ptr,
    alibi_slopes_ptr,
    sinks_ptr,
    k_scale_ptr,
    v_scale_ptr,
    softmax_scale,
    logits_soft_cap,
    sliding_window,
    num_seqs,
    num_tokens,
    num_kv_heads,
    num_q_blocks,
    num_splits,
    stride_q_token,
    stride_q_head,
    stride_k_page,
    stride_k_slot,
    stride_k_head,
    stride_v_page,
    stride_v_slot,
    stride_v_head,
    stride_out_token,
    stride_out_head,
    stride_table_seq,
    CAUSAL: tl.constexpr,
    GQA_RATIO: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    HEAD_DIM_PADDED: tl.constexpr,
    PAGE_SIZE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    SMALL_M: tl.constexpr,
    TILE: tl.constexpr,
    SAME_STRIDES: tl.constexpr,
    LANE_SUMS: tl.constexpr,
    ONE_BLOCK: tl.constexpr,
    SPLIT_SMALL: tl.constexpr,
    MOST_ROWS: tl.constexpr,
    MIN_TILES: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """Grid: (num_kv_heads * num_q_blocks, num_splits), KV heads fastest; num_q_blocks is an upper bound.
    With SPLIT_SMALL: (num_kv_heads * (num_q_blocks + num_seqs * (num_splits - 1)), 1), since a sequence
    of several Q-blocks needs no programs for splits that it does not have; those of the others come last.

    BLOCK_M: rows of a Q-block; SMALL_M: of those of sequences that have no more rows than that.
    LANE_SUMS: see `attend`.
    ONE_BLOCK: no sequence needs more than one Q-block. MOST_ROWS, MIN_TILES: see `split_tiles`.
    OVERLAP: the reduction may be launched early (it waits for this kernel's end by itself).
    Partial results: partial_out [num_splits, num_tokens, num_query_heads, HEAD_DIM] float32,
    normalised, and partial_lse [num_splits, num_tokens, num_query_heads] float32, base 2.
    """
    if OVERLAP:
        gdc_launch_dependents()
    BLOCK_Q: tl.constexpr = BLOCK_M // GQA_RATIO
    index = tl.program_id(0) // num_kv_heads
    kv_head = tl.program_id(0) % num_kv_heads
    split = tl.program_id(1)
    first_query = 0
    if ONE_BLOCK:
        seq = index
        query_begin = tl.load(cu_seqlens_q_ptr + seq)
    elif SPLIT_SMALL and index >= num_q_blocks:
        seq = (index - num_q_blocks) // (num_splits - 1)
        split = (index - num_q_blocks) % (num_splits - 1) + 1
        query_begin = tl.load(cu_seqlens_q_ptr + seq)
    else:
        # backwards: a prompt's last queries see the most keys, and go first
        q_block = num_q_blocks - 1 - index
        seq = find_sequence(cu_seqlens_q_ptr, q_block, num_seqs, BLOCK_Q)
        query_begin = tl.load(cu_seqlens_q_ptr + seq)
        first_query = (q_block - (query_begin // BLOCK_Q + seq)) * BLOCK_Q
    query_len = tl.load(cu_seqlens_q_ptr + seq + 1) - query_begin
    # loaded before the way out, so that it need not wait for the loads above
    seq_len = tl.load(seq_lens_ptr + seq)
    if first_query >= query_len:
        return
    begin, end = key_range(seq_len, query_len, first_query, sliding_window, CAUSAL, BLOCK_Q)
    first_tile = begin // TILE
    num_tiles = tl.maximum(tl.cdiv(end, TILE) - first_tile, 0)
    tiles_per_split = split_tiles(
        num_tiles, num_splits, query_len, first_query, GQA_RATIO, BLOCK_Q, MOST_ROWS, MIN_TILES
    )
    splits_used = tl.cdiv(num_tiles, tiles_per_split)
    # without a key, the first split still writes zeros
    if split >= tl.maximum(splits_used, 1):
        return
    low = first_tile + split * tiles_per_split
    high = tl.minimum(low + tiles_per_split, first_tile + num_tiles)

    k_ptr += kv_head.to(tl.int64) * stride_k_head
    v_ptr += kv_head.to(tl.int64) * stride_v_head
    table_ptr = block_table_ptr + seq.to(tl.int64) * stride_table_seq
    num_query_heads = num_kv_heads * GQA_RATIO
    # fmt: off
    if BLOCK_M > SMALL_M and query_len * GQA_RATIO <= SMALL_M:
        attend_block(
            q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr, partial_out_ptr, partial_lse_ptr, table_ptr,
            alibi_slopes_ptr, sinks_ptr, k_scale_ptr, v_scale_ptr, softmax_scale, logits_soft_cap,
            sliding_window, num_tokens, num_query_heads, kv_head, query_begin, query_len, seq_len,
            first_query, begin, end, low, high, split, splits_used, stride_q_token, stride_q_head,
            stride_k_page, stride_k_slot, stride_v_page, stride_v_slot, stride_out_token, stride_out_head,
            CAUSAL, GQA_RATIO, HEAD_DIM, HEAD_DIM_PADDED, PAGE_SIZE, SMALL_M, TILE, SAME_STRIDES, LANE_SUMS,
        )
    else:
        attend_block(
            q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr, partial_out_ptr, partial_lse_ptr, table_ptr,
            alibi_slopes_ptr, sinks_ptr, k_scale_ptr, v_scale_ptr, softmax_scale, logits_soft_cap,
            sliding_window, num_tokens, num_query_heads, kv_head, query_begin, query_len, seq_len,
            first_query, begin, end, low, high, split, splits_used, stride_q_token, stride_q_head,
            stride_k_page, stride_k_slot, stride_v_page, stride_v_slot, stride_out_token, stride_out_head,
            CAUSAL, GQA_RATIO, HEAD_DIM, HEAD_DIM_PADDED, PAGE_SIZE, BLOCK_M, TILE, SAME_STRIDES, LANE_SUMS,
        )
    # fmt: on
