"""Closures that fetch an operand from the machine, or put a result into it, in a given kind.

Kinds name how bits are read: b32 u32 i32 f32, b64 u64 i64 f64, u8 u16 i16 f16, mask (one bit per lane,
from a pair of scalar registers), and h16 (a result that keeps the register's other half).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from .errors import AssemblyError
from .machine import Array, Machine, lanes_of, mask_of
from .operands import Operand, Parsed, constant_bits
from .waits import SCALAR_SHIFT

Fetch: TypeAlias = Callable[[Machine], Any]
Put: TypeAlias = Callable[[Machine, Any], None]
Change: TypeAlias = Callable[[Any], Any]
Step: TypeAlias = Callable[[Machine], None]

DTYPES: dict[str, Any] = {
    "b32": np.uint32, "u32": np.uint32, "i32": np.int32, "f32": np.float32,
    "b64": np.uint64, "u64": np.uint64, "i64": np.int64, "f64": np.float64,
    "u8": np.uint8, "u16": np.uint16, "i16": np.int16, "f16": np.float16, "h16": np.uint16,
}  # fmt: skip
WIDTHS = {kind: np.dtype(dtype).itemsize * 8 for kind, dtype in DTYPES.items()}
_HIGH = np.uint64(32)
_UPPER = np.uint32(0xFFFF0000)


def register_set(operands: Sequence[Operand]) -> int:
    """The registers that operands name, one bit each."""
    found = 0
    for operand in operands:
        if operand.kind in "vs":
            shift = operand.index + (SCALAR_SHIFT if operand.kind == "s" else 0)
            found |= ((1 << operand.count) - 1) << shift
    return found


def need_count(parsed: Parsed, operand: Operand, registers: int) -> None:
    """Raises AssemblyError unless a register operand spans this many registers."""
    if operand.kind in "vs" and operand.count != registers:
        raise AssemblyError(
            f"{parsed.line}: required {registers} registers in {operand.text!r}, found {operand.count}"
        )


def vector_source(
    parsed: Parsed, operand: Operand, kind: str, change: Change | None = None, raw: Fetch | None = None
) -> Fetch:
    """Fetches [wave, lane] values.

    `change` reworks the 32 raw bits first (SDWA, op_sel); `raw` replaces how they are read (DPP).
    """
    if kind == "mask":
        return mask_source(operand)
    if operand.kind not in "vsc":
        raise AssemblyError(f"{parsed.line}: required a value, found {operand.text!r}")
    need_count(parsed, operand, 2 if WIDTHS[kind] == 64 else 1)
    modified = operand.negate or operand.absolute or operand.sign_extend
    if operand.kind == "c":
        return _constant(operand, kind, change)
    if WIDTHS[kind] == 64:
        return _wide_source(operand, kind)
    index = operand.index
    if WIDTHS[kind] == 32 and change is None and raw is None and not modified:
        return _plain_source(operand, kind)
    if raw is not None:
        pass
    elif operand.kind == "v":
        raw = lambda m: m.vector[index]  # noqa: E731
    else:
        raw = lambda m: m.scalar[:, index, None]  # noqa: E731
    finish = _interpret(operand, kind)
    if change is None:
        return lambda m: finish(raw(m))
    return lambda m: finish(change(raw(m)))


def _plain_source(operand: Operand, kind: str) -> Fetch:
    index = operand.index
    if operand.kind == "v":
        if kind == "f32":
            return lambda m: m.vector_f[index]
        if kind == "i32":
            return lambda m: m.vector_i[index]
        return lambda m: m.vector[index]
    if kind == "f32":
        return lambda m: m.scalar_f[:, index, None]
    if kind == "i32":
        return lambda m: m.scalar_i[:, index, None]
    return lambda m: m.scalar[:, index, None]


def _wide_source(operand: Operand, kind: str) -> Fetch:
    """64-bit values."""
    index, dtype = operand.index, DTYPES[kind]
    if operand.kind == "s":
        raw: Fetch = lambda m: m.scalar64[:, index >> 1, None]  # noqa: E731
    else:

        def raw(m: Machine) -> Any:
            return m.vector[index] | (m.vector[index + 1].astype(np.uint64) << _HIGH)

    sign, negate, absolute = np.uint64(1 << 63), operand.negate, operand.absolute

    def fetch(m: Machine) -> Array:
        bits = raw(m)
        if absolute:
            bits = bits & ~sign
        if negate:
            bits = bits ^ sign
        return np.ascontiguousarray(bits).view(dtype) if dtype is not np.uint64 else bits

    return fetch


def _constant(operand: Operand, kind: str, change: Change | None) -> Fetch:
    width = WIDTHS[kind]
    floating = kind.startswith("f")
    bits: Any = constant_bits(operand.text, floating, width)
    if change is not None and width <= 32:
        bits = int(np.asarray(change(np.asarray([bits], np.uint32)))[0]) & ((1 << width) - 1)
    value = np.array(bits, np.dtype(f"u{width // 8}")).view(DTYPES[kind])
    if operand.absolute:
        value = np.abs(value)
    if operand.negate:
        value = -value if floating else value ^ value.dtype.type(1 << (width - 1))
    constant = value[()]
    return lambda m: constant


def _interpret(operand: Operand, kind: str) -> Change:
    """Raw 32 bits to values of a kind of at most 32 bits, with the operand's source modifiers."""
    dtype, width = DTYPES[kind], WIDTHS[kind]
    sign = dtype_bits(width)(1 << (width - 1))
    narrow = dtype_bits(width)
    negate, absolute = operand.negate, operand.absolute

    def interpret(bits: Any) -> Any:
        if width < 32:
            bits = bits.astype(narrow)
        if absolute:
            bits = bits & ~sign
        if negate:
            bits = bits ^ sign
        return bits if dtype is narrow else bits.view(dtype)

    return interpret


