"""One launch: arguments packed, workgroups run in batches, on as many processes as asked for."""

from __future__ import annotations

import multiprocessing
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection

import numpy as np

from .arguments import Value, pack, start
from .findings import Finding, Findings
from .machine import LANES, Array, Machine, Shape
from .memory import AddressSpace, Allocation
from .program import Program
from .schedule import run_batch

WAVES_PER_BATCH = 128  # twice as fast as 32 where there are enough, and still in the cache
_WAVES_PER_PROCESS = 32  # fewer are not worth a process


@dataclass(frozen=True)
class Outcome:
    """What a launch showed. executed: per block of the program, how many waves ran it."""

    program: Program
    executed: Array
    findings: tuple[Finding, ...]

    @property
    def instructions(self) -> int:
        """Instructions executed, counted per wave."""
        blocks = self.program.blocks
        return sum(int(count) * block.size for block, count in zip(blocks, self.executed, strict=True))


def run_launch(
    program: Program,
    memory: AddressSpace,
    values: Sequence[Value],
    grid: tuple[int, int, int],
    num_warps: int,
    processes: int = 1,
) -> Outcome:
    """Run a grid of workgroups over the tensors in `memory`, in place."""
    findings = Findings(program.listing.name, program.listing.lines)
    block = pack(program.listing, list(values), grid, num_warps * LANES)
    arguments = memory.add_bytes("kernel arguments", block, writable=False)
    groups = np.stack(np.meshgrid(*(np.arange(size) for size in grid), indexing="ij"), -1)
    groups = groups.transpose(2, 1, 0, 3).reshape(-1, 3)
    executed = np.zeros(len(program.blocks), np.int64)
    # atomics of several processes would not see each other
    share = 1 if program.has_atomics else min(processes, -(-len(groups) * num_warps // _WAVES_PER_PROCESS))
    if share > 1:
        _run_shared(program, memory, arguments, groups, num_warps, share, findings, executed)
    else:
        _run_groups(program, memory, arguments, groups, num_warps, findings, executed)
    memory.remove(arguments)
    return Outcome(program, executed, findings.report())


def _run_groups(
    program: Program,
    memory: AddressSpace,
    arguments: Allocation,
    groups: Array,
    num_warps: int,
    findings: Findings,
    executed: Array,
) -> None:
    per_batch = max(WAVES_PER_BATCH // num_warps, 1)
    vectors = program.vectors
    for first in range(0, len(groups), per_batch):
        chosen = groups[first : first + per_batch]
        shape = Shape(len(chosen) * num_warps, num_warps, vectors, program.local_bytes, program.private_bytes)
        m = Machine(shape, memory, findings)
        start(m, program.listing, arguments.base, arguments.data, chosen)
        with np.errstate(all="ignore"):
            run_batch(m, program, executed)


def _run_shared(
    program: Program,
    memory: AddressSpace,
    arguments: Allocation,
    groups: Array,
    num_warps: int,
    share: int,
    findings: Findings,
    executed: Array,
) -> None:
    """Fork one process per share of the workgroups; their stores are repeated here, in order."""
    context = multiprocessing.get_context("fork")
    workers = []
    for number in range(share):
        receiver, sender = context.Pipe(duplex=False)
        work = (sender, program, memory, arguments, groups[number::share], num_warps)
        worker = context.Process(target=_work, args=work, daemon=True)
        with warnings.catch_warnings():
            # the children only use numpy; torch's threads stay behind in the parent
            warnings.simplefilter("ignore", DeprecationWarning)
            worker.start()
        sender.close()
        workers.append((worker, receiver))
    failure: BaseException | None = None
    for worker, receiver in workers:
        answer = receiver.recv()
        worker.join()
        if isinstance(answer, BaseException):
            failure = answer
            continue
        stores, entries, counts = answer
        memory.replay(stores)
        findings.merge(entries)
        executed += counts
    if failure is not None:
        raise failure


def _work(
    sender: Connection,
    program: Program,
    memory: AddressSpace,
    arguments: Allocation,
    groups: Array,
    num_warps: int,
) -> None:
    try:
        memory.log = []
        findings = Findings(program.listing.name, program.listing.lines)
        executed = np.zeros(len(program.blocks), np.int64)
        _run_groups(program, memory, arguments, groups, num_warps, findings, executed)
        sender.send((memory.log, findings.raw(), executed))
    except BaseException as error:
        sender.send(error)
