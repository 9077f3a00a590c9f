"""Our kernels on an emulated target, judged by the oracle."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from pagegate.amdgcn import Session, emulated
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
    """Who touched which byte of local memory between two barriers, in sets: an oracle for the shadow in
    LocalMemory. Gives how many bytes were changed by one wave and touched by another one in between."""
    load, store, barrier = LocalMemory.load, LocalMemory.store, LocalMemory.barrier
    touched: dict[tuple[int, int], tuple[set[int], set[int]]] = defaultdict(lambda: (set(), set()))
    memories: dict[int, LocalMemory] = {}
    conflicts: set[tuple[int, int]] = set()

    def note(memory: LocalMemory, addresses: Any, size: int, lanes: Any, changing: Any) -> None:
        memories[id(memory)] = memory
        # writing what is there already changes nothing, in any order
        for wave, lane in np.argwhere(lanes if changing is None else lanes & changing):
            group = int(wave) // memory._per_group * memory._stride
            for byte in range(int(addresses[wave, lane]), int(addresses[wave, lane]) + size):
                users, writers = touched[id(memory), group + byte]
                users.add(int(wave))
                if changing is not None:
                    writers.add(int(wave))
                if writers and len(users) > 1:
                    conflicts.add((id(memory), group + byte))

    def seen_load(self: LocalMemory, addresses: Any, size: int, lanes: Any) -> Any:
        note(self, addresses, size, lanes, None)
        return load(self, addresses, size, lanes)

    def seen_store(self: LocalMemory, addresses: Any, values: Any, size: int, lanes: Any) -> Any:
        before = self._data.copy()
        remark = store(self, addresses, values, size, lanes)
        changed = np.flatnonzero(self._data != before)
        changing = np.zeros(lanes.shape, bool)
        if changed.size:
            starts = np.asarray(addresses, np.int64) + self._starts
            first = np.searchsorted(changed, starts)
            changing = (first < changed.size) & (changed[np.minimum(first, changed.size - 1)] < starts + size)
        note(self, addresses, size, lanes, changing)
        return remark

    def seen_barrier(self: LocalMemory, group: int) -> None:
        for key in [key for key in touched if key[0] == id(self) and key[1] // self._stride == group]:
            del touched[key]
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
