"""Conversions between number formats, and the mixed-precision FMA.

Names with "@target" are specific to it: gfx942 reads and writes the FNUZ float8 formats, gfx950 the
OCP ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pagegate.amdgcn.access import Fetch, Step, vector_source
from pagegate.amdgcn.formats import TABLES, encode, from_bf16, to_bf16
from pagegate.amdgcn.machine import Array, Machine
from pagegate.amdgcn.operands import Operand, Parsed
from pagegate.amdgcn.rules import VECTOR, Rule, special, vector

from .arithmetic import fma_f32

_U32 = np.uint32
_U64 = np.uint64


def pair64(low: Any, high: Any) -> Any:
    """Two float32 values as one 64-bit result."""
    low, high = np.asarray(low), np.asarray(high)
    return low.view(_U32).astype(_U64) | (high.view(_U32).astype(_U64) << _U64(32))


def pair32(low: Any, high: Any) -> Any:
    """Two 16-bit values as one 32-bit result."""
    low, high = np.asarray(low), np.asarray(high)
    return low.view(np.uint16).astype(_U32) | (high.view(np.uint16).astype(_U32) << _U32(16))


@vector("v_cvt_f32_f16", "f32 = f16")
@vector("v_cvt_f32_f64", "f32 = f64")
@vector("v_cvt_f32_i32", "f32 = i32")
@vector("v_cvt_f32_u32", "f32 = u32")
def to_f32(a: Any) -> Any:
    return np.asarray(a).astype(np.float32)


@vector("v_cvt_f16_f32", "f16 = f32")
@vector("v_cvt_f16_i16", "f16 = i16")
@vector("v_cvt_f16_u16", "f16 = u16")
def to_f16(a: Any) -> Any:
    return np.asarray(a).astype(np.float16)


@vector("v_cvt_f64_f32", "f64 = f32")
@vector("v_cvt_f64_i32", "f64 = i32")
@vector("v_cvt_f64_u32", "f64 = u32")
def to_f64(a: Any) -> Any:
    return np.asarray(a).astype(np.float64)


def _to_integer(dtype: Any) -> Callable[[Any], Any]:
    """Towards zero, saturating; NaN becomes 0."""
    limits = np.iinfo(dtype)

    def function(a: Any) -> Any:
        wide = np.trunc(np.asarray(a).astype(np.float64))
        return (
            np.where(np.isnan(wide), 0, np.clip(wide, limits.min, limits.max)).astype(np.int64).astype(dtype)
        )

    return function


for _kind, _dtype in (("i32", np.int32), ("u32", np.uint32)):
    for _source in ("f32", "f64"):
        VECTOR[f"v_cvt_{_kind}_{_source}"] = Rule(_to_integer(_dtype), (_kind,), (_source,))
for _kind, _half in (("i16", np.int16), ("u16", np.uint16)):
    VECTOR[f"v_cvt_{_kind}_f16"] = Rule(_to_integer(_half), (_kind,), ("f16",))


def _from_byte(number: int) -> Callable[[Any], Any]:
    return lambda a: ((a >> _U32(8 * number)) & _U32(0xFF)).astype(np.float32)


for _number in range(4):
    VECTOR[f"v_cvt_f32_ubyte{_number}"] = Rule(_from_byte(_number), ("f32",), ("u32",))


@vector("v_pack_b32_f16", "b32 = f16 f16")
def pack(a: Any, b: Any) -> Any:
    return pair32(a, b)


@vector("v_cvt_pk_f16_f32", "b32 = f32 f32")
def pk_f16(a: Any, b: Any) -> Any:
    return pair32(to_f16(a), to_f16(b))


@vector("v_cvt_pkrtz_f16_f32", "b32 = f32 f32")
def pkrtz_f16(a: Any, b: Any) -> Any:
    return pair32(_towards_zero_f16(a), _towards_zero_f16(b))


def _towards_zero_f16(a: Any) -> Array:
    a = np.asarray(a)
    rounded = a.astype(np.float16)
    too_far = np.abs(rounded.astype(np.float32)) > np.abs(a)
    bits = rounded.view(np.uint16)
    return np.where(too_far, bits - np.uint16(1), bits).astype(np.uint16)


@vector("v_cvt_pk_bf16_f32", "b32 = f32 f32")
def pk_bf16(a: Any, b: Any) -> Any:
    return pair32(to_bf16(a), to_bf16(b))


@vector("v_cvt_f32_bf16", "f32 = u16")
def f32_from_bf16(a: Any) -> Any:
    return from_bf16(np.asarray(a))


def _single(table: Array) -> Callable[[Any], Any]:
    return lambda a: table[a]


def _double(table: Array) -> Callable[[Any], Any]:
    return lambda a: pair64(table[a & np.uint16(0xFF)], table[a >> np.uint16(8)])


def _encode_pair(table: Array) -> Callable[[Any, Any], Any]:
    def function(a: Any, b: Any) -> Any:
        return (encode(a, table) | (encode(b, table) << _U32(8))).astype(np.uint16)

    return function


for (_target, _name), _values in TABLES.items():
    VECTOR[f"v_cvt_f32_{_name}@{_target}"] = Rule(_single(_values), ("f32",), ("u8",))
    VECTOR[f"v_cvt_pk_f32_{_name}@{_target}"] = Rule(_double(_values), ("b64",), ("u16",))
    VECTOR[f"v_cvt_pk_{_name}_f32@{_target}"] = Rule(_encode_pair(_values), ("h16",), ("f32", "f32"))


def _scale_of(scale: Any) -> Any:
    """A scale is a power of two: only the exponent of its operand counts."""
    return np.asarray((np.asarray(scale).view(_U32) >> _U32(23)) & _U32(0xFF)).astype(np.int32) - 127


def _scaled(table: Array, finish: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def function(a: Any, scale: Any) -> Any:
        by = _scale_of(scale)
        low, high = (np.ldexp(table[part], by) for part in (a & np.uint16(0xFF), a >> np.uint16(8)))
        return finish(low, high)

    return function


for _name in ("fp8", "bf8"):
    _values = TABLES["gfx950", _name]
    VECTOR[f"v_cvt_scalef32_pk_f32_{_name}"] = Rule(_scaled(_values, pair64), ("b64",), ("u16", "f32"))
    VECTOR[f"v_cvt_scalef32_pk_f16_{_name}"] = Rule(_scaled(_values, pk_f16), ("b32",), ("u16", "f32"))
    VECTOR[f"v_cvt_scalef32_pk_bf16_{_name}"] = Rule(_scaled(_values, pk_bf16), ("b32",), ("u16", "f32"))


def _mixed(parsed: Parsed) -> tuple[Operand, Fetch]:
    """The target and the f32 result of a mixed FMA: each source is f32, or one half read as f16."""
    target, *sources = parsed.operands
    halves = parsed.take_flags("op_sel", 3, 0)
    is_half = parsed.take_flags("op_sel_hi", 3, 0)
    fetches = []
    for operand, half, small in zip(sources, halves, is_half, strict=True):
        shift = (lambda bits: bits >> _U32(16)) if half and small else None
        raw = vector_source(parsed, operand, "f16" if small else "f32", shift)
        fetches.append((lambda m, raw=raw: np.asarray(raw(m)).astype(np.float32)) if small else raw)
    a, b, c = fetches
    return target, lambda m: fma_f32(a(m), b(m), c(m))


@special("v_fma_mix_f32")
def fma_mix(parsed: Parsed) -> Step:
    target, call = _mixed(parsed)
    return lambda m: m.put_vector_f(target.index, call(m))


def _mixed_half(parsed: Parsed, keep: int, shift: int) -> Step:
    target, call = _mixed(parsed)

    def step(m: Machine) -> None:
        half = call(m).astype(np.float16).view(np.uint16).astype(_U32) << _U32(shift)
        m.put_vector(target.index, (m.vector[target.index] & _U32(keep)) | half)

    return step


@special("v_fma_mixlo_f16")
def fma_mixlo(parsed: Parsed) -> Step:
    return _mixed_half(parsed, 0xFFFF0000, 0)


@special("v_fma_mixhi_f16")
def fma_mixhi(parsed: Parsed) -> Step:
    return _mixed_half(parsed, 0x0000FFFF, 16)
