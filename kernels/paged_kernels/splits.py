"""Splits of a Q-block's keys: how many, which keys, and the kernel that merges their partial results."""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait

from .device import absorb_sink, find_sequence, finite_max, log_sum_exp, reciprocal


@triton.jit
def key_range(seq_len, query_len, first_query, sliding_window, CAUSAL: tl.constexpr, BLOCK_Q: tl.constexpr):
    """[begin, end): the keys that some row of a Q-block sees."""
    begin = 0
    end = seq_len
    context_len = seq_len - query_len
    if CAUSAL:
        end = tl.minimum(end, context_len + tl.minimum(first_query + BLOCK_Q, query_len))
    if sliding_window is not None:
        begin = tl.maximum(context_len + first_query - sliding_window + 1, 0)
    return begin, end


@triton.jit
def split_tiles(
    num_tiles,
    num_splits,
    query_len,
    first_query,
    GQA_RATIO: tl.constexpr,
    BLOCK_Q: tl.constexpr,
    MOST_ROWS: tl.constexpr,
    MIN_TILES: tl.constexpr,
):
    """Tiles per split of a Q-block. Its own lengths and the launch configuration decide, nothing else, so
    that a sequence's result does not depend on its neighbours.

    Sequences of more than MOST_ROWS rows are not split. A split has at least MIN_TILES tiles, and one for
    every second row: writing and merging a row's partial result costs about as much as two keys.
    """
    rows = tl.minimum(query_len - first_query, BLOCK_Q) * GQA_RATIO
    least = tl.maximum(rows // 2, MIN_TILES)
    splits = tl.cdiv(num_tiles, tl.maximum(tl.cdiv(num_tiles, num_splits), least))
    if query_len * GQA_RATIO > MOST_ROWS:
        splits = 1
    return tl.maximum(tl.cdiv(num_tiles, tl.maximum(splits, 1)), 1)


@triton.jit(do_not_specialize=["num_seqs", "num_tokens", "num_query_heads", "num_splits", "sliding_window"])
def reduce_splits_kernel(
    partial_out_ptr,
    partial_lse_ptr,
    out_ptr,
    lse_ptr,
    cu_seqlens_q_ptr,
    seq_lens_ptr,
    sinks_ptr,
    v_scale_ptr,
    sliding_window,
    num_seqs,
    num_tokens,
    num_query_heads,
    num_splits,
    stride_out_token,
    stride_out_head,
    HEAD_DIM: tl.constexpr,
    HEAD_DIM_PADDED: tl.constexpr,
    HEADS: tl.constexpr,
    SPLITS_PER_STEP: tl.constexpr,
    CAUSAL: tl.constexpr,
    GQA_RATIO: tl.constexpr,
    BLOCK_M: tl.constexpr,
    TILE: tl.constexpr,
    MOST_ROWS: tl.constexpr,
    MIN_TILES: tl.constexpr,
    OVERLAP: tl.constexpr,
    QUERIES: tl.constexpr,
):
    """Merge the partial results of HEADS heads of one token.

    Grid: (num_seqs * QUERIES, num_query_heads / HEADS) if only a sequence's first QUERIES tokens may have
    been split, or (num_tokens, num_query_heads / HEADS) with QUERIES = 0.
    """
    BLOCK_Q: tl.constexpr = BLOCK_M // GQA_RATIO
    token = tl.program_id(0)
    if QUERIES > 0:
        seq = token // QUERIES
        query_begin = tl.load(cu_seqlens_q_ptr + seq)
        token = query_begin + token % QUERIES
    else:
        seq = find_sequence(cu_seqlens_q_ptr, token, num_seqs, 0)
        query_begin = tl.load(cu_seqlens_q_ptr + seq)
    query_len = tl.load(cu_seqlens_q_ptr + seq + 1) - query_begin
    seq_len = tl.load(seq_lens_ptr + seq)
    first_query = (token - query_begin) // BLOCK_Q * BLOCK_Q
    begin, end = key_range(seq_len, query_len, first_query, sliding_window, CAUSAL, BLOCK_Q)
    num_tiles = tl.maximum(tl.cdiv(end, TILE) - begin // TILE, 0)
    tiles_per_split = split_tiles(
        num_tiles, num_splits, query_len, first_query, GQA_RATIO, BLOCK_Q, MOST_ROWS, MIN_TILES
    )
    splits_used = tl.cdiv(num_tiles, tiles_per_split)
    if OVERLAP:
        # before any way out: what comes next in the stream waits for this kernel alone
        gdc_wait()
    if (splits_used <= 1) | (token >= query_begin + query_len):
        return

    dims = tl.arange(0, HEAD_DIM_PADDED)
    heads = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    live = heads < num_query_heads
    rows = token.to(tl.int64) * num_query_heads + heads
    row_stride = num_query_heads.to(tl.int64) * num_tokens
    running_max = tl.full([HEADS], float("-inf"), tl.float32)
    total = tl.zeros([HEADS], tl.float32)
    acc = tl.zeros([HEADS, HEAD_DIM_PADDED], tl.float32)
    for first_split in range(0, splits_used, SPLITS_PER_STEP):
        splits = first_split + tl.arange(0, SPLITS_PER_STEP)
        cells = splits[:, None] * row_stride + rows[None, :]
        used = (splits < splits_used)[:, None] & live[None, :]
        lse = tl.load(partial_lse_ptr + cells, mask=used, other=float("-inf"))
        # a split whose keys a row does not see left zeros
        partial = tl.load(
            partial_out_ptr + cells[:, :, None] * HEAD_DIM + dims[None, None, :],
            mask=used[:, :, None] & (dims[None, None, :] < HEAD_DIM),
            other=0.0,
        )
        new_max = tl.maximum(running_max, tl.max(lse, axis=0))
        shrink = tl.exp2(running_max - finite_max(new_max))
        weights = tl.exp2(lse - finite_max(new_max)[None, :])
        acc = acc * shrink[:, None] + tl.sum(weights[:, :, None] * partial, axis=0)
        total = total * shrink + tl.sum(weights, axis=0)
        running_max = new_max

    sinks = None
    if sinks_ptr is not None:
        sinks = tl.load(sinks_ptr + heads, mask=live, other=0.0)
    acc_scale, total, running_max = absorb_sink(tl.full([HEADS], 1.0, tl.float32), total, running_max, sinks)
    if v_scale_ptr is not None:
        acc_scale = acc_scale * tl.load(v_scale_ptr)
    out = acc * (acc_scale * reciprocal(total))[:, None]
    out_rows = token.to(tl.int64) * stride_out_token + heads * stride_out_head
    out_pointers = out_ptr + out_rows[:, None] + dims[None, :]
    cell_live = live[:, None] & (dims[None, :] < HEAD_DIM)
    tl.store(out_pointers, out.to(out_ptr.dtype.element_ty), mask=cell_live)
    if lse_ptr is not None:
        tl.store(lse_ptr + rows, log_sum_exp(total, running_max), mask=live)
