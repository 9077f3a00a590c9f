"""Peers go through the same checks as our own kernels.

Libraries that are not here are stood in for by what their documents say they compute, so that the
adapters' conventions (windows, tables, scales) are checked on any machine.
"""

import sys
from types import ModuleType

import pytest
import torch

from pagegate.cases import peers
from pagegate.cases.notation import parse_case
from pagegate.cases.peers import flash_attn_3
from pagegate.cases.registry import find_kernel
from pagegate.cases.workloads import find_workloads
from pagegate.oracle.checking import check

CPU = torch.device("cpu")
LIBRARIES = ("flash_attn_3", "flashinfer", "vllm_triton", "cudnn")


@pytest.mark.parametrize("row", find_workloads("small"), ids=lambda row: row.name)
def test_torch_sdpa(row):
    kernel = find_kernel("torch_sdpa")
    result = check(kernel, row.case, CPU)
    assert result.status in ("PASSED", "UNSUPPORTED"), result.reason
    assert (result.status == "UNSUPPORTED") == (kernel.unsupported_reason(row.spec) is not None)


def test_what_torch_sdpa_does_not_take():
    kernel = find_kernel("torch_sdpa")
    reasons = [kernel.unsupported_reason(row.spec) for row in find_workloads("small")]
    assert sum(reason is not None for reason in reasons) == 9


@pytest.fixture
def install(monkeypatch):
    """install(name, **functions): a module of that name; libraries are looked up anew."""

    def put(name, **members):
        module = ModuleType(name)
        for member, value in members.items():
            setattr(module, member, value)
        parts = name.split(".")
        for count in range(1, len(parts)):
            parent = ".".join(parts[:count])
            if parent not in sys.modules:
                monkeypatch.setitem(sys.modules, parent, ModuleType(parent))
        monkeypatch.setitem(sys.modules, name, module)

    _forget()
    monkeypatch.setattr(flash_attn_3, "_on_hopper", lambda: True)
    yield put
    _forget()


def _forget():
    peers.find_library.cache_clear()
    flash_attn_3._library.cache_clear()


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_library_that_does_not_import_is_a_reason(name, install, monkeypatch):
    for library in (
        "flash_attn_interface",
        "flash_attn_3",
        "fa3_fwd_interface",
        "flashinfer",
        "vllm",
        "cudnn",
    ):
        monkeypatch.setitem(sys.modules, library, None)
    result = check(find_kernel(name), parse_case("q3s40 h2/1 d64"), CPU)
    assert result.status == "UNSUPPORTED"
    assert "found that it does not import (ModuleNotFoundError" in result.reason


def test_a_build_that_does_not_load_makes_way_for_the_next(install):
    name = "vllm.vllm_flash_attn.flash_attn_interface"
    install(name, FA3_AVAILABLE=False, FA3_UNAVAILABLE_REASON="undefined symbol")
    spec = parse_case("q3s40 h2/1 d64").spec
    assert "undefined symbol" in find_kernel("flash_attn_3").unsupported_reason(spec)
    _forget()
    install("fa3_fwd_interface", flash_attn_with_kvcache=with_kvcache)
    assert find_kernel("flash_attn_3").unsupported_reason(spec) is None


def dense(q, k, v, scale, causal, left, cap=0.0, sinks=None, slopes=None):
    """One sequence, bottom-right; left: keys before a query's own position, or -1."""
    n, length, ratio = q.shape[0], k.shape[0], q.shape[1] // k.shape[1]
    queries, keys = torch.arange(n)[:, None] + length - n, torch.arange(length)[None]
    seen = torch.ones(n, length, dtype=torch.bool)
    if causal:
        seen &= keys <= queries
    if left >= 0:
        seen &= keys >= queries - left
    unseen = ~seen.any(0)[:, None, None]
    k, v = (x.double().masked_fill(unseen, 0.0).repeat_interleave(ratio, 1) for x in (k, v))
    logits = torch.einsum("qhd,khd->hqk", q.double(), k) * scale
    logits = cap * torch.tanh(logits / cap) if cap else logits
    if slopes is not None:
        logits = logits + slopes.double()[:, None, None] * (keys - (length - n))
    logits = logits.masked_fill(~seen, -torch.inf)
    if sinks is not None:
        logits = torch.cat([logits, sinks.double()[:, None, None].expand(-1, n, 1)], 2)
    weights = torch.softmax(logits, 2).nan_to_num(0.0)[..., :length]
    return torch.einsum("hqk,khd->qhd", weights, v).to(q.dtype)


