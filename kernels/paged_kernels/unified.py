"""Q-blocks, split-KV and its reduction: decode, prefill and any mix of them in one launch.

A Q-block packs the query heads that share a KV head (GQA) and a few query tokens into the rows of
one matrix product. With more than one split, each program walks a share of the keys its rows can
see and `reduce_splits_kernel` merges the partial results.
"""

import triton
import triton.language as tl

from .device import (
    absorb_sink,
    base2_logits,
    find_sequence,
    finite_max,
    load_tile,
    log_sum_exp,
    matmul,
    reciprocal,
    slot_offsets,
    visible_keys,
)


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
    MASKED: tl.constexpr,
):
    """Online softmax over tiles [first_tile, last_tile). Not MASKED: every row sees every key there."""
    dims = tl.arange(0, q.shape[1])
    # at most two tiles are masked: nothing to pipeline there
    for tile in tl.range(first_tile, last_tile, num_stages=1 if MASKED else None):
        positions = tile * TILE + tl.arange(0, TILE)
        live = (positions >= begin) & (positions < end)
        k_slots = slot_offsets(table_ptr, positions, live, stride_k_page, stride_k_slot, PAGE_SIZE, MASKED)
        v_slots = slot_offsets(table_ptr, positions, live, stride_v_page, stride_v_slot, PAGE_SIZE, MASKED)
        k = load_tile(k_ptr, k_slots, dims, live, HEAD_DIM, MASKED).to(q.dtype)
        products = matmul(q, tl.trans(k), tl.zeros([q.shape[0], TILE], tl.float32))
        distances = positions[None, :] - query_positions[:, None]
        logits = base2_logits(products, scale, logits_soft_cap, slopes, distances)
        if MASKED:
            seen = visible_keys(positions[None, :], query_positions[:, None], sliding_window, CAUSAL)
            logits = tl.where(seen & live[None, :], logits, float("-inf"))

        new_max = tl.maximum(running_max, tl.max(logits, axis=1))
        subtrahend = finite_max(new_max)
        shrink = tl.exp2(running_max - subtrahend)
        weights = tl.exp2(logits - subtrahend[:, None])
        total = total * shrink + tl.sum(weights, axis=1)
        running_max = new_max
        v = load_tile(v_ptr, v_slots, dims, live, HEAD_DIM, MASKED).to(q.dtype)
        acc = matmul(weights.to(q.dtype), v, acc * shrink[:, None])
    return acc, total, running_max


