"""Device functions that every kernel shares: sequence search, page look-up, scores, online softmax.

Scores live in the base-2 domain (natural logits times log2(e)), as in FlashAttention-2 and Triton's
tutorial 06, so that the exponential is one instruction.
"""

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)
SEARCH_STEP = tl.constexpr(128)
# Triton's interpreter multiplies bf16 operands wrongly (3.6 to 3.9); `matmul` widens them there.
INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret)


@triton.jit
def find_sequence(cu_seqlens_q_ptr, index, num_seqs, BLOCK_Q: tl.constexpr):
    """The last sequence whose first Q-block is at or before `index`.

    Sequence s starts at block `cu_seqlens_q[s] // BLOCK_Q + s`: an upper bound on the blocks before
    it that needs no prefix sum (vLLM's unified kernel uses the same). BLOCK_Q = 0 searches tokens.
    Starts are counted, many at a time: the steps of a binary search would wait for one another's loads.
    """
    before = 0
    for first in range(0, num_seqs, SEARCH_STEP):
        seqs = first + tl.arange(0, SEARCH_STEP)
        starts = tl.load(cu_seqlens_q_ptr + seqs, mask=seqs < num_seqs, other=0)
        if BLOCK_Q > 0:
            starts = starts // BLOCK_Q + seqs
        before += tl.sum(((starts <= index) & (seqs < num_seqs)).to(tl.int32), axis=0)
    return before - 1


@triton.jit
def load_page_ids(table_ptr, first, begin, end, PAGE_SIZE: tl.constexpr, TILE: tl.constexpr):
    """The pages of keys [first, first + TILE): one id where a page holds whole tiles, else one per key.

    Keys outside [begin, end) read no table entry and get page 0.
    """
    if PAGE_SIZE % TILE == 0:
        return tl.load(table_ptr + first // PAGE_SIZE, mask=(first < end) & (first + TILE > begin), other=0)
    else:
        keys = first + tl.arange(0, TILE)
        return tl.load(table_ptr + keys // PAGE_SIZE, mask=(keys >= begin) & (keys < end), other=0)


@triton.jit
def slot_offsets(pages, positions, stride_page, stride_slot, PAGE_SIZE: tl.constexpr):
    """Offsets (int64) of the cache slots that hold `positions`, which lie in `pages`."""
    return pages.to(tl.int64) * stride_page + (positions % PAGE_SIZE) * stride_slot


@triton.jit
def load_tile(base_ptr, offsets, dims, live, HEAD_DIM: tl.constexpr, MASKED: tl.constexpr):
    """A [positions, dims] tile of the cache; dead positions and padded dims read as zero.

    Dead slots may hold NaN, and 0 * NaN is NaN, so a mask on the scores alone would not do.
    """
    pointers = base_ptr + offsets[:, None] + dims[None, :]
    PADDED: tl.constexpr = dims.shape[0] != HEAD_DIM
    if MASKED and PADDED:
        return tl.load(pointers, mask=live[:, None] & (dims[None, :] < HEAD_DIM), other=0.0)
    elif MASKED:
        return tl.load(pointers, mask=live[:, None], other=0.0)
    elif PADDED:
        return tl.load(pointers, mask=dims[None, :] < HEAD_DIM, other=0.0)
    else:
        return tl.load(pointers)


@triton.jit
def matmul(a, b, acc):
    """`acc + a @ b` in float32; fp32 operands are not rounded to TF32."""
    if INTERPRETED:
        a = a.to(tl.float32)
        b = b.to(tl.float32)
    return tl.dot(a, b, acc, input_precision="ieee")


@triton.jit
def base2_logits(products, scale, logits_soft_cap, slopes, distances):
    """q.k products to base-2 logits: scale, soft cap, ALiBi. `slopes` and `distances` broadcast."""
    if logits_soft_cap is None:
        logits = products * (scale * LOG2E)
    else:
        # tanh through exp(-2|x|) <= 1: it saturates where exp(x) would overflow to inf / inf
        ratio = products * scale / logits_soft_cap
        decay = tl.exp2(tl.abs(ratio) * (-2 * LOG2E))
        magnitude = (1 - decay) / (1 + decay)
        logits = tl.where(ratio < 0, -magnitude, magnitude) * (logits_soft_cap * LOG2E)
    if slopes is not None:
        logits += slopes * LOG2E * distances
    return logits


@triton.jit
def visible_keys(positions, query_positions, sliding_window, CAUSAL: tl.constexpr):
    """Which keys a query may see, before the end of the sequence is applied. Operands broadcast."""
    seen = positions >= 0
    if CAUSAL:
        seen = seen & (positions <= query_positions)
    else:
        seen = seen & (query_positions >= query_positions)
    if sliding_window is not None:
        seen = seen & (query_positions - positions < sliding_window)
    return seen


@triton.jit
def finite_max(running_max):
    """The running maximum as something that may be subtracted: -inf - -inf would be NaN."""
    return tl.where(running_max == float("-inf"), 0.0, running_max)


@triton.jit
def absorb_sink(acc_scale, total, running_max, sink):
    """Let a sink (natural logit, no value) into the denominator; returns acc's new scale, total, max."""
    if sink is None:
        return acc_scale, total, running_max
    else:
        logit = sink.to(tl.float32) * LOG2E
        new_max = tl.maximum(running_max, logit)
        shrink = tl.exp2(running_max - finite_max(new_max))
        return acc_scale * shrink, total * shrink + tl.exp2(logit - finite_max(new_max)), new_max


@triton.jit
def log_sum_exp(total, running_max):
    """Natural log-sum-exp; -inf where nothing was seen."""
    return tl.where(total > 0, (running_max + tl.log2(tl.where(total > 0, total, 1.0))) * LN2, float("-inf"))


@triton.jit
def reciprocal(total):
    """1 / total, and 0 for rows that saw nothing, so that their output is 0 and not NaN."""
    return tl.where(total > 0, 1.0 / tl.where(total > 0, total, 1.0), 0.0)
