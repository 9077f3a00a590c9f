"""The state of a batch of waves that run in step, and the masked writes to it.

Arrays keep the wave as their first and the lane as their last axis, vector registers one level above:
`vector[register, wave, lane]`, `scalar[wave, register]`. Waves of several workgroups run together; a
wave that stands elsewhere is masked out (`active`), exactly as a lane that EXEC switches off.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from .findings import Findings
from .local import LocalMemory
from .memory import AddressSpace
from .operands import EXEC
from .waits import Waits

Array: TypeAlias = npt.NDArray[Any]

LANES = 64
SCALARS = 128
_BITS = np.arange(LANES, dtype=np.uint64)


@dataclass(frozen=True)
class Shape:
    """How many waves a batch holds, how many of them make a workgroup, and what each may use."""

    waves: int
    waves_per_group: int
    vectors: int
    local_bytes: int
    private_bytes: int


class Machine:
    """A batch of waves. Instructions read and write it; the scheduler moves its waves on."""

    def __init__(self, shape: Shape, memory: AddressSpace, findings: Findings) -> None:
        waves = shape.waves
        self.shape = shape
        self.memory = memory
        self.findings = findings
        # registers start with a recognisable NaN, never with zero
        self.vector = np.full((shape.vectors, waves, LANES), 0xFFFA0DED, np.uint32)
        self.vector_f = self.vector.view(np.float32)
        self.vector_i = self.vector.view(np.int32)
        self.scalar = np.full((waves, SCALARS), 0xFFFA0DED, np.uint32)
        self.scalar_f = self.scalar.view(np.float32)
        self.scalar_i = self.scalar.view(np.int32)
        self.scalar64 = self.scalar.view(np.uint64)
        self.scc = np.zeros(waves, bool)
        self.scalar64[:, EXEC // 2] = 0xFFFFFFFFFFFFFFFF
        self.private = np.full((shape.private_bytes // 4, waves, LANES), 0xFFFA0DED, np.uint32)
        self.local = LocalMemory(shape.local_bytes, waves, shape.waves_per_group, findings)
        self.waits = Waits(self)
        self.active = np.ones(waves, bool)
        self.everyone = True
        self.enabled = np.ones((waves, LANES), bool)
        self.lanes = self.enabled  # the lanes that are written: DPP narrows them for one instruction
        self.full = True

    def activate(self, active: Array) -> None:
        """Let only these waves take part in what follows."""
        self.active = active
        self.everyone = bool(active.all())
        self.refresh_lanes()

    def refresh_lanes(self) -> None:
        """After a change of EXEC or of the active waves."""
        self.enabled = lanes_of(self.scalar64[:, EXEC // 2]) & self.active[:, None]
        self.lanes = self.enabled
        self.full = bool(self.lanes.all())

    def put_vector(self, index: int, value: Array) -> None:
        if self.full:
            self.vector[index] = value
        else:
            np.copyto(self.vector[index], value, where=self.lanes)

    def put_vector_f(self, index: int, value: Array) -> None:
        if self.full:
            self.vector_f[index] = value
        else:
            np.copyto(self.vector_f[index], value, where=self.lanes)

    def put_vector_unmasked(self, first: int, values: Array) -> None:
        """Rows of values to consecutive registers in every lane of the active waves, whatever EXEC says."""
        target = self.vector[first : first + values.shape[0]]
        if self.everyone:
            target[...] = values
        else:
            np.copyto(target, values, where=self.active[:, None])

    def put_scalar(self, index: int, value: Any) -> None:
        if self.everyone:
            self.scalar[:, index] = value
        else:
            np.copyto(self.scalar[:, index], value, where=self.active, casting="unsafe")
        if index >= EXEC:
            self.refresh_lanes()

    def put_scalar64(self, index: int, value: Any) -> None:
        if self.everyone:
            self.scalar64[:, index >> 1] = value
        else:
            np.copyto(self.scalar64[:, index >> 1], value, where=self.active, casting="unsafe")
        if index >= EXEC:
            self.refresh_lanes()

    def put_scc(self, value: Array) -> None:
        if self.everyone:
            self.scc[...] = value
        else:
            np.copyto(self.scc, value, where=self.active)


def lanes_of(masks: Array) -> Array:
    """64-bit masks, one per wave, as booleans [wave, lane]."""
    packed = np.ascontiguousarray(masks).view(np.uint8).reshape(-1, 8)
    return np.unpackbits(packed, axis=1, bitorder="little").view(bool)


def mask_of(lanes: Array) -> Array:
    """Booleans [wave, lane] as 64-bit masks, one per wave."""
    return np.packbits(lanes, axis=1, bitorder="little").view(np.uint64)[:, 0]