def ragged(q, starts, lengths, keys_of, **features):
    out = torch.zeros_like(q)
    for seq, length in enumerate(lengths.tolist()):
        rows = slice(int(starts[seq]), int(starts[seq + 1]))
        out[rows] = dense(q[rows], *keys_of(seq, length), **features)
    return out


def paged(k_cache, v_cache, table):
    return lambda seq, length: (c[table[seq].long()].flatten(0, 1)[:length] for c in (k_cache, v_cache))


def with_kvcache(q, k_cache, v_cache, *, cache_seqlens, cu_seqlens_q, max_seqlen_q, softmax_scale, causal,
                 softcap, window_size, page_table=None, scheduler_metadata=None):  # fmt: skip
    assert max_seqlen_q == int(cu_seqlens_q.diff().max())
    if page_table is None:
        keys_of = lambda seq, length: (k_cache[seq, :length], v_cache[seq, :length])  # noqa: E731
    else:
        assert scheduler_metadata == "metadata"
        keys_of = paged(k_cache, v_cache, page_table)
    return ragged(q, cu_seqlens_q, cache_seqlens, keys_of, scale=softmax_scale, causal=causal,
                  left=window_size[0], cap=softcap)  # fmt: skip


def varlen(q, k, v, max_seqlen_q, cu_seqlens_q, max_seqlen_k, seqused_k, softmax_scale, causal, softcap,
           window_size, block_table, scheduler_metadata, num_splits, fa_version):  # fmt: skip
    assert fa_version == 3
    assert max_seqlen_k == max(1, int(seqused_k.max()))
    return with_kvcache(q, k, v, cache_seqlens=seqused_k, cu_seqlens_q=cu_seqlens_q, page_table=block_table,
                        max_seqlen_q=max_seqlen_q, softmax_scale=softmax_scale, causal=causal,
                        softcap=softcap, window_size=window_size, scheduler_metadata=scheduler_metadata)  # fmt: skip


def metadata(**shape):
    assert shape["headdim"] % 8 == 0
    return "metadata"


def unified_attention(q, k, v, out, cu_seqlens_q, max_seqlen_q, seqused_k, max_seqlen_k, softmax_scale, causal,
                      window_size, block_table, softcap, q_descale, k_descale, v_descale,
                      alibi_slopes=None, sinks=None):  # fmt: skip
    assert causal
    scales = [1.0 if s is None else float(s[0, 0]) for s in (k_descale, v_descale)]
    keys_of = paged(*(c.float() * s for c, s in zip((k, v), scales, strict=True)), block_table)
    new = ragged(q, cu_seqlens_q, seqused_k, keys_of, scale=softmax_scale, causal=True, left=window_size[0],
                 cap=softcap, sinks=sinks, slopes=alibi_slopes)  # fmt: skip
    tokens = int(cu_seqlens_q[-1])
    out[:tokens] = new[:tokens]


class Prefill:
    """flashinfer.BatchPrefillWithPagedKVCacheWrapper."""

    def __init__(self, workspace, layout):
        assert layout == "NHD"

    def plan(self, starts, indptr, pages, last, heads, kv_heads, dim, page_size, *, causal, sm_scale,
             window_left, logits_soft_cap, q_data_type, kv_data_type):  # fmt: skip
        self.starts, self.indptr, self.pages = starts, indptr, pages
        self.lengths = (indptr.diff() - 1) * page_size + last
        self.features = dict(scale=sm_scale, causal=causal, left=window_left, cap=logits_soft_cap or 0.0)

    def run(self, q, caches, out=None):
        def keys_of(seq, length):
            mine = self.pages[self.indptr[seq] : self.indptr[seq + 1]].long()
            return (c[mine].flatten(0, 1)[:length] for c in caches)

        new = ragged(q, self.starts, self.lengths, keys_of, **self.features)
        return new if out is None else out.copy_(new)


