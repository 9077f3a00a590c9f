"""Checks of arguments. Each error names the argument, what was required and what was found."""

from __future__ import annotations

import math

import torch
import triton

from .launch import driver_device

QUERY_DTYPES = (torch.float16, torch.bfloat16, torch.float32)
FP8_DTYPES = (torch.float8_e4m3fn, torch.float8_e4m3fnuz)


def require(condition: bool, name: str, required: str, found: object) -> None:
    """Raise ValueError "name: required ..., found ..." unless `condition` holds."""
    if not condition:
        raise ValueError(f"{name}: required {required}, found {found}")


def check_device(q: torch.Tensor) -> None:
    """Kernels run on a GPU, or on the CPU in Triton's interpreter.

    Raises ValueError when the tensor's device and the way Triton was started do not go together.
    """
    here = q.is_cuda or triton.knobs.runtime.interpret or driver_device() == q.device
    require(
        here,
        "q",
        "a GPU tensor, or TRITON_INTERPRET=1 in the environment before paged_kernels is imported",
        f"a tensor on {q.device} and a compiled kernel",
    )


def check_companion(
    name: str, tensor: torch.Tensor, q: torch.Tensor, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    """A tensor that goes with `q`: same device, the given shape and dtype, last dimension contiguous."""
    require(isinstance(tensor, torch.Tensor), name, "a tensor", type(tensor).__name__)
    require(tensor.device == q.device, name, f"a tensor on {q.device} like q", f"one on {tensor.device}")
    require(tuple(tensor.shape) == shape, name, f"shape {list(shape)}", list(tensor.shape))
    require(tensor.dtype == dtype, name, f"dtype {dtype}", tensor.dtype)
    check_last_stride(name, tensor)


def check_last_stride(name: str, tensor: torch.Tensor) -> None:
    last_stride = tensor.stride(-1) if tensor.dim() else 1
    contiguous = last_stride == 1 or tensor.shape[-1] == 1
    require(contiguous, name, "a contiguous last dimension (stride 1)", f"stride {last_stride}")


def check_cache(name: str, cache: torch.Tensor, q: torch.Tensor) -> None:
    """A paged cache [num_pages, page_size, num_kv_heads, head_dim] that `q` can attend to."""
    layout = "4 dimensions [num_pages, page_size, num_kv_heads, head_dim]"
    require(isinstance(cache, torch.Tensor), name, "a tensor", type(cache).__name__)
    require(cache.dim() == 4, name, layout, f"{cache.dim()} of shape {list(cache.shape)}")
    require(cache.device == q.device, name, f"a tensor on {q.device} like q", f"one on {cache.device}")
    require(cache.shape[3] == q.shape[2], name, f"head_dim {q.shape[2]} like q", cache.shape[3])
    page_size = cache.shape[1]
    require(page_size >= 8 and page_size % 8 == 0, name, "a page_size that is a multiple of 8", page_size)
    known = (q.dtype, *FP8_DTYPES)
    require(cache.dtype in known, name, f"dtype {q.dtype} like q, or fp8 e4m3", cache.dtype)
    check_last_stride(name, cache)


def check_attention(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    *,
    block_table: torch.Tensor,
    seq_lens: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    max_query_len: int,
    softmax_scale: float | None,
    sliding_window: int | None,
    logits_soft_cap: float | None,
    alibi_slopes: torch.Tensor | None,
    sinks: torch.Tensor | None,
    k_scale: torch.Tensor | None,
    v_scale: torch.Tensor | None,
    out: torch.Tensor | None,
) -> None:
    """Check everything about a call that can be seen without reading device memory.

    Raises ValueError at the first argument that cannot work.
    """
    require(isinstance(q, torch.Tensor), "q", "a tensor", type(q).__name__)
    require(q.dim() == 3, "q", "3 dimensions [num_tokens, num_query_heads, head_dim]", list(q.shape))
    require(q.dtype in QUERY_DTYPES, "q", "dtype float16, bfloat16 or float32", q.dtype)
    require(1 <= q.shape[2] <= 256, "q", "head_dim 1 to 256", q.shape[2])
    check_last_stride("q", q)
    check_device(q)
    check_cache("k_cache", k_cache, q)
    check_cache("v_cache", v_cache, q)
    require(k_cache.shape == v_cache.shape, "v_cache", f"shape {list(k_cache.shape)}", list(v_cache.shape))
    require(k_cache.dtype == v_cache.dtype, "v_cache", f"dtype {k_cache.dtype}", v_cache.dtype)
    num_query_heads, num_kv_heads = q.shape[1], k_cache.shape[2]
    divides = num_kv_heads > 0 and num_query_heads > 0 and num_query_heads % num_kv_heads == 0
    found = f"{num_query_heads} query heads over {num_kv_heads} KV heads"
    require(divides, "q", "a number of query heads that the KV heads divide", found)
    require(num_query_heads // max(num_kv_heads, 1) <= 128, "q", "a GQA ratio of at most 128", found)

    require(isinstance(seq_lens, torch.Tensor), "seq_lens", "a tensor", type(seq_lens).__name__)
    require(seq_lens.dim() == 1, "seq_lens", "1 dimension [num_seqs]", list(seq_lens.shape))
    num_seqs = seq_lens.shape[0]
    check_companion("seq_lens", seq_lens, q, (num_seqs,), torch.int32)
    check_companion("cu_seqlens_q", cu_seqlens_q, q, (num_seqs + 1,), torch.int32)
    require(isinstance(block_table, torch.Tensor), "block_table", "a tensor", type(block_table).__name__)
    require(block_table.dim() == 2, "block_table", "[num_seqs, max_pages]", list(block_table.shape))
    check_companion("block_table", block_table, q, (num_seqs, block_table.shape[1]), torch.int32)
    in_batch = 0 <= max_query_len <= q.shape[0]
    require(in_batch, "max_query_len", f"0 to {q.shape[0]}, the number of tokens in q", max_query_len)

    if softmax_scale is not None:
        require(math.isfinite(softmax_scale), "softmax_scale", "a finite number, or None", softmax_scale)
    if sliding_window is not None:
        require(sliding_window >= 1, "sliding_window", "at least 1 key, or None for off", sliding_window)
    if logits_soft_cap is not None:
        required = "a finite number above 0, or None for off"
        require(0 < logits_soft_cap < math.inf, "logits_soft_cap", required, logits_soft_cap)
    if alibi_slopes is not None:
        check_companion("alibi_slopes", alibi_slopes, q, (num_query_heads,), torch.float32)
    if sinks is not None:
        require(isinstance(sinks, torch.Tensor), "sinks", "a tensor", type(sinks).__name__)
        dtype = sinks.dtype if sinks.dtype in QUERY_DTYPES else torch.float32
        check_companion("sinks", sinks, q, (num_query_heads,), dtype)
    for name, scale in (("k_scale", k_scale), ("v_scale", v_scale)):
        if scale is not None:
            check_companion(name, scale, q, (1,), torch.float32)
    if out is not None:
        check_companion("out", out, q, tuple(q.shape), q.dtype)


def validate_tables(
    *,
    block_table: torch.Tensor,
    seq_lens: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    num_pages: int,
    page_size: int,
    max_query_len: int,
    num_tokens: int,
    sliding_window: int | None = None,
) -> None:
    """Check the values of a batch's lengths and tables. Copies them to the host, which synchronises.

    block_table [num_seqs, max_pages] int32, seq_lens [num_seqs] int32, cu_seqlens_q [num_seqs + 1] int32.
    Entries that no query can reach (past the end, or before the sliding window) may hold anything.
    Raises ValueError at the first value that would send a kernel astray.
    """
    table, lengths, starts = (t.detach().cpu().tolist() for t in (block_table, seq_lens, cu_seqlens_q))
    require(starts[0] == 0, "cu_seqlens_q", "0 as its first value", starts[0])
    require(starts[-1] <= num_tokens, "cu_seqlens_q", f"at most {num_tokens} tokens", starts[-1])
    for seq, seq_len in enumerate(lengths):
        where = f"of sequence {seq}"
        query_len = starts[seq + 1] - starts[seq]
        require(query_len >= 0, "cu_seqlens_q", f"values that never fall ({where})", starts[seq : seq + 2])
        require(query_len <= max_query_len, "max_query_len", f"at least {query_len} {where}", max_query_len)
        require(seq_len >= 0, "seq_lens", f"a length of 0 or more {where}", seq_len)
        needed = -(-seq_len // page_size)
        width = len(table[seq])
        require(needed <= width, "block_table", f"{needed} columns for {seq_len} keys {where}", width)
        first_visible = 0
        if sliding_window is not None:
            first_visible = max(0, seq_len - query_len - sliding_window + 1)
        for column in range(first_visible // page_size, needed if query_len else 0):
            page = table[seq][column]
            in_range = 0 <= page < num_pages
            require(in_range, f"block_table[{seq}, {column}]", f"a page from 0 to {num_pages - 1}", page)