def dtype_bits(width: int) -> Any:
    return {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}[width]


def mask_source(operand: Operand) -> Fetch:
    """One boolean per lane, from a pair of scalar registers or an inline constant."""
    if operand.kind == "c":
        constant = lanes_of(np.array([constant_bits(operand.text, False, 64)], np.uint64))
        return lambda m: constant
    index = operand.index >> 1
    return lambda m: lanes_of(m.scalar64[:, index])


def vector_result(parsed: Parsed, operand: Operand, kind: str) -> Put:
    """Puts [wave, lane] values where EXEC allows; masks go to scalar registers, 0 in dead lanes."""
    index = operand.index
    if kind == "mask":
        if operand.kind == "off":
            return lambda m, value: None
        need_count(parsed, operand, 2)
        return lambda m, value: m.put_scalar64(index, mask_of(value & m.lanes))
    if operand.kind != "v":
        raise AssemblyError(f"{parsed.line}: required a vector register, found {operand.text!r}")
    need_count(parsed, operand, 2 if WIDTHS[kind] == 64 else 1)
    if kind == "f32":
        return lambda m, value: m.put_vector_f(index, value)
    if WIDTHS[kind] == 64:
        return lambda m, value: _put_wide(m, index, value)
    if kind == "h16":
        return lambda m, value: m.put_vector(index, (m.vector[index] & _UPPER) | value.astype(np.uint32))
    if WIDTHS[kind] == 16:
        # 16-bit results clear the upper half (LLVM: zeroesHigh16BitsOfDest)
        return lambda m, value: m.put_vector(index, value.view(np.uint16).astype(np.uint32))
    if kind == "i32":
        return lambda m, value: m.put_vector(index, value.view(np.uint32))
    return lambda m, value: m.put_vector(index, value)


def _put_wide(m: Machine, index: int, value: Any) -> None:
    bits = np.ascontiguousarray(value).view(np.uint64)
    m.put_vector(index, bits.astype(np.uint32))
    m.put_vector(index + 1, (bits >> _HIGH).astype(np.uint32))


def scalar_source(parsed: Parsed, operand: Operand, kind: str) -> Fetch:
    """Fetches [wave] values."""
    width, dtype, index = WIDTHS[kind], DTYPES[kind], operand.index
    if operand.kind == "c":
        constant = np.array(constant_bits(operand.text, kind[0] == "f", width), dtype_bits(width)).view(
            dtype
        )[()]
        return lambda m: constant
    if operand.kind != "s":
        raise AssemblyError(f"{parsed.line}: required a scalar register, found {operand.text!r}")
    need_count(parsed, operand, width // 32)
    if width == 64:
        if dtype is np.uint64:
            return lambda m: m.scalar64[:, index >> 1]
        return lambda m: m.scalar64.view(dtype)[:, index >> 1]
    if kind == "i32":
        return lambda m: m.scalar_i[:, index]
    if kind == "f32":
        return lambda m: m.scalar_f[:, index]
    return lambda m: m.scalar[:, index]


def scalar_result(parsed: Parsed, operand: Operand, kind: str) -> Put:
    if operand.kind != "s":
        raise AssemblyError(f"{parsed.line}: required a scalar register, found {operand.text!r}")
    index, bits = operand.index, dtype_bits(WIDTHS[kind])
    need_count(parsed, operand, WIDTHS[kind] // 32)
    if WIDTHS[kind] == 64:
        return lambda m, value: m.put_scalar64(index, value.view(bits))
    return lambda m, value: m.put_scalar(index, value.view(bits))
