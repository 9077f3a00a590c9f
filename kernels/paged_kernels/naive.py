"""The paper's starting point (arXiv 2511.11581, section 4.2): one program per query token and head.

Kept as the first rung of the ladder and as an independent second implementation.
"""

import triton
import triton.language as tl

from .device import (
    absorb_sink,
    base2_logits,
    find_sequence,
    finite_max,
    load_page_ids,
    load_tile,
    log_sum_exp,
    reciprocal,
    slot_offsets,
    visible_keys,
)


@triton.jit(do_not_specialize=["num_seqs", "sliding_window", "num_query_heads", "gqa_ratio"])
def naive_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    out_ptr,
    lse_ptr,
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
    num_query_heads,
    gqa_ratio,
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
    HEAD_DIM: tl.constexpr,
    HEAD_DIM_PADDED: tl.constexpr,
    PAGE_SIZE: tl.constexpr,
    TILE: tl.constexpr,
):
    """Grid: (num_tokens, num_query_heads)."""
    token = tl.program_id(0)
    head = tl.program_id(1)
    if token >= tl.load(cu_seqlens_q_ptr + num_seqs):
        return
    seq = find_sequence(cu_seqlens_q_ptr, token, num_seqs, 0)
    seq_len = tl.load(seq_lens_ptr + seq)
    query_end = tl.load(cu_seqlens_q_ptr + seq + 1)
    query_position = seq_len - query_end + token

    kv_head = (head // gqa_ratio).to(tl.int64)
    dims = tl.arange(0, HEAD_DIM_PADDED)
    q_offset = token.to(tl.int64) * stride_q_token + head * stride_q_head
    q = tl.load(q_ptr + q_offset + dims, mask=dims < HEAD_DIM, other=0.0).to(tl.float32)
    scale = softmax_scale
    if k_scale_ptr is not None:
        scale = scale * tl.load(k_scale_ptr)
    slope = None
    if alibi_slopes_ptr is not None:
        slope = tl.load(alibi_slopes_ptr + head)

    end = seq_len
    if CAUSAL:
        end = tl.minimum(end, query_position + 1)
    begin = 0
    if sliding_window is not None:
        begin = tl.maximum(query_position - sliding_window + 1, 0)

    table_ptr = block_table_ptr + seq.to(tl.int64) * stride_table_seq
    running_max = tl.full([1], float("-inf"), tl.float32)
    total = tl.zeros([1], tl.float32)
    acc = tl.zeros([HEAD_DIM_PADDED], tl.float32)
    for start in range(begin // TILE * TILE, end, TILE):
        positions = start + tl.arange(0, TILE)
        live = (positions >= begin) & (positions < end)
        pages = load_page_ids(table_ptr, start, begin, end, PAGE_SIZE, TILE)
        k_slots = slot_offsets(pages, positions, stride_k_page, stride_k_slot, PAGE_SIZE)
        k = load_tile(k_ptr + kv_head * stride_k_head, k_slots, dims, live, HEAD_DIM, True)
        products = tl.sum(k.to(tl.float32) * q[None, :], axis=1)
        logits = base2_logits(products, scale, logits_soft_cap, slope, positions - query_position)
        seen = live & visible_keys(positions, query_position, sliding_window, CAUSAL)
        logits = tl.where(seen, logits, float("-inf"))

        new_max = tl.maximum(running_max, tl.max(logits, axis=0))
        shrink = tl.exp2(running_max - finite_max(new_max))
        weights = tl.exp2(logits - finite_max(new_max))
        v_slots = slot_offsets(pages, positions, stride_v_page, stride_v_slot, PAGE_SIZE)
        v = load_tile(v_ptr + kv_head * stride_v_head, v_slots, dims, live, HEAD_DIM, True)
        acc = acc * shrink + tl.sum(weights[:, None] * v.to(tl.float32), axis=0)
        total = total * shrink + tl.sum(weights, axis=0)
        running_max = new_max

    sink = None
    if sinks_ptr is not None:
        sink = tl.load(sinks_ptr + head)
    acc, total, running_max = absorb_sink(acc, total, running_max, sink)
    out = acc * reciprocal(total)
    if v_scale_ptr is not None:
        out = out * tl.load(v_scale_ptr)
    out_offset = token.to(tl.int64) * stride_out_token + head * stride_out_head
    tl.store(out_ptr + out_offset + dims, out.to(out_ptr.dtype.element_ty), mask=dims < HEAD_DIM)
    if lse_ptr is not None:
        index = token.to(tl.int64) * num_query_heads + head + tl.arange(0, 1)
        tl.store(lse_ptr + index, log_sum_exp(total, running_max))
