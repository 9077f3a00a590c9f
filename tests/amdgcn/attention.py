"""Our kernels on an emulated target, judged by the oracle."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from pagegate.amdgcn.driver import Session, emulated
from pagegate.amdgcn.local import LocalMemory
from pagegate.amdgcn.memory import AddressSpace, Allocation
from pagegate.cases.notation import parse_case
from pagegate.cases.registry import Kernel, find_kernel
from pagegate.cases.spec import Case
from pagegate.oracle.checking import check
from pagegate.oracle.results import CheckResult

CPU = torch.device("cpu")


@contextmanager
def traced() -> Iterator[Any]:
    """A digest of all local memory at every barrier, and of all tensors after every launch."""
    digest = hashlib.sha256()
    barrier, remove = LocalMemory.barrier, AddressSpace.remove

    def seen_barrier(self: LocalMemory, group: int) -> None:
        digest.update(self._data[group * self._stride : (group + 1) * self._stride].tobytes())
        barrier(self, group)

    def seen_end(self: AddressSpace, allocation: Allocation) -> None:
        remove(self, allocation)
        for tensor in self.allocations:
            digest.update(tensor.data.tobytes())

    with patch.object(LocalMemory, "barrier", seen_barrier), patch.object(AddressSpace, "remove", seen_end):
        yield digest


@contextmanager
def recorded() -> Iterator[Callable[[], int]]:
    """Who touched which byte of local memory between two barriers: an oracle for the shadow in LocalMemory.

    Gives how many bytes were changed by one wave and touched by another one in between. Writing what is
    there already changes nothing, in any order; nor do equal writes at once.
    """
    load, store, barrier = LocalMemory.load, LocalMemory.store, LocalMemory.barrier
    # per memory and byte, one bit per wave: users and writers
    touched: dict[int, tuple[LocalMemory, Any, Any]] = {}
    conflicts: set[tuple[int, int]] = set()

    def note(memory: LocalMemory, bytes_of: Any, waves: Any, writes: bool) -> None:
        empty = np.zeros(memory._data.size, np.uint32)
        _, users, writers = touched.setdefault(id(memory), (memory, empty, empty.copy()))
        bits = np.uint32(1) << (waves % memory._per_group).astype(np.uint32)
        for bitmap in (users, writers) if writes else (users,):
            np.bitwise_or.at(bitmap, bytes_of, bits)
        places = np.unique(bytes_of)
        bad = places[(writers[places] != 0) & (np.bitwise_count(users[places]) > 1)]
        conflicts.update((id(memory), int(place)) for place in bad)

    def places_of(memory: LocalMemory, addresses: Any, size: int, lanes: Any) -> tuple[Any, Any]:
        waves, lane = np.nonzero(lanes)
        starts = np.asarray(addresses)[waves, lane].astype(np.int64) + memory._starts[waves, 0]
        return (starts[:, None] + np.arange(size)).ravel(), waves.repeat(size)

    def seen_load(self: LocalMemory, addresses: Any, size: int, lanes: Any) -> Any:
        note(self, *places_of(self, addresses, size, lanes), False)
        return load(self, addresses, size, lanes)

    def seen_store(self: LocalMemory, addresses: Any, values: Any, size: int, lanes: Any) -> Any:
        before = self._data.copy()
        remark = store(self, addresses, values, size, lanes)
        places, waves = places_of(self, addresses, size, lanes)
        places, first = np.unique(places, return_index=True)
        changed = self._data[places] != before[places]
        note(self, places[changed], waves[first][changed], True)
        return remark

    def seen_barrier(self: LocalMemory, group: int) -> None:
        if id(self) in touched:
            for bitmap in touched[id(self)][1:]:
                bitmap[group * self._stride : (group + 1) * self._stride] = 0
        barrier(self, group)

    with (
        patch.object(LocalMemory, "load", seen_load),
        patch.object(LocalMemory, "store", seen_store),
        patch.object(LocalMemory, "barrier", seen_barrier),
    ):
        yield lambda: len(conflicts)


def check_on(
    target: str,
    kernel: str | Kernel,
    line: str | Case,
    rewrite: Callable[[str], str] | None = None,
    relations: int | None = 0,
) -> tuple[CheckResult, Session]:
    """Check one case, or a line in the notation of the workload table.

    No float8 here: triton 3.6 keeps the converters of the first target that a process compiles for.
    """
    entry = find_kernel(kernel) if isinstance(kernel, str) else kernel
    with emulated(target, rewrite=rewrite) as session:
        case = parse_case(line) if isinstance(line, str) else line
        result: Any = check(entry, case, CPU, relations)
    return result, session