class Decode(Prefill):
    def __init__(self, workspace, layout, use_tensor_cores):
        super().__init__(workspace, layout)

    def plan(self, indptr, *arguments, **features):
        super().plan(
            torch.arange(indptr.numel(), dtype=torch.int32), indptr, *arguments, causal=True, **features
        )


STANDING_IN = {
    "FlashAttention-3": ("flash_attn_3", "flash_attn_interface",
                         dict(flash_attn_with_kvcache=with_kvcache, get_scheduler_metadata=metadata)),
    "vLLM's FlashAttention-3": ("flash_attn_3", "vllm.vllm_flash_attn.flash_attn_interface",
                         dict(flash_attn_varlen_func=varlen, get_scheduler_metadata=metadata, FA3_AVAILABLE=True)),
    "fa3-fwd": ("flash_attn_3", "fa3_fwd_interface", dict(flash_attn_with_kvcache=with_kvcache)),
    "flashinfer": ("flashinfer", "flashinfer",
                   dict(BatchPrefillWithPagedKVCacheWrapper=Prefill, BatchDecodeWithPagedKVCacheWrapper=Decode)),
    "vllm_triton": ("vllm_triton", "vllm.v1.attention.ops.triton_unified_attention",
                    dict(unified_attention=unified_attention)),
}  # fmt: skip
LINES = (
    "q1s33_q1s90 h4/2 d64 slack=3 dead=inf",
    "q9s73_q4s41 h2/1 d64 profile=needle",
    "q12s60_q3 h4/1 d64 softcap=2 scale=0.3 tokens=fused pad=2",
    "q24s60_q1s90 h2/1 d64 window=9 profile=forbidden",
    "q1s100_q1s24 h2/1 d64 window=24 profile=needle layout=interleaved",
    "q20s37_q2s64 h2/1 d64 noncausal layout=hnd",
    "q1s60_q20s60 h8/1 d64 window=33 sinks",
    "q6s50_q1s33 h4/2 d64 alibi layout=mixed",
    "q3s40_q1s33 h4/2 d64 kv=fp8",
    "q2s0_q5s3_q0s9 h2/1 d64",
)
SUPPORTED = {
    "FlashAttention-3": 7,
    "vLLM's FlashAttention-3": 7,
    "fa3-fwd": 5,
    "flashinfer": 6,
    "vllm_triton": 8,
}


@pytest.mark.parametrize("name", STANDING_IN)
def test_adapters_keep_to_the_libraries_conventions(name, install):
    kernel, library, members = STANDING_IN[name]
    install(library, **members)
    statuses = []
    for line in LINES:
        result = check(find_kernel(kernel), parse_case(line), CPU, max_relations=2)
        assert result.status in ("PASSED", "UNSUPPORTED"), f"{line}: {result.status} {result.reason}"
        statuses.append(result.status)
    assert statuses.count("PASSED") == SUPPORTED[name]


def test_a_wrong_convention_is_noticed(install):
    """The control: a window that is one key wider than what the library documents."""

    def wider(*arguments, window_size, **others):
        left = window_size[0] + (window_size[0] >= 0)
        return with_kvcache(*arguments, window_size=(left, window_size[1]), **others)

    install("flash_attn_interface", flash_attn_with_kvcache=wider, get_scheduler_metadata=metadata)
    result = check(find_kernel("flash_attn_3"), parse_case("q24s60 h2/1 d64 window=9 profile=forbidden"), CPU)
    assert result.failed


def test_refusals(install):
    install("fa3_fwd_interface", flash_attn_with_kvcache=with_kvcache)
    refused = {
        "q3s40 h2/1 d64 window=9": "fa3-fwd is built without windows",
        "q3s40 h2/1 d64 fp16": "not built for fp16",
        "q3s40 h2/1 d64 fp32": "not built for fp32",
        "q3s40 h2/1 d36": "a multiple of 8, found 36",
    }
    for line, words in refused.items():
        assert words in find_kernel("flash_attn_3").unsupported_reason(parse_case(line).spec)
    install("flashinfer")
    assert "head_dim of 64, 128, 256" in find_kernel("flashinfer").unsupported_reason(
        parse_case("q3s40 h2/1 d96").spec
    )
