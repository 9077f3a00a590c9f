"""LDS instructions, and those that move data between lanes through the LDS hardware.

The transposing reads (gfx950): the 16 lanes of a row read 64 bits each, elements of `width` bits. Lane l
then holds element l % n of the lanes j * (16 / n) + l // n of its row, j = 0 .. n - 1, n = 64 / width.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pagegate.amdgcn.access import Step, need_count
from pagegate.amdgcn.errors import AssemblyError
from pagegate.amdgcn.machine import LANES, Array, Machine
from pagegate.amdgcn.operands import Operand, Parsed
from pagegate.amdgcn.rules import SPECIAL, special

from .memory import land, stored, vector_data

_U32 = np.uint32
_LANE: Array = np.arange(LANES)

_READS: dict[str, tuple[int, Callable[[Array], Array] | None]] = {
    "b32": (4, None), "b64": (8, None), "b96": (12, None), "b128": (16, None),
    "u8": (1, None), "u16": (2, None),
    "i8": (1, lambda a: a.astype(np.int8).astype(np.int32).view(_U32)),
    "i16": (2, lambda a: a.astype(np.int16).astype(np.int32).view(_U32)),
}  # fmt: skip
_HALVES = {"u16_d16": (2, 0), "u16_d16_hi": (2, 16), "u8_d16": (1, 0), "u8_d16_hi": (1, 16)}
_WRITES = {
    "b8": (1, 0), "b16": (2, 0), "b32": (4, 0), "b64": (8, 0), "b96": (12, 0), "b128": (16, 0),
    "b8_d16_hi": (1, 16), "b16_d16_hi": (2, 16),
}  # fmt: skip


def _address(parsed: Parsed, operand: Operand) -> Callable[[Machine, int], Array]:
    if operand.kind != "v":
        raise AssemblyError(f"{parsed.line}: required a vector register as address, found {operand.text!r}")
    need_count(parsed, operand, 1)
    return lambda m, offset: m.vector[operand.index].astype(np.int64) + offset


def _read(size: int, shape: Callable[[Array], Array] | None, half: int | None) -> Callable[[Parsed], Step]:
    def decode(parsed: Parsed) -> Step:
        target, where = parsed.operands
        need_count(parsed, target, max(size // 4, 1))
        address, offset = _address(parsed, where), parsed.take_number("offset")

        def step(m: Machine) -> None:
            data, remark = m.local.load(address(m, offset), size, m.lanes)
            land(m, target.index, data if shape is None else shape(data), "lgkmcnt", half, remark)

        return step

    return decode


def _read_two(size: int, unit: int) -> Callable[[Parsed], Step]:
    def decode(parsed: Parsed) -> Step:
        target, where = parsed.operands
        need_count(parsed, target, size // 2)
        address = _address(parsed, where)
        offsets = [parsed.take_number(name) * unit for name in ("offset0", "offset1")]

        def step(m: Machine) -> None:
            (first, remark0), (second, remark1) = (
                m.local.load(address(m, offset), size, m.lanes) for offset in offsets
            )
            data = np.concatenate([first, second], axis=-1)
            land(m, target.index, data, "lgkmcnt", remark=_both(remark0, remark1))

        return step

    return decode


def _both(first: Callable[[Array], None], second: Callable[[Array], None]) -> Callable[[Array], None]:
    def remark(waves: Array) -> None:
        first(waves)
        second(waves)

    return remark


def _write(size: int, shift: int) -> Callable[[Parsed], Step]:
    def decode(parsed: Parsed) -> Step:
        where, source = parsed.operands
        address, offset = _address(parsed, where), parsed.take_number("offset")
        data = vector_data(parsed, source, size)

        def step(m: Machine) -> None:
            values = data(m) >> _U32(shift) if shift else data(m)
            stored(m, m.local.store(address(m, offset), values, size, m.lanes), "lgkmcnt")

        return step

    return decode


def _write_two(size: int, unit: int) -> Callable[[Parsed], Step]:
    def decode(parsed: Parsed) -> Step:
        where, *sources = parsed.operands
        address = _address(parsed, where)
        offsets = [parsed.take_number(name) * unit for name in ("offset0", "offset1")]
        data = [vector_data(parsed, source, size) for source in sources]

        def step(m: Machine) -> None:
            remarks = [
                m.local.store(address(m, offset), values(m), size, m.lanes)
                for offset, values in zip(offsets, data, strict=True)
            ]
            stored(m, _both(*remarks), "lgkmcnt")

        return step

    return decode


for _name, (_size, _shape) in _READS.items():
    SPECIAL[f"ds_read_{_name}"] = _read(_size, _shape, None)
for _name, (_size, _half) in _HALVES.items():
    SPECIAL[f"ds_read_{_name}"] = _read(_size, None, _half)
for _name, (_size, _by) in _WRITES.items():
    SPECIAL[f"ds_write_{_name}"] = _write(_size, _by)
for _bits, _size in (("b32", 4), ("b64", 8)):
    SPECIAL[f"ds_read2_{_bits}"] = _read_two(_size, _size)
    SPECIAL[f"ds_read2st64_{_bits}"] = _read_two(_size, 64 * _size)
    SPECIAL[f"ds_write2_{_bits}"] = _write_two(_size, _size)
    SPECIAL[f"ds_write2st64_{_bits}"] = _write_two(_size, 64 * _size)


def _transposed(width: int) -> Callable[[Parsed], Step]:
    dtype: Any = {8: np.uint8, 16: np.uint16}[width]
    count = 64 // width
    in_row, row = _LANE % 16, _LANE // 16 * 16
    lane = (row + in_row // count)[:, None] + np.arange(count) * (16 // count)
    element = np.broadcast_to((in_row % count)[:, None], lane.shape)

    def decode(parsed: Parsed) -> Step:
        target, where = parsed.operands
        need_count(parsed, target, 2)
        address, offset = _address(parsed, where), parsed.take_number("offset")

        def step(m: Machine) -> None:
            data, remark = m.local.load(address(m, offset), 8, m.lanes)
            elements = np.ascontiguousarray(data).view(dtype)
            moved = np.ascontiguousarray(elements[:, lane, element]).view(_U32)
            land(m, target.index, moved, "lgkmcnt", remark=remark)

        return step

    return decode


SPECIAL["ds_read_b64_tr_b16"] = _transposed(16)
SPECIAL["ds_read_b64_tr_b8"] = _transposed(8)


@special("ds_bpermute_b32")
def bpermute(parsed: Parsed) -> Step:
    """Each lane reads the lane that its address names; lanes that are switched off read as zero."""
    target, where, source = parsed.operands
    address, offset = _address(parsed, where), parsed.take_number("offset")

    def step(m: Machine) -> None:
        chosen = (address(m, offset) // 4) % LANES
        visible = np.where(m.enabled, m.vector[source.index], _U32(0))
        land(m, target.index, np.take_along_axis(visible, chosen, axis=1)[..., None], "lgkmcnt")

    return step


@special("ds_permute_b32")
def permute(parsed: Parsed) -> Step:
    """Each lane sends its value to the lane that its address names; the highest sender wins."""
    target, where, source = parsed.operands
    address, offset = _address(parsed, where), parsed.take_number("offset")

    def step(m: Machine) -> None:
        chosen = (address(m, offset) // 4) % LANES
        moved = np.zeros_like(m.vector[source.index])
        for lane in range(LANES):
            senders = np.flatnonzero(m.enabled[:, lane])
            moved[senders, chosen[senders, lane]] = m.vector[source.index][senders, lane]
        land(m, target.index, moved[..., None], "lgkmcnt")

    return step


@special("ds_swizzle_b32")
def swizzle(parsed: Parsed) -> Step:
    """A fixed shuffle, within quads or within 32 lanes."""
    target, source = parsed.operands
    from_lane = _swizzle_source(parsed)

    def step(m: Machine) -> None:
        visible = np.where(m.enabled, m.vector[source.index], _U32(0))
        land(m, target.index, visible[:, from_lane][..., None], "lgkmcnt")

    return step


def _swizzle_source(parsed: Parsed) -> Any:
    text = parsed.take("offset", "0")
    half, lane = _LANE // 32 * 32, _LANE % 32
    if not text.startswith("swizzle("):
        code = int(text, 0)
        if code & 0x8000:
            order = np.array([code >> 2 * i & 3 for i in range(4)])
            return _LANE // 4 * 4 + order[_LANE % 4]
        return np.asarray(half + (((lane & (code & 31)) | (code >> 5 & 31)) ^ (code >> 10 & 31)))
    name, *numbers = (part.strip() for part in text[len("swizzle(") : -1].split(","))
    values = [int(number, 0) for number in numbers if number.lstrip("-").isalnum() and number[0].isdigit()]
    if name == "SWAP":
        return _LANE ^ values[0]
    if name == "REVERSE":
        return _LANE ^ (values[0] - 1)
    if name == "BROADCAST":
        return _LANE // values[0] * values[0] + values[1]
    if name == "QUAD_PERM":
        return _LANE // 4 * 4 + np.array(values)[_LANE % 4]
    raise AssemblyError(
        f"{parsed.line}: swizzle {name} is not modelled; see docs/amdgcn.md, 'A new modifier'"
    )
