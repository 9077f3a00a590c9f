"""Our kernels on an emulated target, judged by the oracle."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch

from pagegate.amdgcn import PROPERTIES, Session, emulated
from pagegate.amdgcn.local import LocalMemory
from pagegate.amdgcn.memory import AddressSpace, Allocation
from pagegate.cases.notation import parse_case
from pagegate.cases.registry import Kernel, find_kernel
from pagegate.oracle.checking import check
from pagegate.oracle.results import CheckResult

CPU = torch.device("cpu")


@contextmanager
def on_target(target: str, rewrite: Callable[[str], str] | None = None) -> Iterator[Session]:
    """A session in which our plan chooses what it would choose on the target."""
    import paged_kernels.attention as attention
    import paged_kernels.launch as launch
    import paged_kernels.validation as validation

    machine = launch.Machine("hip", PROPERTIES[target]["multiprocessor_count"])
    with (
        patch.object(validation, "check_device", lambda q: None),
        patch.object(attention, "machine_of", lambda device: machine),
        emulated(target, rewrite=rewrite) as session,
    ):
        yield session


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
    line: str,
    rewrite: Callable[[str], str] | None = None,
    relations: int | None = 0,
) -> tuple[CheckResult, Session]:
    """Check one case, written as in the workload table."""
    entry = find_kernel(kernel) if isinstance(kernel, str) else kernel
    with on_target(target, rewrite) as session:
        result: Any = check(entry, parse_case(line), CPU, relations)
    return result, session
