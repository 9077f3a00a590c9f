"""The workgroups' local memory (LDS), with a shadow that notices races.

Each byte remembers which wave wrote it and which read it since the workgroup's last barrier. Two waves
that touch the same byte in between, one of them changing it, race: the hardware may run them in either
order. Writing the value that is already there is allowed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from .findings import Findings

Array: TypeAlias = npt.NDArray[Any]

POISON_BYTE = 0xED
_MANY = 0xFF  # read by several waves
_ATOMIC = 0xFE  # changed by atomics of any waves
_NAMES = {_MANY: "several waves", _ATOMIC: "an atomic"}
_DTYPES = {1: np.uint8, 2: np.uint16, 4: np.uint32}
_REPEAT = {1: 0x01, 2: 0x0101, 4: 0x01010101}


class LocalMemory:
    """Bytes of all workgroups of a batch. Addresses count from each workgroup's own start."""

    def __init__(self, size: int, waves: int, waves_per_group: int, findings: Findings) -> None:
        self.size = size
        self._stride = -(-size // 4) * 4
        self._per_group = waves_per_group
        self._findings = findings
        total = self._stride * (waves // waves_per_group)
        self._data = np.full(total, POISON_BYTE, np.uint8)
        self._writers = np.zeros(total, np.uint8)
        self._readers = np.zeros(total, np.uint8)
        self._writer_at = np.zeros(total // 4 + 1, np.int32)
        self._views = {
            width: tuple(array.view(kind) for array in (self._data, self._writers, self._readers))
            for width, kind in _DTYPES.items()
        }
        groups = np.arange(waves) // waves_per_group
        self._starts = (groups * self._stride).astype(np.int64)[:, None]
        self._tags = (np.arange(waves) % waves_per_group + 1).astype(np.uint8)[:, None]

    def load(self, addresses: Array, size: int, lanes: Array) -> tuple[Array, Callable[[Array], None]]:
        """`size` bytes at each address, as uint32 [wave, lane, words]; and the read's remark (see Waits)."""
        where, tags, wanted = self._place(addresses, size, lanes, "read")
        result = np.zeros((*addresses.shape, max(size // 4, 1)), np.uint32)
        width = self._width(where, size)
        data, _, _ = self._views[width]
        index = (where // width)[:, None] + np.arange(size // width)
        marks = tags.astype(data.dtype)[:, None] * data.dtype.type(_REPEAT[width])
        self._note_read(index, marks, width)
        values = data[index]
        if size >= 4:
            values = np.ascontiguousarray(values).view(np.uint32)
        elif width == 1 and size == 2:
            values = np.ascontiguousarray(values).view(np.uint16)
        result[wanted] = values

        def remark(waves: Array) -> None:
            keep = np.broadcast_to(waves[:, None], wanted.shape)[wanted]
            self._readers.view(_DTYPES[width])[index[keep]] = np.broadcast_to(marks, index.shape)[keep]

        return result, remark

    def store(self, addresses: Array, values: Array, size: int, lanes: Array) -> Callable[[Array], None]:
        """Write `size` bytes of values (uint32 [wave, lane, words]); returns the write's remark."""
        where, tags, wanted = self._place(addresses, size, lanes, "write")
        width = self._width(where, size)
        kind = _DTYPES[width]
        payload = np.ascontiguousarray(values[wanted]).view(kind)[:, : size // width]
        index = (where // width)[:, None] + np.arange(size // width)
        marks = np.broadcast_to(tags.astype(kind)[:, None] * kind(_REPEAT[width]), index.shape)
        self._note_write(index, marks, payload, width)
        self._writer_at[(index * width) >> 2] = self._findings.current

        def remark(waves: Array) -> None:
            keep = np.broadcast_to(waves[:, None], wanted.shape)[wanted]
            self._writers.view(kind)[index[keep]] = marks[keep]

        return remark

    def update(
        self, addresses: Array, data: Array, size: int, lanes: Array, change: Callable[[Array, Array], Array]
    ) -> Array:
        """Atomic read and write, one lane after the other; returns the old words [wave, lane, size // 4].

        Atomics of several waves do not race with each other, only with plain reads and writes.
        """
        where, tags, wanted = self._place(addresses, size, lanes, "atomic")
        old = np.zeros((*addresses.shape, size // 4), np.uint32)
        index = where[:, None] + np.arange(size)
        others = [self._writers[index], self._readers[index]]
        for shadow, seen, verb in zip((self._writers, self._readers), others, ("write", "read"), strict=True):
            text = "atomic on LDS byte {} after a " + verb
            suspects = (seen != 0) & (seen != tags[:, None]) & (seen != _ATOMIC)
            if suspects.any():
                self._compare(index, tags[:, None], suspects, 1, shadow, text)
        for (wave, lane), first in zip(np.argwhere(wanted), where, strict=True):
            place = self._data[first : first + size]
            old[wave, lane] = place.copy().view(np.uint32)
            place[:] = change(old[wave, lane], np.ascontiguousarray(data[wave, lane])).view(np.uint8)
        self._writers[index] = _ATOMIC
        self._writer_at[index >> 2] = self._findings.current
        return old

    def barrier(self, group: int) -> None:
        """All waves of a workgroup have met: what they did before is ordered."""
        part = slice(group * self._stride, (group + 1) * self._stride)
        self._writers[part] = 0
        self._readers[part] = 0

    def _place(self, addresses: Array, size: int, lanes: Array, verb: str) -> tuple[Array, Array, Array]:
        """Flat byte offsets and wave tags of the lanes that take part and stay inside, and those lanes."""
        wide = addresses.astype(np.int64)
        inside = lanes & (wide <= self.size - size)
        if not np.array_equal(inside, lanes):
            first = int(wide[lanes & ~inside][0])
            detail = f"{verb} of {size} bytes at LDS byte {first} of {self.size}"
            self._findings.add("out-of-bounds access", detail)
        flat = wide + self._starts
        tags = np.broadcast_to(self._tags, lanes.shape)
        return flat[inside], tags[inside], inside

    @staticmethod
    def _width(where: Array, size: int) -> int:
        width = min(size, 4)
        return width if not (where & (width - 1)).any() else 1

    def _note_read(self, index: Array, marks: Array, width: int) -> None:
        _, writers, readers = self._views[width]
        written = writers[index]
        suspects = (written != 0) & (written != marks)
        if suspects.any():
            self._compare(index, marks, suspects, width, self._writers, "read of LDS byte {} after a write")
        seen = readers[index]
        many = readers.dtype.type(_MANY * _REPEAT[width])
        fresh = np.where((seen == 0) | (seen == marks), marks, many)
        readers[index] = fresh
        clashes = readers[index] != fresh
        if clashes.any():
            readers[index[clashes]] = many

    def _note_write(self, index: Array, marks: Array, payload: Array, width: int) -> None:
        data, writers, readers = self._views[width]
        changes = data[index] != payload
        written, seen = writers[index], readers[index]
        suspects = changes & (written != 0) & (written != marks)
        if suspects.any():
            self._compare(index, marks, suspects, width, self._writers, "write to LDS byte {} after a write")
        suspects = changes & (seen != 0) & (seen != marks)
        if suspects.any():
            self._compare(index, marks, suspects, width, self._readers, "write to LDS byte {} after a read")
        data[index] = payload
        writers[index] = marks
        lost = data[index] != payload
        if lost.any():
            first = int(index[lost][0]) * width
            who = "two waves" if (lost & (writers[index] != marks)).any() else "two lanes"
            self._findings.add(
                "race", f"{who} write different values to LDS byte {first % self._stride} at once"
            )

    def _compare(
        self, index: Array, marks: Array, suspects: Array, width: int, shadow: Array, text: str
    ) -> None:
        """Look at suspects byte by byte: a word may mix bytes of several waves."""
        for flat, mark in zip(index[suspects], np.broadcast_to(marks, index.shape)[suspects], strict=True):
            for byte in range(int(flat) * width, (int(flat) + 1) * width):
                other, mine = int(shadow[byte]), int(mark) & 0xFF
                if other not in (0, mine):
                    who = _NAMES.get(other, f"wave {other - 1}")
                    line = self._findings.lines[int(self._writer_at[byte >> 2])]
                    origin = f", {line}" if shadow is self._writers else ""
                    detail = f"{text.format(byte % self._stride)} by {who}{origin}, without a barrier between"
                    self._findings.add("race", f"wave {mine - 1}: {detail}")
                    return
