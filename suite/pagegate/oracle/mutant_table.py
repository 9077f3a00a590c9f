"""Planted faults: each a small patch to the kernels' source, after a fault that was really shipped.

A row: name, what it stands for, the kernel it is looked for with, the file, the text to replace (which
must occur exactly once), its replacement. `gpu_only` marks what Triton's interpreter cannot show.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """One planted fault. stands_for: the public report or the family of reports it repeats."""

    name: str
    stands_for: str
    kernel: str
    file: str
    old: str
    new: str
    gpu_only: bool = False


def _unified(name: str, stands_for: str, old: str, new: str, gpu_only: bool = False) -> Mutant:
    return Mutant(name, stands_for, "unified", "unified.py", old, new, gpu_only)


def _splits(name: str, stands_for: str, old: str, new: str, gpu_only: bool = False) -> Mutant:
    return Mutant(name, stands_for, "unified", "splits.py", old, new, gpu_only)


def _device(name: str, stands_for: str, old: str, new: str, gpu_only: bool = False) -> Mutant:
    return Mutant(name, stands_for, "unified", "device.py", old, new, gpu_only)


def _naive(name: str, stands_for: str, old: str, new: str) -> Mutant:
    return Mutant(name, stands_for, "naive", "naive.py", old, new)


def _host(name: str, stands_for: str, old: str, new: str, gpu_only: bool = False) -> Mutant:
    return Mutant(name, stands_for, "unified", "attention.py", old, new, gpu_only)


_V_LOAD = "v = load_tile(v_ptr, v_slots, dims, live, HEAD_DIM, MASKED)"
_PV = "acc = matmul(weights.to(q.dtype), v, acc * shrink[:, None])"

MUTANTS = (
    # unwritten tails and padding
    _device("tail_loaded", "vllm#47305: K and V read past the sequence's end",
            "return tl.load(pointers, mask=live[:, None], other=0.0)", "return tl.load(pointers)"),
    _unified("tail_values_loaded", "vllm#936: values past the end are read",
             _V_LOAD, "v = load_tile(v_ptr, v_slots, dims, live, HEAD_DIM, False)"),
    _unified("tail_values_loaded_multi_query", "flash-attention#1745: only where there are many rows",
             _V_LOAD, "v = load_tile(v_ptr, v_slots, dims, live, HEAD_DIM, MASKED and q.shape[0] <= 16)"),
    _naive("tail_values_loaded_naive", "TensorRT-LLM#18925: values in a partly filled page",
           "v = load_tile(v_ptr + kv_head * stride_v_head, v_slots, dims, live, HEAD_DIM, True)",
           "v = load_tile(v_ptr + kv_head * stride_v_head, v_slots, dims, live, HEAD_DIM, False)"),
    _unified("freed_pages_read", "vllm#30887: pages before the window are read",
             "live = (positions >= begin) & (positions < end)", "live = positions < end"),
    _unified("tail_scores_kept", "flashinfer#3716, tt-metal#38004: dead keys weigh exp(0)",
             "logits = tl.where(seen & live[None, :], logits, float(\"-inf\"))",
             "logits = tl.where(seen, logits, float(\"-inf\"))"),
    _unified("last_tile_unmasked", "pytorch#160861: no mask at the upper bound",
             "full_high = tl.minimum(tl.maximum(full_end // TILE, full_low), high)",
             "full_high = tl.minimum(tl.maximum(tl.cdiv(full_end, TILE), full_low), high)"),
    # causal, window, loop bounds
    _device("empty_rows_nan", "vllm#4405: -inf minus -inf in a masked row",
            "return tl.where(running_max == float(\"-inf\"), 0.0, running_max)", "return running_max"),
    _splits("window_drops_oldest", "sglang#32087: the oldest key in the window is dropped",
             "begin = tl.maximum(context_len + first_query - sliding_window + 1, 0)",
             "begin = tl.maximum(context_len + first_query - sliding_window + 2, 0)"),
    _device("window_keeps_one_more", "sglang#32087, the other way: < for <=",
            "query_positions - positions < sliding_window", "query_positions - positions <= sliding_window"),
    _splits("causal_bound_always", "vllm#30974: the causal bound also without a causal mask",
             "    if CAUSAL:\n        end = tl.minimum(end, context_len + tl.minimum(",
             "    if BLOCK_Q > 0:\n        end = tl.minimum(end, context_len + tl.minimum("),
    _unified("window_start_without_context", "flashinfer#4972: bulk starts without the offset",
             "full_begin = tl.maximum(context_len + last_query - sliding_window + 1, 0)",
             "full_begin = tl.maximum(last_query - sliding_window + 1, 0)"),
    _unified("causal_without_context", "sparkinfer#3: the mask forgets the cached prefix",
             "query_positions = context_len + queries", "query_positions = queries"),
    _device("causal_excludes_self", "sparkinfer#3: > for >=",
            "seen = seen & (positions <= query_positions)", "seen = seen & (positions < query_positions)"),
    _naive("prefix_skipped", "gpt-oss#196: the loop starts at the query's offset",
           "    begin = 0\n", "    begin = tl.minimum(TILE, query_position) * (query_position > 2 * TILE)\n"),
    _device("empty_lse_finite", "flashinfer#4452: a finite log-sum-exp for rows that saw nothing",
            "* LN2, float(\"-inf\"))", "* LN2, -1e30)"),
    _device("empty_lse_positive", "flash-attention#978: +inf for no keys",
            "* LN2, float(\"-inf\"))", "* LN2, float(\"inf\"))"),
    _unified("tile_boundary_dropped", "pytorch/xla#8431: a length at a block's edge loses its last step",
             "num_tiles = tl.maximum(tl.cdiv(end, TILE) - first_tile, 0)",
             "num_tiles = tl.maximum(tl.cdiv(end - 1, TILE) - first_tile, 0)"),
    _unified("empty_rows_skipped", "pytorch/xla#8431: an output that is never stored",
             "    first_tile = begin // TILE\n",
             "    if end <= begin:\n        return\n    first_tile = begin // TILE\n"),
    # split-KV, log-sum-exp
    _unified("empty_split_unwritten", "sglang#2465: splits without keys leave scratch unwritten",
             "    k_ptr += kv_head.to(tl.int64) * stride_k_head\n",
             "    if low >= high and num_splits > 1:\n        return\n"
             "    k_ptr += kv_head.to(tl.int64) * stride_k_head\n"),
    _splits("last_split_dropped", "pytorch#179760: chosen splits and reduced splits differ",
             "used = (splits < splits_used)[:, None]", "used = (splits < splits_used - 1)[:, None]"),
    _device("division_by_zero", "vllm#57094: 0 / 0 for rows without keys",
            "return tl.where(total > 0, 1.0 / tl.where(total > 0, total, 1.0), 0.0)", "return 1.0 / total"),
    _device("lse_base_two", "sglang#35045: base-2 where natural is meant",
            "(running_max + tl.log2(tl.where(total > 0, total, 1.0))) * LN2",
            "(running_max + tl.log2(tl.where(total > 0, total, 1.0)))"),
    _splits("reduction_first_sequence_only", "flash-attention#1217: rows after the first sequence unwritten",
             "(token >= query_begin + query_len)", "(token >= tl.load(cu_seqlens_q_ptr + 1))"),
    _splits("reduction_packed_output", "FlagGems#5235: steps by head size, not by the row's stride",
             "out_rows = token.to(tl.int64) * stride_out_token + heads * stride_out_head",
             "out_rows = rows * HEAD_DIM"),
    _splits("split_sink_dropped", "gpt-oss class: the sink is missing in one dispatch path",
             "        sinks = tl.load(sinks_ptr + heads, mask=live, other=0.0)\n",
             "        sinks = tl.load(sinks_ptr + heads, mask=live, other=0.0) - 100.0\n"),
    # addressing
    _device("page_offset_int32", "vllm#47671: page id times stride in 32 bits",
            "pages.to(tl.int64) * stride_page", "pages * stride_page"),
    _unified("value_offset_int32", "vllm#50427: only the values' offset in 32 bits",
             "v_slots = slot_offsets(pages, positions, stride_v_page, stride_v_slot, PAGE_SIZE)",
             "v_slots = slot_offsets(pages, positions, stride_v_page, stride_v_slot, PAGE_SIZE).to(tl.int32)"),
    _unified("query_offset_int32", "sglang#20389: token times stride in 32 bits",
             "tokens = (query_begin + queries).to(tl.int64)", "tokens = query_begin + queries"),
    _device("page_stride_rebuilt", "aiter#3498: the page stride is computed, not read",
            "pages.to(tl.int64) * stride_page", "pages.to(tl.int64) * (PAGE_SIZE * stride_slot)"),
    _unified("table_row_per_token", "vllm#51848: the block table is indexed by token",
             "table_ptr = block_table_ptr + seq.to(tl.int64) * stride_table_seq",
             "table_ptr = block_table_ptr + tl.minimum(query_begin, num_seqs - 1).to(tl.int64) * stride_table_seq"),
    _host("table_stride_is_width", "vllm#54877: a stride in the wrong unit",
          "stride_table_seq=block_table.stride(0)", "stride_table_seq=block_table.shape[1]"),
    _device("one_page_per_tile", "vllm#39810: a tile that straddles pages looks up one",
            "return tl.load(table_ptr + keys // PAGE_SIZE, ", "return tl.load(table_ptr + (keys * 0 + first) // PAGE_SIZE, "),
    _unified("page_ids_of_the_tile_before", "vllm#39810 class: page ids loaded ahead, but for the wrong tile",
             "pages = load_page_ids(table_ptr, (tile + 1) * TILE,", "pages = load_page_ids(table_ptr, tile * TILE,"),
    _host("query_stride_assumed", "flash-attention#2666 class: queries taken for contiguous",
          "stride_q_token=q.stride(0)", "stride_q_token=num_query_heads * head_dim"),
    _host("value_strides_of_keys", "FlagGems#5235 class: tested in the one layout where two strides coincide",
          "stride_v_slot=v_cache.stride(1)", "stride_v_slot=k_cache.stride(1)"),
    _host("output_stride_of_queries", "flash-attention#2666 class: the output takes the queries' stride",
          "stride_out_token=out.stride(0)", "stride_out_token=q.stride(0)"),
    _host("head_stride_assumed", "flash-attention#2666 class: heads taken for dense",
          "stride_q_head=q.stride(1)", "stride_q_head=head_dim"),
    _naive("padding_written", "sglang#1469: rows past the batch are treated as tokens",
           "    if token >= tl.load(cu_seqlens_q_ptr + num_seqs):\n        return\n", ""),
    # heads and dimensions
    _unified("odd_ratio_unmasked", "vllm#18100: spare rows of a ratio that fills no block",
             "    heads = kv_head * GQA_RATIO + rows % GQA_RATIO\n"
             "    row_live = (rows < BLOCK_Q * GQA_RATIO) & (queries < query_len)\n",
             "    spare = rows >= BLOCK_Q * GQA_RATIO\n"
             "    heads = kv_head * GQA_RATIO + tl.where(spare, GQA_RATIO, rows % GQA_RATIO)\n"
             "    queries = tl.where(spare, first_query, queries)\n"
             "    row_live = queries < query_len\n"),
    _device("padded_lanes_loaded", "vllm#4128: lanes past head_dim are read",
            "return tl.load(pointers, mask=dims[None, :] < HEAD_DIM, other=0.0)", "return tl.load(pointers)"),
    _unified("padded_lanes_stored", "sglang#1281: lanes past head_dim are written",
             "        tl.store(out_pointers, out.to(out_ptr.dtype.element_ty), mask=cell_live)",
             "        tl.store(out_pointers, out.to(out_ptr.dtype.element_ty), mask=row_live[:, None])"),
    _unified("first_64_dims", "triton#621: attention over the first 64 dims",
             "    query_positions = context_len + queries\n",
             "    query_positions = context_len + queries\n    q = tl.where(dims[None, :] < 64, q, 0.0)\n"),
    _naive("kv_head_interleaved", "GQA class: heads dealt round-robin",
           "kv_head = (head // gqa_ratio).to(tl.int64)",
           "kv_head = (head % (num_query_heads // gqa_ratio)).to(tl.int64)"),
    # scales, dtypes, numerics, sinks
    _unified("key_scale_dropped", "vllm#42580: the keys' scale is not applied",
             "        scale = scale * tl.load(k_scale_ptr)\n", "        scale = scale * 1.0\n"),
    _splits("value_scale_dropped_in_splits", "sglang#28144: one path without the values' scale",
             "    if v_scale_ptr is not None:\n        acc_scale = acc_scale * tl.load(v_scale_ptr)\n    out = acc",
             "    out = acc"),
    _device("tanh_overflows", "vllm#56578: inf / inf in the soft cap",
            "decay = tl.exp2(tl.abs(ratio) * (-2 * LOG2E))\n        magnitude = (1 - decay) / (1 + decay)",
            "decay = tl.exp2(tl.abs(ratio) * (2 * LOG2E))\n        magnitude = (decay - 1) / (decay + 1)"),
    _unified("weights_in_bf16", "triton#1671 class: fp16 and fp32 weights rounded too far",
             _PV, "acc = matmul(weights.to(tl.bfloat16).to(q.dtype), v, acc * shrink[:, None])"),
    _device("tf32", "triton#1671: fp32 products rounded to TF32",
            "input_precision=\"ieee\"", "input_precision=\"tf32\"", gpu_only=True),
    _unified("accumulator_not_rescaled", "online softmax class: old values keep their old weight",
             _PV, "acc = matmul(weights.to(q.dtype), v, acc)"),
    _unified("denominator_not_rescaled", "online softmax class: the sum keeps its old scale",
             "total = total * shrink[:, None] + weights", "total = total + weights"),
    _device("sink_in_wrong_base", "gpt-oss class: a natural sink among base-2 logits",
            "logit = sink.to(tl.float32) * LOG2E", "logit = sink.to(tl.float32)"),
    _device("cap_before_scale", "Gemma class: soft cap on unscaled logits",
            "ratio = products * scale / logits_soft_cap", "ratio = products * scale / (logits_soft_cap * 1.02)"),
    _unified("slopes_per_kv_head", "ALiBi class: slopes indexed by KV head",
             "slopes = tl.load(alibi_slopes_ptr + heads, mask=row_live, other=0.0)[:, None]",
             "slopes = tl.load(alibi_slopes_ptr + heads * 0 + kv_head, mask=row_live, other=0.0)[:, None]"),
    # dispatch, graphs, host
    _device("sequence_search_off_by_one", "batch metadata class: a block goes to the sequence before",
            "(starts <= index)", "(starts < index)"),
    _unified("small_blocks_for_long_queries", "dispatch class: rows past a small block are never computed",
             "if BLOCK_M > SMALL_M and query_len * GQA_RATIO <= SMALL_M:",
             "if BLOCK_M > SMALL_M and query_len <= SMALL_M:"),
    _unified("split_programs_off_by_one", "pytorch#179760 class: the last split has no program",
             "split = (index - num_q_blocks) % (num_splits - 1) + 1",
             "split = (index - num_q_blocks) % (num_splits - 1)"),
    _splits("reduction_of_the_first_block", "pytorch#179760: chosen splits and reduced splits differ",
             "first_query = (token - query_begin) // BLOCK_Q * BLOCK_Q", "first_query = 0"),
    _host("same_strides_by_page_only", "FlagGems#5235 class: layouts that share one stride are taken for equal",
          "        and common[\"stride_k_slot\"] == common[\"stride_v_slot\"],\n", "        and True,\n"),
    _splits("reduction_does_not_wait", "early launch class: partial results are read too early",
             "        gdc_wait()\n", "        pass\n", gpu_only=True),
    _host("lengths_changed_in_place", "vllm#57094 class: a guard that edits its input",
          "    if num_tokens and seq_lens.shape[0]:\n",
          "    seq_lens.clamp_(min=1)\n    if num_tokens and seq_lens.shape[0]:\n"),
    _host("length_baked_into_graph", "transformers#45323: a host value frozen at capture",
          "seq_lens_ptr=seq_lens,", "seq_lens_ptr=torch.tensor(seq_lens.tolist(), device=q.device).to(torch.int32),",
          gpu_only=True),
)  # fmt: skip
