"""Memory instructions. Loads read at once and commit when `s_waitcnt` says so (see waits.py).

Sources: "CDNA3 Instruction Set Architecture" on SMEM, FLAT, MUBUF and LDS; the CDNA4 document on
transposing reads and wide loads to LDS. A raw buffer access that reaches past num_records reads zero
and writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from pagegate.amdgcn.access import Fetch, Step, need_count
from pagegate.amdgcn.errors import AssemblyError
from pagegate.amdgcn.machine import LANES, Array, Machine
from pagegate.amdgcn.memory import POISON
from pagegate.amdgcn.operands import M0, Operand, Parsed, constant_bits
from pagegate.amdgcn.rules import SPECIAL, special
from pagegate.amdgcn.waits import SCALAR_SHIFT, Flight

_U32 = np.uint32
_U64 = np.uint64
Shape: TypeAlias = Callable[[Array], Array]

# suffix -> bytes, and how a single loaded word becomes the register's content
_LOADS: dict[str, tuple[int, Shape | None]] = {
    "dword": (4, None), "dwordx2": (8, None), "dwordx3": (12, None), "dwordx4": (16, None),
    "ubyte": (1, None), "ushort": (2, None),
    "sbyte": (1, lambda a: a.astype(np.int8).astype(np.int32).view(_U32)),
    "sshort": (2, lambda a: a.astype(np.int16).astype(np.int32).view(_U32)),
}  # fmt: skip
_HALVES = {"short_d16": (2, 0), "short_d16_hi": (2, 16), "ubyte_d16": (1, 0), "ubyte_d16_hi": (1, 16)}
_STORES = {
    "dword": (4, 0), "dwordx2": (8, 0), "dwordx3": (12, 0), "dwordx4": (16, 0),
    "byte": (1, 0), "short": (2, 0),
    "byte_d16_hi": (1, 16), "short_d16_hi": (2, 16),
}  # fmt: skip


def registers(first: int, count: int) -> int:
    return ((1 << count) - 1) << first


def land(
    m: Machine, target: int, data: Array, counter: str, half: int | None = None, remark: Any = None
) -> None:
    """Put a load's data [wave, lane, words] in flight towards vector registers.

    half: 0 or 16 replaces only that half of the register.
    """
    lanes, words = m.lanes, data.shape[-1]
    keep = None if half is None else _U32(0xFFFF0000 if half == 0 else 0xFFFF)

    def commit(waves: Array) -> None:
        mask = lanes if waves.all() else lanes & waves[:, None]
        for word in range(words):
            value = data[..., word]
            if keep is not None and half is not None:
                value = (m.vector[target] & keep) | ((value & _U32(0xFFFF)) << _U32(half))
            np.copyto(m.vector[target + word], value, where=mask)

    flight = Flight(counter, True, registers(target, words), m.active, m.findings.current, commit, remark)
    m.waits.issue(flight)
    if keep is None:
        for word in range(words):
            m.put_vector(target + word, _U32(POISON))  # type: ignore[arg-type]


def vector_data(parsed: Parsed, operand: Operand, size: int) -> Fetch:
    """A store's data as [wave, lane, words]."""
    if operand.kind != "v":
        raise AssemblyError(f"{parsed.line}: required vector registers, found {operand.text!r}")
    need_count(parsed, operand, max(size // 4, 1))
    return lambda m: np.moveaxis(m.vector[operand.index : operand.end], 0, -1)


def stored(m: Machine, remark: Any = None, counter: str = "vmcnt") -> None:
    """A store counts until it is done, but nothing waits for its registers."""
    m.waits.issue(Flight(counter, True, 0, m.active, m.findings.current, None, remark))


def _caching(parsed: Parsed) -> None:
    """Cache hints do not change results."""
    for name in ("sc0", "sc1", "nt", "glc", "slc"):
        parsed.take(name)


# scalar loads -------------------------------------------------------------------------------------


def _scalar_load(count: int) -> Callable[[Parsed], Step]:
    def decode(parsed: Parsed) -> Step:
        _caching(parsed)
        target, base, offset = parsed.operands
        need_count(parsed, target, count)
        need_count(parsed, base, 2)
        fixed = constant_bits(offset.text, False, 32) if offset.kind == "c" else None
        extra = parsed.take_number("offset")

        def step(m: Machine) -> None:
            address = m.scalar64[:, base.index // 2] + _U64(extra)
            address = address + (m.scalar[:, offset.index] if fixed is None else _U64(fixed))
            data = m.memory.load(address, 4 * count, m.active, m.findings)

            def commit(waves: Array) -> None:
                m.scalar[waves, target.index : target.end] = data[waves]

            used = registers(target.index, count) << SCALAR_SHIFT
            m.waits.issue(Flight("lgkmcnt", False, used, m.active, m.findings.current, commit))
            m.scalar[m.active, target.index : target.end] = POISON

        return step

    return decode


for _count, _suffix in ((1, ""), (2, "x2"), (4, "x4"), (8, "x8"), (16, "x16")):
    SPECIAL[f"s_load_dword{_suffix}"] = _scalar_load(_count)


@special("buffer_inv buffer_wbl2 s_dcache_inv s_dcache_wb")
def cache_control(parsed: Parsed) -> Step:
    """Caches are not modelled: memory is always coherent here."""
    _caching(parsed)
    return lambda m: None


# global memory ------------------------------------------------------------------------------------


def global_address(parsed: Parsed, vector: Operand, base: Operand) -> Fetch:
    """[wave, lane] addresses: a 64-bit pair per lane, or a scalar base and a 32-bit offset per lane."""
    offset = parsed.take_number("offset")
    _caching(parsed)
    if base.kind == "off":
        need_count(parsed, vector, 2)
        low, shift = vector.index, _U64(offset & 0xFFFFFFFFFFFFFFFF)
        return lambda m: (m.vector[low] | (m.vector[low + 1].astype(_U64) << _U64(32))) + shift
    need_count(parsed, vector, 1)
    pair, shift = base.index // 2, _U64(offset & 0xFFFFFFFFFFFFFFFF)
    return lambda m: (m.scalar64[:, pair, None] + m.vector[vector.index]) + shift


def _global_load(size: int, shape: Shape | None, half: int | None) -> Callable[[Parsed], Step]:
    def decode(parsed: Parsed) -> Step:
        target, vector, base = parsed.operands
        need_count(parsed, target, max(size // 4, 1))
        address = global_address(parsed, vector, base)

        def step(m: Machine) -> None:
            data = m.memory.load(address(m), size, m.lanes, m.findings)
            land(m, target.index, data if shape is None else shape(data), "vmcnt", half)

        return step

    return decode


def _global_store(size: int, shift: int) -> Callable[[Parsed], Step]:
    def decode(parsed: Parsed) -> Step:
        vector, source, base = parsed.operands
        address, data = global_address(parsed, vector, base), vector_data(parsed, source, size)

        def step(m: Machine) -> None:
            values = data(m) >> _U32(shift) if shift else data(m)
            m.memory.store(address(m), values, size, m.lanes, m.findings)
            stored(m)

        return step

    return decode


# raw buffers --------------------------------------------------------------------------------------


def buffer_place(parsed: Parsed, rest: list[Operand], size: int) -> Callable[[Machine], tuple[Array, Array]]:
    """Addresses and which lanes are within num_records."""
    _caching(parsed)
    offen = parsed.take("offen")
    offset = parsed.take_number("offset")
    vector, resource, soffset = rest
    need_count(parsed, resource, 4)
    if bool(offen) != (vector.kind == "v"):
        raise AssemblyError(f"{parsed.line}: required offen with a vector offset, or neither")
    fixed = constant_bits(soffset.text, False, 32) if soffset.kind == "c" else None
    first = resource.index

    def locate(m: Machine) -> tuple[Array, Array]:
        words = m.scalar[:, first : first + 4]
        if (words[m.active, 1] >> _U32(31)).any():
            raise AssemblyError(f"{parsed.line}: swizzled buffers are not modelled")
        base = words[:, 0].astype(_U64) | ((words[:, 1] & _U32(0xFFFF)).astype(_U64) << _U64(32))
        move = m.scalar[:, soffset.index].astype(_U64) if fixed is None else _U64(fixed)
        within = (m.vector[vector.index] if offen else np.zeros((1, LANES), _U32)).astype(_U64) + _U64(offset)
        limit = words[:, 2].astype(np.int64) - np.asarray(move).astype(np.int64)
        fits = within.astype(np.int64) + min(size, 4) <= limit[:, None]
        return (base + move)[:, None] + within, np.broadcast_to(fits, m.lanes.shape)

    return locate


def _buffer_load(size: int, shape: Shape | None, half: int | None) -> Callable[[Parsed], Step]:
    def decode(parsed: Parsed) -> Step:
        if parsed.take("lds"):
            return _buffer_load_lds(parsed, size)
        target, *rest = parsed.operands
        need_count(parsed, target, max(size // 4, 1))
        locate = buffer_place(parsed, rest, size)

        def step(m: Machine) -> None:
            address, fits = locate(m)
            data = _masked_load(m, address, fits, size)
            land(m, target.index, data if shape is None else shape(data), "vmcnt", half)

        return step

    return decode


def _masked_load(m: Machine, address: Array, fits: Array, size: int) -> Array:
    data = m.memory.load(address, size, m.lanes & fits, m.findings)
    data[~fits] = 0
    return data


def _buffer_store(size: int, shift: int) -> Callable[[Parsed], Step]:
    def decode(parsed: Parsed) -> Step:
        source, *rest = parsed.operands
        locate, data = buffer_place(parsed, rest, size), vector_data(parsed, source, size)

        def step(m: Machine) -> None:
            address, fits = locate(m)
            values = data(m) >> _U32(shift) if shift else data(m)
            m.memory.store(address, values, size, m.lanes & fits, m.findings)
            stored(m)

        return step

    return decode


# loads straight to LDS ----------------------------------------------------------------------------


def to_local(m: Machine, data: Array, size: int, offset: int) -> None:
    """Data lands at M0 + offset + lane * size; until its wait the bytes there are poison."""
    start = m.scalar[:, M0, None].astype(np.int64) + offset
    where = start + np.arange(LANES) * size
    lanes = m.lanes
    remark = m.local.store(where, np.full_like(data, POISON), size, lanes)

    def commit(waves: Array) -> None:
        m.local.store(where, data, size, lanes & waves[:, None])

    m.waits.issue(Flight("vmcnt", True, 0, m.active, m.findings.current, commit, remark))


def _buffer_load_lds(parsed: Parsed, size: int) -> Step:
    offset = int(parsed.modifiers.get("offset", "0"), 0)
    locate = buffer_place(parsed, parsed.operands, size)

    def step(m: Machine) -> None:
        address, fits = locate(m)
        to_local(m, _masked_load(m, address, fits, size), size, offset)

    return step


def _global_load_lds(size: int) -> Callable[[Parsed], Step]:
    def decode(parsed: Parsed) -> Step:
        offset = int(parsed.modifiers.get("offset", "0"), 0)
        address = global_address(parsed, *parsed.operands)

        def step(m: Machine) -> None:
            to_local(m, m.memory.load(address(m), size, m.lanes, m.findings), size, offset)

        return step

    return decode


for _name, (_size, _shape) in _LOADS.items():
    SPECIAL[f"global_load_{_name}"] = _global_load(_size, _shape, None)
    SPECIAL[f"buffer_load_{_name}"] = _buffer_load(_size, _shape, None)
    if _shape is None and _size >= 4:
        SPECIAL[f"global_load_lds_{_name}"] = _global_load_lds(_size)
for _name, (_size, _half) in _HALVES.items():
    SPECIAL[f"global_load_{_name}"] = _global_load(_size, None, _half)
    SPECIAL[f"buffer_load_{_name}"] = _buffer_load(_size, None, _half)
for _name, (_size, _by) in _STORES.items():
    SPECIAL[f"global_store_{_name}"] = _global_store(_size, _by)
    SPECIAL[f"buffer_store_{_name}"] = _buffer_store(_size, _by)
