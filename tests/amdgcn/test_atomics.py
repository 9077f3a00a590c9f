"""Atomics through Triton: every operation, counters, locks, the last workgroup's reduction, LDS."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from pagegate.amdgcn.driver import emulated

CELLS, BLOCK, GROUPS = 8, 128, 3


@triton.jit
def update_kernel(
    cells_ptr, values_ptr, old_ptr, n, CELLS: tl.constexpr, OP: tl.constexpr, BLOCK: tl.constexpr
):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live = at < n
    value = tl.load(values_ptr + at, mask=live)
    cells = cells_ptr + at % CELLS
    if OP == "add":
        old = tl.atomic_add(cells, value, mask=live)
    elif OP == "max":
        old = tl.atomic_max(cells, value, mask=live)
    elif OP == "min":
        old = tl.atomic_min(cells, value, mask=live)
    elif OP == "and":
        old = tl.atomic_and(cells, value, mask=live)
    elif OP == "or":
        old = tl.atomic_or(cells, value, mask=live)
    else:
        old = tl.atomic_xor(cells, value, mask=live)
    tl.store(old_ptr + at, old, mask=live)


INTEGERS = ["add", "max", "min", "and", "or", "xor"]
CHOICES = [
    *((op, dtype) for op in INTEGERS for dtype in (torch.int32, torch.int64)),
    *((op, dtype) for op in ("max", "min") for dtype in (torch.uint32,)),
    *((op, torch.float32) for op in ("add", "max", "min")),
    ("add", torch.float64), ("add", torch.float16), ("add", torch.bfloat16),
]  # fmt: skip


@pytest.mark.parametrize(("op", "dtype"), CHOICES, ids=lambda value: str(value).removeprefix("torch."))
def test_operations(target: str, op: str, dtype: torch.dtype) -> None:
    """The cells end as any order of the operations leaves them; the first one sees what was there."""
    generator = torch.Generator().manual_seed(0)
    n = GROUPS * BLOCK - 5
    low, high = (-9, 9) if dtype.is_floating_point else (0, 1 << 20)
    numbers = torch.randint(low, high, (n,), generator=generator)
    start = torch.randint(low, high, (CELLS,), generator=generator)
    values, cells = numbers.to(dtype), start.clone().to(dtype)
    old = torch.zeros(n, dtype=dtype)
    with emulated(target) as session:
        update_kernel[(GROUPS,)](cells, values, old, n, CELLS, op, BLOCK, num_warps=2)
    assert not session.report.findings
    lines = [line for entry in session.report.coverage.values() for line in entry.lines]
    assert any("_atomic_" in line.mnemonic for line in lines)
    for cell in range(CELLS):
        mine = numbers[cell::CELLS].tolist()
        assert int(cells[cell].item()) == fold(op, [int(start[cell]), *mine])
        assert int(start[cell]) in old[cell::CELLS].int().tolist()  # someone came first


def fold(op: str, numbers: list[int]) -> int:
    if op == "add":
        return sum(numbers)
    if op in ("max", "min"):
        return max(numbers) if op == "max" else min(numbers)
    function = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}[op]
    return int(function.reduce(np.array(numbers)))


@triton.jit
def last_kernel(x_ptr, partial_ptr, arrived_ptr, out_ptr, GROUPS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    mine = tl.program_id(0) * BLOCK + at
    tl.store(partial_ptr + mine, tl.load(x_ptr + mine) * 2)
    tl.debug_barrier()
    if tl.atomic_add(arrived_ptr, 1) == GROUPS - 1:
        total = tl.zeros([BLOCK], tl.float32)
        for group in range(GROUPS):
            total += tl.load(partial_ptr + group * BLOCK + at)
        tl.store(out_ptr + at, total)


def test_the_last_workgroup_reduces(target: str) -> None:
    x = torch.randn(40, BLOCK)
    partial, arrived, out = (
        torch.full((40, BLOCK), float("nan")),
        torch.zeros(1, dtype=torch.int32),
        torch.zeros(BLOCK),
    )
    with emulated(target, processes=2) as session:
        last_kernel[(40,)](x, partial, arrived, out, 40, BLOCK, num_warps=2)
    assert not session.report.findings
    torch.testing.assert_close(out, 2 * x.sum(0))
    assert arrived.item() == 40


@triton.jit
def locked_kernel(x_ptr, lock_ptr, out_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    mine = tl.load(x_ptr + tl.program_id(0) * BLOCK + at)
    while tl.atomic_cas(lock_ptr, 0, 1) == 1:
        pass
    tl.store(out_ptr + at, tl.load(out_ptr + at) + mine)
    tl.debug_barrier()
    tl.atomic_xchg(lock_ptr, 0)


def test_a_lock_is_handed_on(target: str) -> None:
    x = torch.randint(0, 9, (20, BLOCK)).float()
    lock, out = torch.zeros(1, dtype=torch.int32), torch.zeros(BLOCK)
    with emulated(target) as session:
        locked_kernel[(20,)](x, lock, out, BLOCK, num_warps=2)
    assert not session.report.findings
    assert torch.equal(out, x.sum(0))
    assert lock.item() == 0


@triton.jit
def queue_kernel(x_ptr, next_ptr, out_ptr, n, BLOCK: tl.constexpr):
    task = tl.atomic_add(next_ptr, 1, sem="relaxed")
    while task * BLOCK < n:
        at = task * BLOCK + tl.arange(0, BLOCK)
        tl.store(out_ptr + at, 3 * tl.load(x_ptr + at, mask=at < n), mask=at < n)
        task = tl.atomic_add(next_ptr, 1, sem="relaxed")


def test_a_queue_is_worked_off(target: str) -> None:
    x = torch.randn(1000)
    taken, out = torch.zeros(1, dtype=torch.int32), torch.full((1000,), float("nan"))
    with emulated(target) as session:
        queue_kernel[(3,)](x, taken, out, 1000, BLOCK, num_warps=2)
    assert not session.report.findings
    assert torch.equal(out, 3 * x)
    assert taken.item() == -(-1000 // BLOCK) + 3


@triton.jit
def histogram_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr, BINS: tl.constexpr):
    tl.store(out_ptr + tl.arange(0, BINS), tl.histogram(tl.load(x_ptr + tl.arange(0, BLOCK)), BINS))


def test_histogram_in_local_memory(target: str) -> None:
    x = torch.randint(0, 64, (512,), dtype=torch.int32)
    out = torch.zeros(64, dtype=torch.int32)
    with emulated(target) as session:
        histogram_kernel[(1,)](x, out, 512, 64, num_warps=4)
    assert not session.report.findings
    assert torch.equal(out, torch.bincount(x, minlength=64).int())
