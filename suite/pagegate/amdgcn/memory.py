"""The emulated global memory: allocations between guard gaps, every access checked.

An allocation is a view of real bytes at an emulated address, so results land in place. Addresses keep
the real pointer's lowest bits: a kernel may have been specialised on its alignment.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from .findings import Findings

Array: TypeAlias = npt.NDArray[Any]

_FIRST = 0x7E00_0000_0000
_GAP = 1 << 32  # larger than any 32-bit offset, so that a stray offset cannot reach a neighbour
_PAGE = 4096
POISON = 0xFFFA0DED


@dataclass(frozen=True)
class Allocation:
    """`data`: the bytes as uint8. `writable`: whether a store may touch it."""

    name: str
    base: int
    data: Array
    words: Array | None
    writable: bool = True

    @property
    def end(self) -> int:
        return self.base + self.data.size


@dataclass(frozen=True)
class Store:
    """Bytes that were written, for replaying in another process: [n] addresses and [n, size] bytes."""

    addresses: Array
    data: Array


class AddressSpace:
    """Allocations by emulated address. With `log` set, stores are also kept in it."""

    def __init__(self) -> None:
        self.allocations: list[Allocation] = []
        self._next = _FIRST
        self._by_pointer: dict[int, Allocation] = {}
        self.log: list[Store] | None = None

    def add_bytes(self, name: str, data: Array, pointer: int = 0, writable: bool = True) -> Allocation:
        """Place an array of bytes; `pointer` is its real address, whose lowest bits are kept."""
        base = self._next + pointer % _PAGE
        whole = data[: data.size & ~3]
        words = whole.view(np.uint32) if pointer % 4 == 0 and whole.size else None
        allocation = Allocation(name, base, data, words, writable)
        self.allocations.append(allocation)
        self._next = _align(allocation.end + _GAP)
        return allocation

    def add_storage(self, name: str, pointer: int, size: int) -> Allocation:
        """Place real memory: `size` bytes at the address `pointer`. The same memory is placed once."""
        known = self._by_pointer.get(pointer)
        if known is not None and known.data.size == size:
            return known
        buffer = (ctypes.c_uint8 * size).from_address(pointer)
        allocation = self.add_bytes(name, np.ctypeslib.as_array(buffer), pointer)
        self._by_pointer[pointer] = allocation
        return allocation

    def remove(self, allocation: Allocation) -> None:
        """Forget an allocation; its addresses are not used again."""
        self.allocations.remove(allocation)

    def load(self, addresses: Array, size: int, wanted: Array, findings: Findings) -> Array:
        """`size` bytes (1, 2 or a multiple of 4) at each wanted address, as uint32 [..., words].

        Unwanted lanes and accesses out of bounds hold poison; the latter are findings.
        """
        words = max(size // 4, 1)
        result = np.full((*addresses.shape, words), POISON, np.uint32)
        for allocation, chosen in self._split(addresses, size, wanted, findings, "load"):
            offsets = (addresses[chosen] - np.uint64(allocation.base)).astype(np.int64)
            result[chosen] = _gather(allocation, offsets, size)
        return result

    def store(self, addresses: Array, data: Array, size: int, wanted: Array, findings: Findings) -> None:
        """Write `size` bytes of data (uint32 [..., words]) at each wanted address."""
        for allocation, chosen in self._split(addresses, size, wanted, findings, "store"):
            where = addresses[chosen]
            values = np.ascontiguousarray(data[chosen]).view(np.uint8)[:, :size]
            self._write(allocation, where, values)
            if self.log is not None:
                self.log.append(Store(where, values.copy()))

    def update(
        self,
        addresses: Array,
        data: Array,
        size: int,
        wanted: Array,
        findings: Findings,
        change: Callable[[Array, Array], Array],
    ) -> Array:
        """Atomic read and write at each wanted address, one lane after the other; returns the old words.

        change: old words [size // 4] and a lane's data [words] -> new words.
        """
        old = np.full((*addresses.shape, size // 4), POISON, np.uint32)
        for allocation, chosen in self._split(addresses, size, wanted, findings, "atomic"):
            offsets = (addresses - np.uint64(allocation.base)).astype(np.int64)
            for wave, lane in zip(*np.nonzero(chosen), strict=True):
                first = int(offsets[wave, lane])
                if (allocation.base + first) % size:
                    findings.add("misaligned atomic", f"byte {first} of {allocation.name}")
                place = allocation.data[first : first + size]
                old[wave, lane] = place.copy().view(np.uint32)
                place[:] = change(old[wave, lane], np.ascontiguousarray(data[wave, lane])).view(np.uint8)
        return old

    def replay(self, stores: list[Store]) -> None:
        """Repeat logged stores in order."""
        for store in stores:
            # a logged store lies in one allocation
            first = int(store.addresses[0])
            for allocation in self.allocations:
                if allocation.base <= first < allocation.end:
                    self._write(allocation, store.addresses, store.data)

    @staticmethod
    def _write(allocation: Allocation, addresses: Array, values: Array) -> None:
        offsets = (addresses - np.uint64(allocation.base)).astype(np.int64)
        size = values.shape[1]
        if size % 4 == 0 and allocation.words is not None and not (offsets & 3).any():
            index = (offsets >> 2)[:, None] + np.arange(size // 4)
            allocation.words[index] = np.ascontiguousarray(values).view(np.uint32)
        else:
            allocation.data[offsets[:, None] + np.arange(size)] = values

    def _split(
        self, addresses: Array, size: int, wanted: Array, findings: Findings, verb: str
    ) -> list[tuple[Allocation, Any]]:
        """Allocations and which of the wanted lanes fall wholly into each."""
        if not wanted.any():
            return []
        first = int(addresses[wanted][0]) if not wanted.all() else int(addresses.flat[0])
        parts: list[tuple[Allocation, Any]] = []
        left = wanted
        for allocation in sorted(self.allocations, key=lambda a: not a.base <= first < a.end):
            inside = left & (addresses >= np.uint64(allocation.base))
            inside &= addresses <= np.uint64(max(allocation.end - size, 0))
            if inside.any():
                if verb != "load" and not allocation.writable:
                    findings.add("store to read-only memory", f"{allocation.name}")
                else:
                    parts.append((allocation, inside))
                left = left & ~inside
                if not left.any():
                    return parts
        self._report(addresses, size, left, findings, verb)
        return parts

    def _report(self, addresses: Array, size: int, lost: Array, findings: Findings, verb: str) -> None:
        address = int(addresses[lost][0])
        nearest = min(self.allocations, key=lambda a: max(a.base - address, address + size - a.end))
        before = nearest.base - address
        if before > 0:
            where = f"{before} bytes before {nearest.name}"
        else:
            where = f"at byte {address - nearest.base} of {nearest.name}, which has {nearest.data.size}"
        findings.add("out-of-bounds access", f"{verb} of {size} bytes {where}; {int(lost.sum())} lanes")


def _align(address: int) -> int:
    return -(-address // _PAGE) * _PAGE


def _gather(allocation: Allocation, offsets: Array, size: int) -> Array:
    if size < 4:
        data = allocation.data[offsets].astype(np.uint32)
        if size == 2:
            data |= allocation.data[offsets + 1].astype(np.uint32) << np.uint32(8)
        return data[:, None]
    if allocation.words is not None and not (offsets & 3).any():
        return allocation.words[(offsets >> 2)[:, None] + np.arange(size // 4)]
    return np.ascontiguousarray(allocation.data[offsets[:, None] + np.arange(size)]).view(np.uint32)
