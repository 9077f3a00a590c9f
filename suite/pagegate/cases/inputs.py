"""Placing a case's content in memory: pages, block table, layouts, guards, and poison everywhere else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from .content import Content
from .draws import Draws
from .spec import AttentionSpec

GUARD = 1024  # elements before and after each cache and output: enough for a page, and 16-byte aligned
_FAR = 1 << 31


@dataclass(frozen=True)
class Placement:
    """Where content lies. seed: which physical pages; dead: what fills everything that no query can
    reach; spare_pages: unowned pages below the owned ones (content moves to high page ids)."""

    seed: int = 0
    dead: str = "nan"
    spare_pages: int = 0


@dataclass(frozen=True)
class Inputs:
    """The tensors of a call. Field names, and the keys of `features`, are the keywords that kernels take.

    q [num_tokens + padding, num_query_heads, head_dim]; k_cache, v_cache [num_pages, page_size,
    num_kv_heads, head_dim]; block_table [num_seqs, max_pages] int32; seq_lens [num_seqs] int32;
    cu_seqlens_q [num_seqs + 1] int32. storages: the whole buffers behind them, guards included, by name.
    """

    q: torch.Tensor
    k_cache: torch.Tensor
    v_cache: torch.Tensor
    block_table: torch.Tensor
    seq_lens: torch.Tensor
    cu_seqlens_q: torch.Tensor
    max_query_len: int
    features: Mapping[str, Any] = field(default_factory=dict)
    storages: Mapping[str, torch.Tensor] = field(default_factory=dict)

    def keywords(self) -> dict[str, Any]:
        names = ("q", "k_cache", "v_cache", "block_table", "seq_lens", "cu_seqlens_q", "max_query_len")
        return {name: getattr(self, name) for name in names} | dict(self.features)


def dead_value(fill: str, dtype: torch.dtype) -> float:
    """What lies in dead slots; large finite values stand in for the infinity that fp8 lacks."""
    limits = torch.finfo(dtype)
    if fill == "nan":
        return float("nan")
    if fill == "inf" and limits.bits > 8:
        return float("inf")
    return min(1e4, limits.max)


def fill_dead(tensor: torch.Tensor, fill: str) -> None:
    value = torch.tensor([dead_value(fill, tensor.dtype)]).to(tensor.dtype)
    if tensor.element_size() == 1:
        tensor.view(torch.uint8).fill_(int(value.view(torch.uint8).item()))
    else:
        tensor.fill_(value.item())


def place(content: Content, placement: Placement) -> Inputs:
    """Put content into memory. Everything that no query can reach holds the dead fill."""
    spec, device = content.spec, content.q.device
    draws = Draws(placement.seed, device)
    table, pages, slots, source, num_pages = _lay_out(content, placement, draws)
    k_cache, v_cache, storages = _caches(spec, num_pages, content.keys.dtype, device, placement.dead)
    for cache, data in ((k_cache, content.keys), (v_cache, content.values)):
        bits = torch.uint8 if cache.element_size() == 1 else cache.dtype
        cache.view(bits)[pages, slots] = data.view(bits)[source]
    q, q_storage = token_buffer(spec, content.q.dtype, device, placement.dead)
    q[: spec.num_tokens] = content.q
    storages |= {"q": q_storage, "block_table": table}
    starts = torch.tensor(content.query_starts(), dtype=torch.int32, device=device)
    return Inputs(
        q=q,
        k_cache=k_cache,
        v_cache=v_cache,
        block_table=table[:, : table.shape[1] - 1] if spec.table_slack else table,
        seq_lens=torch.tensor(spec.seq_lens, dtype=torch.int32, device=device),
        cu_seqlens_q=starts,
        max_query_len=spec.max_query_len,
        features=content.arguments,
        storages=storages,
    )


def token_buffer(
    spec: AttentionSpec, dtype: torch.dtype, device: torch.device, fill: str, *, output: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """A buffer for queries (or the output) in the spec's token layout, filled with `fill`, and its storage.

    The view is [num_tokens + pad_tokens, num_query_heads, head_dim]. A far layout's storage is only
    touched where rows lie, so the returned storage is the view itself.
    """
    rows = spec.num_tokens + spec.pad_tokens
    heads, dim = spec.num_query_heads, spec.head_dim
    width = heads * dim
    if spec.token_layout == "far" and rows > 1:
        stride = _aligned(_FAR // (rows - 1) + width)
        flat = torch.empty(stride * (rows - 1) + width, dtype=dtype, device=device)
        view = flat.as_strided((rows, heads, dim), (stride, dim, 1))
        fill_dead(view, fill)
        return view, view
    # queries and output never share a stride that could be taken for the other's
    strides = (width, dim)
    if spec.token_layout == "fused":
        gap = 8
        strides = (heads * (dim + gap), dim + gap) if output else (width + 2 * spec.num_kv_heads * dim, dim)
    elif spec.token_layout == "transposed" and not output:
        strides = (dim, max(rows, 1) * dim)
    span = (rows - 1) * strides[0] + (heads - 1) * strides[1] + dim if rows else 0
    flat = torch.empty(2 * GUARD + span, dtype=dtype, device=device)
    fill_dead(flat, fill)
    return flat.as_strided((rows, heads, dim), (*strides, 1), GUARD), flat


def _aligned(elements: int) -> int:
    return -(-elements // 128) * 128


def _lay_out(
    content: Content, placement: Placement, draws: Draws
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, int]:
    """The block table; page and slot of each live key and its index in the content; the pool's size."""
    spec = content.spec
    size = spec.page_size
    owners: dict[tuple[int, int], int] = {}
    live = [spec.reachable(seq) for seq in range(spec.num_seqs)]
    for seq, keys in enumerate(live):
        for column in _columns(keys, size):
            owners.setdefault(_owner(spec, seq, column), len(owners))
    unowned = 2
    pool = len(owners) + unowned
    physical = [placement.spare_pages + page for page in draws.permutation("pages", pool)]
    width = -(-spec.max_seq_len // size) + spec.table_slack
    # one more column, cut off by `place`: rows of the table are then a slice of a wider buffer
    table = torch.full((spec.num_seqs, width + (spec.table_slack > 0)), _dead_page(placement, physical[-1]))
    pages, slots, source = [], [], []
    for seq, (keys, start) in enumerate(zip(live, content.key_starts(), strict=False)):
        columns = _columns(keys, size)
        if not columns:
            continue
        mine = torch.tensor([physical[owners[_owner(spec, seq, c)]] for c in columns])
        table[seq, columns.start : columns.stop] = mine
        positions = torch.arange(keys.start, keys.stop)
        pages.append(mine[positions // size - columns.start])
        slots.append(positions % size)
        source.append(positions + start)
    empty = torch.zeros(1, dtype=torch.int64)[:0]
    device = content.q.device
    page, slot, index = (torch.cat([empty, *parts]).to(device) for parts in (pages, slots, source))
    return table.to(torch.int32).to(device), page, slot, index, placement.spare_pages + pool


def _columns(keys: range, page_size: int) -> range:
    return range(keys.start // page_size, -(-keys.stop // page_size)) if keys else range(0)


def _owner(spec: AttentionSpec, seq: int, column: int) -> tuple[int, int]:
    shared = (column + 1) * spec.page_size <= spec.shared_prefix
    return (-1 if shared else seq, column)


def _dead_page(placement: Placement, unowned: int) -> int:
    """What stands in table entries that must not be read: a poisoned page, or ids out of range."""
    return {"nan": unowned, "inf": 1 << 30, "large": -1}[placement.dead]


def _caches(
    spec: AttentionSpec, num_pages: int, dtype: torch.dtype, device: torch.device, dead: str
) -> tuple[torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]:
    """K and V views [page, slot, head, dim] and the storages behind them, all poisoned."""
    size, heads, dim = spec.page_size, spec.num_kv_heads, spec.head_dim
    page = size * heads * dim
    slot_stride, head_stride = (dim, size * dim) if spec.layout == "hnd" else (heads * dim, dim)
    buffers = 2
    if spec.layout == "interleaved":
        page, slot_stride, buffers = 2 * page, 2 * heads * dim, 1
    page_stride = _aligned(_FAR // max(num_pages - 1, 1) + page) if spec.far_pages else page
    views, storages = [], {}
    for number in range(buffers):
        count = page_stride * (num_pages - 1) + page
        flat = torch.empty(2 * GUARD + count, dtype=dtype, device=device)
        if spec.far_pages:
            # the gaps stay untouched: they are gigabytes
            storage = flat.as_strided((num_pages, page), (page_stride, 1), GUARD)
        else:
            storage = flat
        fill_dead(storage, dead)
        storages["kv_cache" if buffers == 1 else ("k_cache", "v_cache")[number]] = storage
        views.append(flat)
    strides = (page_stride, slot_stride, head_stride, 1)
    v_strides = (page_stride, dim, size * dim, 1) if spec.layout == "mixed" else strides
    shape = (num_pages, size, heads, dim)
    k = views[0].as_strided(shape, strides, GUARD)
    v_offset = GUARD + heads * dim if buffers == 1 else GUARD
    return k, views[-1].as_strided(shape, v_strides, v_offset), storages
