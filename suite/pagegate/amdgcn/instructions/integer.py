"""Vector integer arithmetic.

Source: "CDNA3 Instruction Set Architecture", VOP2, VOP3 and VOP3P.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pagegate.amdgcn.machine import Array
from pagegate.amdgcn.rules import VECTOR, Rule, vector

_U32 = np.uint32
_U64 = np.uint64


def _saturated_add(a: Any, b: Any) -> Any:
    total = np.asarray(a + b)
    return np.where(total < a, ~np.zeros_like(total), total)


def _saturated_sub(a: Any, b: Any) -> Any:
    return np.where(b > a, np.zeros_like(a - b), a - b)


@vector("v_add_u32", "u32 = u32 u32", clamped=_saturated_add)
@vector("v_add_i32", "u32 = u32 u32")
@vector("v_add_u16", "u16 = u16 u16", clamped=_saturated_add)
@vector("v_pk_add_u16", "u16 = u16 u16", packed=True)
def add(a: Any, b: Any) -> Any:
    return a + b


@vector("v_sub_u32", "u32 = u32 u32", clamped=_saturated_sub)
@vector("v_sub_i32", "u32 = u32 u32")
@vector("v_sub_u16", "u16 = u16 u16", clamped=_saturated_sub)
@vector("v_pk_sub_i16 v_pk_sub_u16", "u16 = u16 u16", packed=True)
def sub(a: Any, b: Any) -> Any:
    return a - b


@vector("v_subrev_u32", "u32 = u32 u32")
@vector("v_subrev_u16", "u16 = u16 u16")
def subrev(a: Any, b: Any) -> Any:
    return b - a


@vector("v_add_co_u32", "u32 mask = u32 u32")
def add_co(a: Any, b: Any) -> Any:
    total = a + b
    return total, total < a


@vector("v_sub_co_u32", "u32 mask = u32 u32")
def sub_co(a: Any, b: Any) -> Any:
    return a - b, b > a


@vector("v_subrev_co_u32", "u32 mask = u32 u32")
def subrev_co(a: Any, b: Any) -> Any:
    return b - a, a > b


@vector("v_addc_co_u32", "u32 mask = u32 u32 mask")
def addc_co(a: Any, b: Any, carry: Array) -> Any:
    total = np.asarray(a).astype(_U64) + b + carry
    return total.astype(_U32), total > 0xFFFFFFFF


@vector("v_subb_co_u32", "u32 mask = u32 u32 mask")
def subb_co(a: Any, b: Any, borrow: Array) -> Any:
    total = np.asarray(a).astype(np.int64) - np.asarray(b).astype(np.int64) - borrow
    return (total & 0xFFFFFFFF).astype(_U32), total < 0


@vector("v_subbrev_co_u32", "u32 mask = u32 u32 mask")
def subbrev_co(a: Any, b: Any, borrow: Array) -> Any:
    return subb_co(b, a, borrow)


@vector("v_mul_lo_u32", "u32 = u32 u32")
@vector("v_mul_lo_u16", "u16 = u16 u16")
@vector("v_pk_mul_lo_u16", "u16 = u16 u16", packed=True)
def mul_lo(a: Any, b: Any) -> Any:
    return a * b


@vector("v_mul_hi_u32", "u32 = u32 u32")
def mul_hi_u32(a: Any, b: Any) -> Any:
    return ((np.asarray(a).astype(_U64) * np.asarray(b).astype(_U64)) >> _U64(32)).astype(_U32)


@vector("v_mul_hi_i32", "i32 = i32 i32")
def mul_hi_i32(a: Any, b: Any) -> Any:
    return ((np.asarray(a).astype(np.int64) * np.asarray(b).astype(np.int64)) >> 32).astype(np.int32)


@vector("v_mad_legacy_u16", "u16 = u16 u16 u16")
def mad_u16(a: Any, b: Any, c: Any) -> Any:
    return a * b + c


_24 = _U32(0xFFFFFF)


@vector("v_mul_u32_u24", "u32 = u32 u32")
def mul_u24(a: Any, b: Any) -> Any:
    return (a & _24) * (b & _24)


@vector("v_mul_hi_u32_u24", "u32 = u32 u32")
def mul_hi_u24(a: Any, b: Any) -> Any:
    return mul_hi_u32(a & _24, b & _24)


def _signed24(a: Any) -> Any:
    return (a << np.int32(8)) >> np.int32(8)


@vector("v_mul_i32_i24", "i32 = i32 i32")
def mul_i24(a: Any, b: Any) -> Any:
    return _signed24(a) * _signed24(b)


@vector("v_mad_u32_u24", "u32 = u32 u32 u32")
def mad_u24(a: Any, b: Any, c: Any) -> Any:
    return (a & _24) * (b & _24) + c


@vector("v_mad_i32_i24", "i32 = i32 i32 i32")
def mad_i24(a: Any, b: Any, c: Any) -> Any:
    return _signed24(a) * _signed24(b) + c


@vector("v_mad_u64_u32", "u64 mask = u32 u32 u64")
def mad_u64(a: Any, b: Any, c: Any) -> Any:
    product = np.asarray(a).astype(_U64) * np.asarray(b).astype(_U64)
    total = product + c
    return total, total < product


@vector("v_mad_i64_i32", "i64 mask = i32 i32 i64")
def mad_i64(a: Any, b: Any, c: Any) -> Any:
    product = np.asarray(a).astype(np.int64) * np.asarray(b).astype(np.int64)
    total = product + c
    overflow = ((product ^ total) & (c ^ total)) < 0
    # bit 64 of the sum: its true sign
    return total, (total < 0) ^ overflow


def _third(choose: Callable[[Any, Any], Any]) -> Callable[[Any, Any, Any], Any]:
    return lambda a, b, c: choose(choose(a, b), c)


def _median(a: Any, b: Any, c: Any) -> Any:
    return np.maximum(np.minimum(a, b), np.minimum(np.maximum(a, b), c))


for _kind in ("i32", "u32", "i16", "u16"):
    for _name, _choose in (("min", np.minimum), ("max", np.maximum)):
        VECTOR[f"v_{_name}_{_kind}"] = Rule(_choose, (_kind,), (_kind, _kind))
        VECTOR[f"v_{_name}3_{_kind}"] = Rule(_third(_choose), (_kind,), (_kind,) * 3)
        if _kind.endswith("16"):
            VECTOR[f"v_pk_{_name}_{_kind}"] = Rule(_choose, (_kind,), (_kind, _kind), packed=True)
    VECTOR[f"v_med3_{_kind}"] = Rule(_median, (_kind,), (_kind,) * 3)
