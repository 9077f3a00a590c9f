"""Hypothesis strategies for cases: the whole space, its edges weighted, shrinking towards one sequence,
one head, one page and no feature.

`small` cases run in Triton's interpreter in about a second; `full` ones need a GPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from .features import FEATURES
from .spec import DEAD_FILLS, PROFILES, AttentionSpec, Case

_HEAD_DIMS = (32, 64, 128, 256, 80, 96, 112, 192)
_RATIOS = (1, 2, 4, 8, 3, 5, 6, 7, 12, 16, 32)
_PAGES = (16, 8, 24, 32, 64, 128, 256, 528, 544)
_TILES = (16, 32, 64, 128)


@dataclass(frozen=True)
class Size:
    """How large cases get. row_limit: query tokens x query heads; score_limit: query heads x sum of
    query_len x seq_len; kv_limit: sum(seq_lens) x num_kv_heads x head_dim; one case in `long_odds` has a
    sequence up to long_len."""

    max_seqs: int
    max_kv_heads: int
    usual_len: int
    long_len: int
    long_odds: int
    usual_queries: int
    long_queries: int
    row_limit: int
    score_limit: int
    kv_limit: int


SMALL = Size(4, 2, 80, 500, 8, 8, 40, 32, 3_000, 60_000)
FULL = Size(24, 8, 1_500, 32_768, 10, 40, 2_048, 1 << 17, 400_000_000, 24_000_000)
SIZES = {"small": SMALL, "full": FULL}


def _edges(limit: int, page_size: int, window: int | None) -> list[int]:
    """Lengths where kernels go wrong, the simplest first."""
    marks = [page_size, 2 * page_size, *_TILES, *([window] if window else [])]
    near = [mark + delta for mark in marks for delta in (0, -1, 1)]
    return [n for n in dict.fromkeys([1, 0, 2, *near]) if 0 <= n <= limit] or [0]


def _length(limit: int, page_size: int, window: int | None) -> st.SearchStrategy[int]:
    return st.one_of(st.sampled_from(_edges(limit, page_size, window)), st.integers(0, limit))


@st.composite
def _one_sequence(
    draw: st.DrawFn, size: Size, page_size: int, window: int | None, long: bool
) -> tuple[int, int]:
    """Query and sequence length: decode, drafts, chunk, prompt, nothing, or more queries than keys."""
    longest = size.long_len if long else size.usual_len
    seq_len = draw(st.integers(longest // 2, longest) if long else _length(longest, page_size, window))
    queries = size.usual_queries if draw(st.integers(0, 7)) else size.long_queries
    kind = draw(st.sampled_from(("decode", "drafts", "chunk", "prompt", "none", "queries_past_keys")))
    if kind == "decode":
        return 1, seq_len
    if kind == "drafts":
        return draw(st.integers(2, 8)), max(seq_len, 8)
    if kind == "none":
        return 0, seq_len
    query_len = draw(_length(queries, page_size, window))
    if kind == "chunk":
        return min(query_len, seq_len), seq_len
    if kind == "prompt":
        return query_len, query_len
    return query_len, min(seq_len, query_len)


def _within(
    size: Size, lengths: list[tuple[int, int]], heads: int, kv_elements: int
) -> list[tuple[int, int]]:
    """The sequences shortened to what the size allows, so that no draw is wasted."""
    kept = []
    rows, scores, kv = size.row_limit, size.score_limit, size.kv_limit
    for query_len, seq_len in lengths:
        query_len = min(query_len, rows // heads)
        seq_len = min(seq_len, kv // kv_elements)
        if query_len:
            seq_len = min(seq_len, max(1, scores // (heads * query_len)))
        rows -= query_len * heads
        scores -= query_len * seq_len * heads
        kv -= seq_len * kv_elements
        kept.append((query_len, seq_len))
    return kept


@st.composite
def specs(draw: st.DrawFn, size: Size) -> AttentionSpec:
    """Specs over every axis of `AttentionSpec`."""
    ratio = draw(st.sampled_from(_RATIOS))
    num_kv_heads = draw(st.integers(1, max(1, min(size.max_kv_heads, size.row_limit // ratio // 2))))
    head_dim = draw(st.sampled_from(_HEAD_DIMS))
    page_size = draw(st.sampled_from(_PAGES))
    fields: dict[str, Any] = {}
    for feature in FEATURES:
        if feature.variants and draw(st.integers(0, 3)) == 3:
            fields |= draw(st.sampled_from(feature.variants))
    count = draw(st.integers(1, size.max_seqs))
    long = draw(st.integers(0, size.long_odds - 1)) == size.long_odds - 1
    window = fields.get("sliding_window")
    lengths = [draw(_one_sequence(size, page_size, window, long and i == 0)) for i in range(count)]
    lengths = _within(size, lengths, ratio * num_kv_heads, num_kv_heads * head_dim)
    query_lens, seq_lens = zip(*lengths, strict=True)
    if draw(st.integers(0, 4)) == 4:
        fields["shared_prefix"] = draw(st.integers(0, min(seq_lens)))
    return AttentionSpec(
        query_lens=query_lens,
        seq_lens=seq_lens,
        num_query_heads=ratio * num_kv_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        page_size=page_size,
        dtype=draw(st.sampled_from(("bf16", "fp16", "fp32"))),
        layout=draw(st.sampled_from(("nhd", "nhd", "hnd", "interleaved", "mixed"))),
        token_layout=draw(st.sampled_from(("packed",) * 8 + ("fused",) * 3 + ("transposed",) * 2 + ("far",))),
        far_pages=draw(st.integers(0, 15)) == 15,
        table_slack=draw(st.sampled_from((0, 0, 1, 3))),
        pad_tokens=draw(st.sampled_from((0, 0, 0, 1, 5))),
        **fields,
    )


@st.composite
def cases(draw: st.DrawFn, size: Size) -> Case:
    """Cases of a size: a spec, a profile, a dead fill and a seed."""
    return Case(
        draw(specs(size)),
        profile=draw(st.sampled_from(PROFILES)),
        dead=draw(st.sampled_from(DEAD_FILLS)),
        seed=draw(st.integers(0, 1 << 16)),
    )
