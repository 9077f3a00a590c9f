"""Our kernels on an emulated target, judged by the oracle."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

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