@triton.jit(do_not_specialize=["num_seqs", "sliding_window", "num_tokens", "num_kv_heads", "num_splits"])
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
    TILE: tl.constexpr,
):
    """Grid: (num_kv_heads * an upper bound on Q-blocks, num_splits); KV heads vary fastest.

    Partial results: partial_out [num_splits, num_tokens, num_query_heads, HEAD_DIM] float32,
    normalised, and partial_lse [num_splits, num_tokens, num_query_heads] float32, base 2.
    """
    BLOCK_Q: tl.constexpr = BLOCK_M // GQA_RATIO
    num_query_heads = num_kv_heads * GQA_RATIO
    q_block = tl.program_id(0) // num_kv_heads
    kv_head = tl.program_id(0) % num_kv_heads
    split = tl.program_id(1)

    seq = find_sequence(cu_seqlens_q_ptr, q_block, num_seqs, BLOCK_Q)
    query_begin = tl.load(cu_seqlens_q_ptr + seq)
    query_len = tl.load(cu_seqlens_q_ptr + seq + 1) - query_begin
    first_query = (q_block - (query_begin // BLOCK_Q + seq)) * BLOCK_Q
    if first_query >= query_len:
        return
    seq_len = tl.load(seq_lens_ptr + seq)
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

    # keys that some row sees: [begin, end); keys that every row sees: [full_begin, full_end)
    last_query = tl.minimum(first_query + BLOCK_Q, query_len) - 1
    begin = 0
    end = seq_len
    full_begin = 0
    full_end = seq_len
    if CAUSAL:
        end = tl.minimum(end, context_len + last_query + 1)
        full_end = tl.minimum(full_end, context_len + first_query + 1)
    if sliding_window is not None:
        begin = tl.maximum(context_len + first_query - sliding_window + 1, 0)
        full_begin = tl.maximum(context_len + last_query - sliding_window + 1, 0)

    first_tile = begin // TILE
    num_tiles = tl.maximum(tl.cdiv(end, TILE) - first_tile, 0)
    tiles_per_split = tl.cdiv(num_tiles, num_splits)
    low = first_tile + tl.minimum(split * tiles_per_split, num_tiles)
    high = first_tile + tl.minimum((split + 1) * tiles_per_split, num_tiles)
    full_low = tl.minimum(tl.maximum(tl.cdiv(full_begin, TILE), low), high)
    full_high = tl.minimum(tl.maximum(full_end // TILE, full_low), high)

    k_ptr += kv_head.to(tl.int64) * stride_k_head
    v_ptr += kv_head.to(tl.int64) * stride_v_head
    table_ptr = block_table_ptr + seq.to(tl.int64) * stride_table_seq
    running_max = tl.full([BLOCK_M], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, HEAD_DIM_PADDED], tl.float32)
    # fmt: off
    if sliding_window is not None:
        acc, total, running_max = attend(
            acc, total, running_max, q, k_ptr, v_ptr, table_ptr, query_positions, slopes, scale,
            logits_soft_cap, sliding_window, low, full_low, begin, end,
            stride_k_page, stride_k_slot, stride_v_page, stride_v_slot,
            CAUSAL, HEAD_DIM, PAGE_SIZE, TILE, MASKED=True,
        )
    acc, total, running_max = attend(
        acc, total, running_max, q, k_ptr, v_ptr, table_ptr, query_positions, slopes, scale,
        logits_soft_cap, sliding_window, full_low, full_high, begin, end,
        stride_k_page, stride_k_slot, stride_v_page, stride_v_slot,
        CAUSAL, HEAD_DIM, PAGE_SIZE, TILE, MASKED=False,
    )
    acc, total, running_max = attend(
        acc, total, running_max, q, k_ptr, v_ptr, table_ptr, query_positions, slopes, scale,
        logits_soft_cap, sliding_window, full_high, high, begin, end,
        stride_k_page, stride_k_slot, stride_v_page, stride_v_slot,
        CAUSAL, HEAD_DIM, PAGE_SIZE, TILE, MASKED=True,
    )
    # fmt: on

    row_index = tokens * num_query_heads + heads
    if partial_out_ptr is None:
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
    else:
        partial_row = split.to(tl.int64) * num_tokens * num_query_heads + row_index
        partial_pointers = partial_out_ptr + partial_row[:, None] * HEAD_DIM + dims[None, :]
        tl.store(partial_pointers, acc * reciprocal(total)[:, None], mask=cell_live)
        lse = tl.where(total > 0, running_max + tl.log2(tl.where(total > 0, total, 1.0)), float("-inf"))
        tl.store(partial_lse_ptr + partial_row, lse, mask=row_live)


@triton.jit(do_not_specialize=["num_seqs", "num_tokens", "num_query_heads", "num_splits"])
def reduce_splits_kernel(
    partial_out_ptr,
    partial_lse_ptr,
    out_ptr,
    lse_ptr,
    cu_seqlens_q_ptr,
    sinks_ptr,
    v_scale_ptr,
    num_seqs,
    num_tokens,
    num_query_heads,
    num_splits,
    stride_out_token,
    stride_out_head,
    HEAD_DIM: tl.constexpr,
    HEAD_DIM_PADDED: tl.constexpr,
    SPLITS_PER_STEP: tl.constexpr,
):
    """Merge the partial results of one token and head. Grid: (num_tokens, num_query_heads)."""
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    if token >= tl.load(cu_seqlens_q_ptr + num_seqs):
        return
    dims = tl.arange(0, HEAD_DIM_PADDED)
    row = token * num_query_heads + head
    row_stride = num_tokens.to(tl.int64) * num_query_heads
    running_max = tl.full([1], float("-inf"), tl.float32)
    total = tl.zeros([1], tl.float32)
    acc = tl.zeros([HEAD_DIM_PADDED], tl.float32)
    for first_split in range(0, num_splits, SPLITS_PER_STEP):
        splits = first_split + tl.arange(0, SPLITS_PER_STEP)
        rows = splits * row_stride + row
        lse = tl.load(partial_lse_ptr + rows, mask=splits < num_splits, other=float("-inf"))
        # a split that saw no key left nothing worth reading
        used = (lse > float("-inf"))[:, None] & (dims[None, :] < HEAD_DIM)
        partial = tl.load(partial_out_ptr + rows[:, None] * HEAD_DIM + dims[None, :], mask=used, other=0.0)
        new_max = tl.maximum(running_max, tl.max(lse, axis=0))
        shrink = tl.exp2(running_max - finite_max(new_max))
        weights = tl.exp2(lse - finite_max(new_max))
        acc = acc * shrink + tl.sum(weights[:, None] * partial, axis=0)
        total = total * shrink + tl.sum(weights, axis=0)
        running_max = new_max

    sink = None
    if sinks_ptr is not None:
        sink = tl.load(sinks_ptr + head)
    acc, total, running_max = absorb_sink(acc, total, running_max, sink)
    out = acc * reciprocal(total)
    if v_scale_ptr is not None:
        out = out * tl.load(v_scale_ptr)
    out_pointers = out_ptr + token * stride_out_token + head * stride_out_head + dims
    tl.store(out_pointers, out.to(out_ptr.dtype.element_ty), mask=dims < HEAD_DIM)
    if lse_ptr is not None:
        tl.store(lse_ptr + row + tl.arange(0, 1), log_sum_exp(total, running_max))
