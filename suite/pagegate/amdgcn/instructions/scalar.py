"""Scalar instructions: one value per wave.

Source: "CDNA3 Instruction Set Architecture", SOP1, SOP2, SOPC and SOPK. SCC is the carry of unsigned
additions, the overflow of signed ones, and "not zero" of most logical ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pagegate.amdgcn.machine import Array
from pagegate.amdgcn.rules import SCALAR, Rule, scalar

_WIDE = np.int64
_U32 = np.uint32
_LOW = 0xFFFFFFFF


def _low(value: Any) -> Any:
    """The low 32 bits of a 64-bit integer."""
    return (value & _LOW).astype(np.uint32)


def _exact(value: Any) -> Any:
    return np.asarray(value).astype(_WIDE)


@scalar("s_mov_b32", "b32 = b32")
@scalar("s_mov_b64", "b64 = b64")
def mov(a: Any) -> Any:
    return a


@scalar("s_not_b32", "b32 = b32", scc="nonzero")
@scalar("s_not_b64", "b64 = b64", scc="nonzero")
def invert(a: Any) -> Any:
    return ~a


@scalar("s_abs_i32", "i32 = i32", scc="nonzero")
def absolute(a: Any) -> Any:
    return np.abs(a)


@scalar("s_brev_b32", "b32 = b32")
def reverse(a: Any) -> Any:
    return reverse_bits(np.asarray(a))


def reverse_bits(a: Array) -> Array:
    """The bits of 32-bit words in the opposite order."""
    for shift, mask in ((1, 0x55555555), (2, 0x33333333), (4, 0x0F0F0F0F), (8, 0x00FF00FF)):
        a = ((a >> _U32(shift)) & _U32(mask)) | ((a & _U32(mask)) << _U32(shift))
    return (a >> _U32(16)) | (a << _U32(16))


@scalar("s_bcnt1_i32_b32", "u32 = b32", scc="nonzero")
@scalar("s_bcnt1_i32_b64", "u32 = b64", scc="nonzero")
def count_ones(a: Any) -> Any:
    return np.bitwise_count(a).astype(np.uint32)


@scalar("s_ff1_i32_b32", "i32 = b32")
@scalar("s_ff1_i32_b64", "i32 = b64")
def first_one(a: Any) -> Any:
    a = np.asarray(a)
    below = np.bitwise_count((a & (~a + a.dtype.type(1))) - a.dtype.type(1)).astype(np.int32)
    return np.where(a == 0, np.int32(-1), below)


@scalar("s_flbit_i32_b32", "i32 = b32")
def leading_zeros(a: Any) -> Any:
    _, exponent = np.frexp(np.asarray(a).astype(np.float64))
    return np.where(np.asarray(a) == 0, -1, 32 - exponent).astype(np.int32)


@scalar("s_sext_i32_i8", "i32 = i32")
def sign_extend_byte(a: Any) -> Any:
    return np.asarray(a).astype(np.int8).astype(np.int32)


@scalar("s_sext_i32_i16", "i32 = i32")
def sign_extend_half(a: Any) -> Any:
    return np.asarray(a).astype(np.int16).astype(np.int32)


@scalar("s_add_u32", "u32 = u32 u32", scc="given")
def add_u32(a: Any, b: Any) -> Any:
    total = _exact(a) + _exact(b)
    return _low(total), total > _LOW


@scalar("s_addc_u32", "u32 = u32 u32 +scc", scc="given")
def addc_u32(a: Any, b: Any, carry: Array) -> Any:
    total = _exact(a) + _exact(b) + carry
    return _low(total), total > _LOW


@scalar("s_sub_u32", "u32 = u32 u32", scc="given")
def sub_u32(a: Any, b: Any) -> Any:
    return _low(_exact(a) - _exact(b)), np.asarray(b > a)


@scalar("s_subb_u32", "u32 = u32 u32 +scc", scc="given")
def subb_u32(a: Any, b: Any, borrow: Array) -> Any:
    total = _exact(a) - _exact(b) - borrow
    return _low(total), total < 0


def _overflow(total: Any) -> Any:
    return (total < -(1 << 31)) | (total >= 1 << 31)


@scalar("s_add_i32", "i32 = i32 i32", scc="given")
def add_i32(a: Any, b: Any) -> Any:
    total = _exact(a) + _exact(b)
    return _low(total).view(np.int32), _overflow(total)


@scalar("s_sub_i32", "i32 = i32 i32", scc="given")
def sub_i32(a: Any, b: Any) -> Any:
    total = _exact(a) - _exact(b)
    return _low(total).view(np.int32), _overflow(total)


@scalar("s_addk_i32", "i32 = +dst:i32 i32", scc="given")
def addk_i32(a: Any, b: Any) -> Any:
    return add_i32(a, np.asarray(b).astype(np.int16))


@scalar("s_movk_i32", "i32 = i32")
def movk_i32(a: Any) -> Any:
    return np.asarray(a).astype(np.int16).astype(np.int32)


@scalar("s_mulk_i32", "i32 = +dst:i32 i32")
def mulk_i32(a: Any, b: Any) -> Any:
    return a * np.asarray(b).astype(np.int16).astype(np.int32)


@scalar("s_mul_i32", "u32 = u32 u32")
def mul_i32(a: Any, b: Any) -> Any:
    return a * b


@scalar("s_mul_hi_u32", "u32 = u32 u32")
def mul_hi_u32(a: Any, b: Any) -> Any:
    return ((np.asarray(a).astype(np.uint64) * np.asarray(b).astype(np.uint64)) >> np.uint64(32)).astype(
        np.uint32
    )


@scalar("s_mul_hi_i32", "i32 = i32 i32")
def mul_hi_i32(a: Any, b: Any) -> Any:
    return ((_exact(a) * _exact(b)) >> 32).astype(np.int32)


def _choosing(
    choose: Callable[[Any, Any], Any], first: Callable[[Any, Any], Any]
) -> Callable[[Any, Any], Any]:
    """Minimum or maximum; SCC says that the first operand was chosen."""
    return lambda a, b: (choose(a, b), first(a, b))


for _kind in ("i32", "u32"):
    SCALAR[f"s_min_{_kind}"] = Rule(_choosing(np.minimum, np.less), (_kind,), (_kind, _kind), scc="given")
    SCALAR[f"s_max_{_kind}"] = Rule(
        _choosing(np.maximum, np.greater_equal), (_kind,), (_kind, _kind), scc="given"
    )

LOGICAL: dict[str, Callable[[Any, Any], Any]] = {
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "andn2": lambda a, b: a & ~b,
    "orn2": lambda a, b: a | ~b,
    "nand": lambda a, b: ~(a & b),
    "nor": lambda a, b: ~(a | b),
    "xnor": lambda a, b: ~(a ^ b),
}
for _name, _function in LOGICAL.items():
    for _kind in ("b32", "b64"):
        SCALAR[f"s_{_name}_{_kind}"] = Rule(_function, (_kind,), (_kind, _kind), scc="nonzero")


@scalar("s_lshl_b32", "u32 = u32 u32", scc="nonzero")
def lshl_b32(a: Any, b: Any) -> Any:
    return a << (b & _U32(31))


@scalar("s_lshr_b32", "u32 = u32 u32", scc="nonzero")
def lshr_b32(a: Any, b: Any) -> Any:
    return a >> (b & _U32(31))


@scalar("s_ashr_i32", "i32 = i32 i32", scc="nonzero")
def ashr_i32(a: Any, b: Any) -> Any:
    return a >> (b & np.int32(31))


@scalar("s_lshl_b64", "u64 = u64 u32", scc="nonzero")
def lshl_b64(a: Any, b: Any) -> Any:
    return a << (b & _U32(63)).astype(np.uint64)


@scalar("s_lshr_b64", "u64 = u64 u32", scc="nonzero")
def lshr_b64(a: Any, b: Any) -> Any:
    return a >> (b & _U32(63)).astype(np.uint64)


@scalar("s_ashr_i64", "i64 = i64 u32", scc="nonzero")
def ashr_i64(a: Any, b: Any) -> Any:
    return a >> (b & _U32(63)).astype(np.int64)


def _shift_add(shift: int) -> Callable[[Any, Any], Any]:
    def function(a: Any, b: Any) -> Any:
        total = (_exact(a) << shift) + _exact(b)
        return _low(total), total > _LOW

    return function


for _shift in (1, 2, 3, 4):
    SCALAR[f"s_lshl{_shift}_add_u32"] = Rule(_shift_add(_shift), ("u32",), ("u32", "u32"), scc="given")


@scalar("s_bfe_u32", "u32 = u32 u32", scc="nonzero")
def bfe_u32(a: Any, field: Any) -> Any:
    offset, width = field & _U32(31), (field >> _U32(16)) & _U32(127)
    return _low((_exact(a) >> _exact(offset)) & ((_WIDE(1) << np.minimum(_exact(width), 32)) - 1))


@scalar("s_bfe_i32", "i32 = i32 u32", scc="nonzero")
def bfe_i32(a: Any, field: Any) -> Any:
    offset, width = field & _U32(31), np.minimum(_exact((field >> _U32(16)) & _U32(127)), 32)
    value = (_exact(a) >> _exact(offset)) & ((_WIDE(1) << width) - 1)
    sign = (value >> np.maximum(width - 1, 0)) & 1
    return (value - np.where((sign == 1) & (width > 0), _WIDE(1) << width, 0)).astype(np.int32)


@scalar("s_bfm_b32", "u32 = u32 u32")
def bfm_b32(a: Any, b: Any) -> Any:
    return _low(((_WIDE(1) << _exact(a & _U32(31))) - 1) << _exact(b & _U32(31)))


@scalar("s_pack_ll_b32_b16", "b32 = b32 b32")
def pack_ll(a: Any, b: Any) -> Any:
    return (a & _U32(0xFFFF)) | (b << _U32(16))


@scalar("s_pack_lh_b32_b16", "b32 = b32 b32")
def pack_lh(a: Any, b: Any) -> Any:
    return (a & _U32(0xFFFF)) | (b & _U32(0xFFFF0000))


@scalar("s_pack_hh_b32_b16", "b32 = b32 b32")
def pack_hh(a: Any, b: Any) -> Any:
    return (a >> _U32(16)) | (b & _U32(0xFFFF0000))


@scalar("s_cselect_b32", "b32 = b32 b32 +scc")
@scalar("s_cselect_b64", "b64 = b64 b64 +scc")
def cselect(a: Any, b: Any, scc: Array) -> Any:
    return np.where(scc, a, b)


@scalar("s_cmov_b32", "b32 = b32 +dst:b32 +scc")
@scalar("s_cmov_b64", "b64 = b64 +dst:b64 +scc")
def cmov(a: Any, old: Any, scc: Array) -> Any:
    return np.where(scc, a, old)
