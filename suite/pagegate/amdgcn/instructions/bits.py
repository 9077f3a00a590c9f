"""Vector instructions on bits: moves, logic, shifts, fields, bytes.

Source: "CDNA3 Instruction Set Architecture", VOP1, VOP2, VOP3; bitop3 from the CDNA4 document.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pagegate.amdgcn.machine import Array
from pagegate.amdgcn.rules import vector

from .scalar import reverse_bits

_U32 = np.uint32
_U64 = np.uint64
_31 = _U32(31)


@vector("v_mov_b32", "b32 = b32")
@vector("v_mov_b64", "b64 = b64")
@vector("v_accvgpr_read_b32 v_accvgpr_write_b32 v_accvgpr_mov_b32", "b32 = b32")
def mov(a: Any) -> Any:
    return a


@vector("v_not_b32", "b32 = b32")
def invert(a: Any) -> Any:
    return ~a


@vector("v_bfrev_b32", "b32 = b32")
def reverse(a: Any) -> Any:
    return reverse_bits(np.asarray(a))


@vector("v_ffbh_u32", "u32 = u32")
def leading_zeros(a: Any) -> Any:
    _, exponent = np.frexp(np.asarray(a).astype(np.float64))
    return np.where(np.asarray(a) == 0, -1, 32 - exponent).astype(np.int32).view(np.uint32)


@vector("v_ffbh_i32", "u32 = i32")
def leading_signs(a: Any) -> Any:
    """How many bits from the top equal the sign bit; -1 if all do."""
    a = np.asarray(a)
    return leading_zeros((a ^ (a >> np.int32(31))).view(np.uint32))


@vector("v_ffbl_b32", "u32 = u32")
def trailing_zeros(a: Any) -> Any:
    a = np.asarray(a)
    below = np.bitwise_count((a & (~a + _U32(1))) - _U32(1)).astype(np.uint32)
    return np.where(a == 0, _U32(0xFFFFFFFF), below)


@vector("v_bcnt_u32_b32", "u32 = u32 u32")
def count_ones(a: Any, b: Any) -> Any:
    return np.bitwise_count(a).astype(np.uint32) + b


@vector("v_and_b32", "b32 = b32 b32")
def and_b32(a: Any, b: Any) -> Any:
    return a & b


@vector("v_or_b32", "b32 = b32 b32")
def or_b32(a: Any, b: Any) -> Any:
    return a | b


@vector("v_xor_b32", "b32 = b32 b32")
def xor_b32(a: Any, b: Any) -> Any:
    return a ^ b


@vector("v_xnor_b32", "b32 = b32 b32")
def xnor_b32(a: Any, b: Any) -> Any:
    return ~(a ^ b)


@vector("v_cndmask_b32", "b32 = b32 b32 mask")
def cndmask(a: Any, b: Any, choose: Array) -> Any:
    return np.where(choose, b, a)


@vector("v_lshlrev_b32", "u32 = u32 u32")
def lshlrev_b32(by: Any, a: Any) -> Any:
    return a << (by & _31)


@vector("v_lshrrev_b32", "u32 = u32 u32")
def lshrrev_b32(by: Any, a: Any) -> Any:
    return a >> (by & _31)


@vector("v_ashrrev_i32", "i32 = i32 i32")
def ashrrev_i32(by: Any, a: Any) -> Any:
    return a >> (by & np.int32(31))


@vector("v_lshlrev_b16", "u16 = u16 u16")
@vector("v_pk_lshlrev_b16", "u16 = u16 u16", packed=True)
def lshlrev_b16(by: Any, a: Any) -> Any:
    return a << (by & np.uint16(15))


@vector("v_lshrrev_b16", "u16 = u16 u16")
@vector("v_pk_lshrrev_b16", "u16 = u16 u16", packed=True)
def lshrrev_b16(by: Any, a: Any) -> Any:
    return a >> (by & np.uint16(15))


@vector("v_ashrrev_i16", "i16 = i16 i16")
@vector("v_pk_ashrrev_i16", "i16 = i16 i16", packed=True)
def ashrrev_i16(by: Any, a: Any) -> Any:
    return a >> (by & np.int16(15))


@vector("v_lshlrev_b64", "u64 = u32 u64")
def lshlrev_b64(by: Any, a: Any) -> Any:
    return a << (by & _U32(63)).astype(_U64)


@vector("v_lshrrev_b64", "u64 = u32 u64")
def lshrrev_b64(by: Any, a: Any) -> Any:
    return a >> (by & _U32(63)).astype(_U64)


@vector("v_ashrrev_i64", "i64 = u32 i64")
def ashrrev_i64(by: Any, a: Any) -> Any:
    return a >> (by & _U32(63)).astype(np.int64)


@vector("v_lshl_add_u32", "u32 = u32 u32 u32")
def lshl_add(a: Any, by: Any, c: Any) -> Any:
    return (a << (by & _31)) + c


@vector("v_lshl_add_u64", "u64 = u64 u32 u64")
def lshl_add_u64(a: Any, by: Any, c: Any) -> Any:
    return (a << (by & _U32(7)).astype(_U64)) + c


@vector("v_add_lshl_u32", "u32 = u32 u32 u32")
def add_lshl(a: Any, b: Any, by: Any) -> Any:
    return (a + b) << (by & _31)


@vector("v_lshl_or_b32", "u32 = u32 u32 u32")
def lshl_or(a: Any, by: Any, c: Any) -> Any:
    return (a << (by & _31)) | c


@vector("v_and_or_b32", "u32 = u32 u32 u32")
def and_or(a: Any, b: Any, c: Any) -> Any:
    return (a & b) | c


@vector("v_or3_b32", "u32 = u32 u32 u32")
def or3(a: Any, b: Any, c: Any) -> Any:
    return a | b | c


@vector("v_add3_u32", "u32 = u32 u32 u32")
def add3(a: Any, b: Any, c: Any) -> Any:
    return a + b + c


@vector("v_xad_u32", "u32 = u32 u32 u32")
def xad(a: Any, b: Any, c: Any) -> Any:
    return (a ^ b) + c


@vector("v_bfe_u32", "u32 = u32 u32 u32")
def bfe_u32(a: Any, offset: Any, width: Any) -> Any:
    return (a >> (offset & _31)) & ((_U32(1) << (width & _31)) - _U32(1))


@vector("v_bfe_i32", "i32 = i32 u32 u32")
def bfe_i32(a: Any, offset: Any, width: Any) -> Any:
    width = np.asarray(width & _31).astype(np.int64)
    value = (np.asarray(a).astype(np.int64) >> np.asarray(offset & _31).astype(np.int64)) & ((1 << width) - 1)
    sign = (value >> np.maximum(width - 1, 0)) & 1
    return np.where(width == 0, 0, value - (sign << width)).astype(np.int32)


@vector("v_bfi_b32", "b32 = b32 b32 b32")
def bfi(mask: Any, a: Any, b: Any) -> Any:
    return (mask & a) | (~mask & b)


@vector("v_alignbit_b32", "b32 = b32 b32 u32")
def alignbit(high: Any, low: Any, by: Any) -> Any:
    return _funnel(high, low, by & _31)


@vector("v_alignbyte_b32", "b32 = b32 b32 u32")
def alignbyte(high: Any, low: Any, by: Any) -> Any:
    return _funnel(high, low, (by & _U32(3)) * _U32(8))


def _funnel(high: Any, low: Any, by: Any) -> Any:
    pair = (np.asarray(high).astype(_U64) << _U64(32)) | np.asarray(low).astype(_U64)
    return ((pair >> by.astype(_U64)) & _U64(0xFFFFFFFF)).astype(_U32)


@vector("v_bitop3_b32", "b32 = b32 b32 b32", extra=("bitop3",))
@vector("v_bitop3_b16", "u16 = u16 u16 u16", extra=("bitop3",))
def bitop3(a: Any, b: Any, c: Any, table: int) -> Any:
    """Bit i of the table is the result where the bits of a, b and c spell i."""
    result = np.zeros(np.broadcast_shapes(np.shape(a), np.shape(b), np.shape(c)), np.result_type(a, b, c))
    for row in range(8):
        if table >> row & 1:
            result |= (a if row & 4 else ~a) & (b if row & 2 else ~b) & (c if row & 1 else ~c)
    return result


@vector("v_perm_b32", "b32 = b32 b32 b32")
def perm(high: Any, low: Any, selector: Any) -> Any:
    """Each selector byte picks a byte of {high, low}, a repeated sign bit, 0x00 or 0xff."""
    pair = (np.asarray(high).astype(_U64) << _U64(32)) | np.asarray(low).astype(_U64)
    choices = np.unique(selector)
    if choices.size == 1:
        return _perm_constant(pair, int(choices[0]))
    result = np.zeros(np.broadcast_shapes(np.shape(pair), np.shape(selector)), _U32)
    for choice in choices:
        np.copyto(result, _perm_constant(pair, int(choice)), where=selector == choice)
    return result


def _perm_constant(pair: Array, selector: int) -> Array:
    result = np.zeros(np.shape(pair), _U32)
    for byte in range(4):
        pick = selector >> 8 * byte & 0xFF
        if pick < 8:
            part = ((pair >> _U64(8 * pick)) & _U64(0xFF)).astype(_U32)
        elif pick < 12:
            part = ((pair >> _U64(16 * (pick - 8) + 15)) & _U64(1)).astype(_U32) * _U32(0xFF)
        else:
            part = np.full(np.shape(pair), 0xFF if pick > 12 else 0, _U32)
        result |= part << _U32(8 * byte)
    return result


@vector("v_mbcnt_lo_u32_b32", "u32 = b32 u32")
def mbcnt_lo(mask: Any, base: Any) -> Any:
    """Ones of the mask's bits below this lane; the low half of the lanes."""
    below = np.array([(1 << min(lane, 32)) - 1 for lane in range(64)], np.uint64).astype(_U32)
    return np.bitwise_count(mask & below).astype(_U32) + base


@vector("v_mbcnt_hi_u32_b32", "u32 = b32 u32")
def mbcnt_hi(mask: Any, base: Any) -> Any:
    below = np.array([(1 << max(lane - 32, 0)) - 1 for lane in range(64)], np.uint64).astype(_U32)
    return np.bitwise_count(mask & below).astype(_U32) + base
