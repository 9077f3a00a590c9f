"""What a serving engine's scheduler hands to the model: tensors of fixed capacity, filled for each step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch

from pagegate.errors import UsageError


@dataclass(frozen=True)
class Running:
    """A sequence in a step. tokens: ids of the new tokens; seq_len: all its keys after the step, the new
    ones included; pages: of its keys, in order."""

    tokens: tuple[int, ...]
    seq_len: int
    pages: tuple[int, ...]


@dataclass(frozen=True)
class Capacity:
    """What a batch may grow to; kernels' grids and graphs depend on nothing else."""

    num_seqs: int
    num_tokens: int
    max_query_len: int
    max_pages: int
    page_size: int = 16


class Batch:
    """The step's tensors; `fill` changes them in place, so that a captured graph reads the new ones.

    token_ids, positions, slots [num_tokens] int64 (slot -1: padding); block_table [num_seqs, max_pages]
    int32; seq_lens [num_seqs] int32; cu_seqlens_q [num_seqs + 1] int32; last_rows [num_seqs] int64: the
    row of each sequence's last token.
    """

    def __init__(self, capacity: Capacity, device: torch.device):
        self.capacity = capacity

        def zeros(*shape: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        self.token_ids = zeros(capacity.num_tokens)
        self.positions = zeros(capacity.num_tokens)
        self.slots = zeros(capacity.num_tokens).fill_(-1)
        self.block_table = zeros(capacity.num_seqs, capacity.max_pages, dtype=torch.int32)
        self.seq_lens = zeros(capacity.num_seqs, dtype=torch.int32)
        self.cu_seqlens_q = zeros(capacity.num_seqs + 1, dtype=torch.int32)
        self.last_rows = zeros(capacity.num_seqs)

    def fill(self, running: Sequence[Running], dead_page: int = 0) -> None:
        """The next step's sequences; what is left of the capacity is padding (no queries, no keys).

        dead_page: what block-table entries hold that no key needs. Raises UsageError for more than fits.
        """
        size = self.capacity.page_size
        _check(running, self.capacity)
        spare_seqs = self.capacity.num_seqs - len(running)
        starts = [0, *accumulate(len(seq.tokens) for seq in running)]
        spare_rows = self.capacity.num_tokens - starts[-1]
        ids: list[int] = []
        positions: list[int] = []
        slots: list[int] = []
        for seq in running:
            mine = range(seq.seq_len - len(seq.tokens), seq.seq_len)
            ids += seq.tokens
            positions += mine
            slots += [seq.pages[position // size] * size + position % size for position in mine]
        table = torch.full(self.block_table.shape, dead_page, dtype=torch.int32)
        for row, seq in zip(table, running, strict=False):
            row[: len(seq.pages)] = torch.tensor(seq.pages, dtype=torch.int32)
        self.block_table.copy_(table)
        rows = [max(stop - 1, 0) for stop in starts[1:]]
        for tensor, values in (
            (self.token_ids, ids + [0] * spare_rows),
            (self.positions, positions + [0] * spare_rows),
            (self.slots, slots + [-1] * spare_rows),
            (self.seq_lens, [seq.seq_len for seq in running] + [0] * spare_seqs),
            (self.cu_seqlens_q, starts + starts[-1:] * spare_seqs),
            (self.last_rows, rows + [0] * spare_seqs),
        ):
            tensor.copy_(torch.tensor(values, dtype=tensor.dtype))


def _check(running: Sequence[Running], capacity: Capacity) -> None:
    size = capacity.page_size
    found = {
        "num_seqs": len(running),
        "num_tokens": sum(len(seq.tokens) for seq in running),
        "max_query_len": max((len(seq.tokens) for seq in running), default=0),
        "max_pages": max((len(seq.pages) for seq in running), default=0),
    }
    for name, value in found.items():
        if value > getattr(capacity, name):
            raise UsageError(f"batch: required at most {getattr(capacity, name)} {name}, found {value}")
    for number, seq in enumerate(running):
        if not len(seq.tokens) <= seq.seq_len <= len(seq.pages) * size:
            raise UsageError(
                f"batch: required of sequence {number} as many keys as new tokens ({len(seq.tokens)}) and "
                f"no more than its {len(seq.pages)} pages of {size} hold, found {seq.seq_len}"
            )


def grow(running: Sequence[Running], next_ids: Sequence[int], free: list[int], size: int) -> list[Running]:
    """The decode step after `running`: each sequence with its next token, and a page of `free` (taken from
    its end) where the last one is full. Raises UsageError when pages run out."""
    grown = []
    for seq, token in zip(running, next_ids, strict=True):
        pages = seq.pages
        if seq.seq_len == len(pages) * size:
            if not free:
                raise UsageError("pages: required a free page for each sequence that grows past its last one")
            pages = (*pages, free.pop())
        grown.append(Running((int(token),), seq.seq_len + 1, pages))
    return grown
