"""Operations in flight: results commit at `s_waitcnt`, or when a counter is full.

Sources: "CDNA3 Instruction Set Architecture" on s_waitcnt (vmcnt counts vector memory in order; lgkmcnt
counts LDS in order and scalar loads out of order), and LLVM's SIInsertWaitcnts: a counter that has
reached its maximum stalls the next issue, so older operations are done (vmcnt 63, lgkmcnt 15).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from .machine import Machine

Array: TypeAlias = npt.NDArray[Any]
Effect: TypeAlias = Callable[[Array], None]

SCALAR_SHIFT = 512  # bit positions of scalar registers in a register set, above the vector registers
CAPACITY = {"vmcnt": 63, "lgkmcnt": 15}


@dataclass
class Flight:
    """One memory operation in flight.

    registers: the set it will write, one bit each. waves: those it is still in flight for. commit: what
    happens at the end, for the given waves. remark: marks its LDS accesses again after a barrier.
    """

    counter: str
    ordered: bool
    registers: int
    waves: Array
    at: int
    commit: Effect | None = None
    remark: Effect | None = None


class Waits:
    """The operations in flight of a batch of waves, oldest first."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._queues: dict[str, list[Flight]] = {name: [] for name in CAPACITY}
        self.registers = 0  # the union over all flights

    def issue(self, flight: Flight) -> None:
        if self.registers & flight.registers:
            self._check(flight.registers, flight.counter if flight.ordered else "")
        queue = self._queues[flight.counter]
        queue.append(flight)
        self.registers |= flight.registers
        if len(queue) > CAPACITY[flight.counter]:
            self._retire(flight.counter, CAPACITY[flight.counter], saturated=True)

    def wait(self, counter: str, allowed: int) -> None:
        """Until at most `allowed` operations of the active waves are in flight."""
        queue = self._queues[counter]
        if len(queue) > allowed:
            self._retire(counter, allowed)

    def touch(self, registers: int) -> None:
        """An instruction uses these registers: a finding if one of them is in flight."""
        self._check(registers, "")

    def remark(self, waves: Array) -> None:
        """A barrier does not end what is in flight: mark the LDS accesses of these waves again."""
        for queue in self._queues.values():
            for flight in queue:
                if flight.remark is not None and (concerned := flight.waves & waves).any():
                    flight.remark(concerned)

    def drain(self, waves: Array) -> None:
        """These waves have ended: everything of theirs completes."""
        before = self._machine.active
        self._machine.active = waves
        for counter in self._queues:
            self._retire(counter, 0)
        self._machine.active = before

    def _check(self, registers: int, in_order_with: str) -> None:
        active = self._machine.active
        for queue in self._queues.values():
            for flight in queue:
                overlap = flight.registers & registers
                harmless = flight.counter == in_order_with and flight.ordered
                if overlap and not harmless and (flight.waves & active).any():
                    origin = self._machine.findings.lines[flight.at]
                    detail = f"{_name(overlap)} is still being loaded by {origin}"
                    self._machine.findings.add("register used before its wait", detail)

    def _retire(self, counter: str, allowed: int, saturated: bool = False) -> None:
        queue = self._queues[counter]
        active = self._machine.active
        unordered = any(not flight.ordered and (flight.waves & active).any() for flight in queue)
        if unordered and allowed > 0 and not saturated:
            # scalar loads return out of order: which ones are done is not known before all are
            return
        if all(flight.waves is active or np.array_equal(flight.waves, active) for flight in queue):
            done = queue[: len(queue) - allowed]
            self._queues[counter] = queue[len(done) :]
            for flight in done:
                if flight.commit is not None:
                    flight.commit(flight.waves)
        else:
            self._retire_some(counter, allowed)
        self._recount()

    def _retire_some(self, counter: str, allowed: int) -> None:
        """The general case: waves differ in what they have in flight."""
        queue = self._queues[counter]
        younger = np.zeros(len(self._machine.active), np.int32)
        due: list[tuple[Flight, Array]] = []
        for flight in reversed(queue):
            done = flight.waves & self._machine.active & (younger >= allowed)
            younger += flight.waves
            if done.any():
                due.append((flight, done))
        for flight, done in reversed(due):
            if flight.commit is not None:
                flight.commit(done)
            flight.waves = flight.waves & ~done
        self._queues[counter] = [flight for flight in queue if flight.waves.any()]

    def _recount(self) -> None:
        self.registers = 0
        for queue in self._queues.values():
            for flight in queue:
                self.registers |= flight.registers


def _name(registers: int) -> str:
    lowest = (registers & -registers).bit_length() - 1
    if lowest >= SCALAR_SHIFT:
        return f"s{lowest - SCALAR_SHIFT}"
    return f"a{lowest - 256}" if lowest >= 256 else f"v{lowest}"
