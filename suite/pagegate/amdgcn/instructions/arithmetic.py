"""Vector float instructions.

Source: "CDNA3 Instruction Set Architecture". Denormals are kept (the kernels' float mode 0xf0), except
by the transcendental instructions, which the document describes as flushing them in f32. Reciprocal,
exponential and logarithm are correctly rounded here and within 1 ulp on the hardware.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pagegate.amdgcn.rules import VECTOR, Rule, vector

TINY = np.float32(2.0**-126)


@vector("v_add_f32", "f32 = f32 f32")
@vector("v_add_f16", "f16 = f16 f16")
@vector("v_add_f64", "f64 = f64 f64")
@vector("v_pk_add_f32", "f32 = f32 f32", packed=True)
@vector("v_pk_add_f16", "f16 = f16 f16", packed=True)
def add(a: Any, b: Any) -> Any:
    return a + b


@vector("v_sub_f32", "f32 = f32 f32")
@vector("v_sub_f16", "f16 = f16 f16")
def sub(a: Any, b: Any) -> Any:
    return a - b


@vector("v_subrev_f32", "f32 = f32 f32")
@vector("v_subrev_f16", "f16 = f16 f16")
def subrev(a: Any, b: Any) -> Any:
    return b - a


@vector("v_mul_f32", "f32 = f32 f32")
@vector("v_mul_f16", "f16 = f16 f16")
@vector("v_mul_f64", "f64 = f64 f64")
@vector("v_pk_mul_f32", "f32 = f32 f32", packed=True)
@vector("v_pk_mul_f16", "f16 = f16 f16", packed=True)
def mul(a: Any, b: Any) -> Any:
    return a * b


@vector("v_mul_legacy_f32", "f32 = f32 f32")
def mul_legacy(a: Any, b: Any) -> Any:
    """Zero times anything is zero."""
    return np.where((a == 0) | (b == 0), np.float32(0), a * b)


@vector("v_fma_f32", "f32 = f32 f32 f32")
@vector("v_fmac_f32", "f32 = f32 f32 +dst:f32")
@vector("v_pk_fma_f32", "f32 = f32 f32 f32", packed=True)
def fma_f32(a: Any, b: Any, c: Any) -> Any:
    """The product is exact in f64; the sum is rounded to odd there, so the last rounding is right."""
    product = np.asarray(a).astype(np.float64) * b
    total = np.asarray(product + c)
    # what the sum lost (Knuth's two-sum)
    part = total - product
    error = (product - (total - part)) + (c - part)
    inexact = (error != 0) & np.isfinite(total)
    if inexact.any():
        bits = np.ascontiguousarray(total).view(np.int64)
        even = inexact & (bits & 1 == 0)
        # towards the error: away from zero where the signs agree
        towards = np.where((error > 0) == (total > 0), 1, -1)
        total = np.where(even, bits + towards, bits).view(np.float64)
    return total.astype(np.float32)


@vector("v_fmaak_f32", "f32 = f32 f32 f32")
def fmaak(a: Any, b: Any, constant: Any) -> Any:
    return fma_f32(a, b, constant)


@vector("v_fmamk_f32", "f32 = f32 f32 f32")
def fmamk(a: Any, constant: Any, c: Any) -> Any:
    return fma_f32(a, constant, c)


@vector("v_fma_f16", "f16 = f16 f16 f16")
@vector("v_pk_fma_f16", "f16 = f16 f16 f16", packed=True)
def fma_f16(a: Any, b: Any, c: Any) -> Any:
    # exact up to the last rounding: products have 22 bits, and aligned sums fit into f64 or lose
    # only what round-to-odd of fma_f32 preserves
    wide = fma_f32(
        np.asarray(a).astype(np.float32), np.asarray(b).astype(np.float32), np.asarray(c).astype(np.float32)
    )
    return wide.astype(np.float16)


def _is_signalling(a: Any) -> Any:
    bits = np.asarray(a).view(f"u{np.asarray(a).dtype.itemsize}")
    quiet = {2: 9, 4: 22, 8: 51}[bits.dtype.itemsize]
    return np.isnan(a) & ((bits >> bits.dtype.type(quiet)) & bits.dtype.type(1) == 0)


def _extreme(a: Any, b: Any, choose: Callable[[Any, Any], Any], zeros: Callable[[Any, Any], Any]) -> Any:
    """IEEE mode: a number wins over a quiet NaN, a signalling NaN over all; -0 is below +0."""
    result = np.asarray(choose(a, b))
    if (result == 0).any():
        unsigned = f"u{result.dtype.itemsize}"
        both = zeros(np.asarray(a).view(unsigned), np.asarray(b).view(unsigned)).view(result.dtype)
        result = np.where((a == 0) & (b == 0), both, result)
    if np.isnan(np.asarray(a)).any() or np.isnan(np.asarray(b)).any():
        result = np.where(_is_signalling(a) | _is_signalling(b), result.dtype.type(np.nan), result)
    return result


@vector("v_max_f32", "f32 = f32 f32")
@vector("v_max_f64", "f64 = f64 f64")
@vector("v_max_f16", "f16 = f16 f16")
@vector("v_pk_max_f16", "f16 = f16 f16", packed=True)
def maximum(a: Any, b: Any) -> Any:
    return _extreme(a, b, np.fmax, lambda x, y: x & y)


@vector("v_min_f32", "f32 = f32 f32")
@vector("v_min_f64", "f64 = f64 f64")
@vector("v_min_f16", "f16 = f16 f16")
@vector("v_pk_min_f16", "f16 = f16 f16", packed=True)
def minimum(a: Any, b: Any) -> Any:
    return _extreme(a, b, np.fmin, lambda x, y: x | y)


@vector("v_max3_f32", "f32 = f32 f32 f32")
@vector("v_max3_f16", "f16 = f16 f16 f16")
def max3(a: Any, b: Any, c: Any) -> Any:
    return maximum(maximum(a, b), c)


@vector("v_min3_f32", "f32 = f32 f32 f32")
@vector("v_min3_f16", "f16 = f16 f16 f16")
def min3(a: Any, b: Any, c: Any) -> Any:
    return minimum(minimum(a, b), c)


@vector("v_maximum3_f32", "f32 = f32 f32 f32")
@vector("v_pk_maximum3_f16", "f16 = f16 f16 f16", packed=True)
def maximum3(a: Any, b: Any, c: Any) -> Any:
    return np.maximum(np.maximum(a, b), c)


@vector("v_minimum3_f32", "f32 = f32 f32 f32")
@vector("v_pk_minimum3_f16", "f16 = f16 f16 f16", packed=True)
def minimum3(a: Any, b: Any, c: Any) -> Any:
    return np.minimum(np.minimum(a, b), c)


@vector("v_med3_f32", "f32 = f32 f32 f32")
@vector("v_med3_f16", "f16 = f16 f16 f16")
def med3(a: Any, b: Any, c: Any) -> Any:
    missing = np.isnan(a) | np.isnan(b) | np.isnan(c)
    middle = maximum(minimum(a, b), minimum(maximum(a, b), c))
    return np.where(missing, min3(a, b, c), middle)


def _flush(a: Any) -> Any:
    return np.where(np.abs(a) < TINY, np.copysign(np.float32(0), a), a)


@vector("v_exp_f32", "f32 = f32")
def exp(a: Any) -> Any:
    return _flush(np.exp2(_flush(a)))


@vector("v_log_f32", "f32 = f32")
def log(a: Any) -> Any:
    return np.log2(_flush(a))


@vector("v_rcp_f32 v_rcp_iflag_f32", "f32 = f32")
def rcp(a: Any) -> Any:
    return _flush(np.float32(1) / _flush(a))


@vector("v_rsq_f32", "f32 = f32")
def rsq(a: Any) -> Any:
    return (1 / np.sqrt(np.asarray(_flush(a)).astype(np.float64))).astype(np.float32)


@vector("v_sqrt_f32", "f32 = f32")
def sqrt(a: Any) -> Any:
    return np.sqrt(_flush(a))


@vector("v_rcp_f16", "f16 = f16")
def rcp_f16(a: Any) -> Any:
    return (np.float32(1) / np.asarray(a).astype(np.float32)).astype(np.float16)


@vector("v_exp_f16", "f16 = f16")
def exp_f16(a: Any) -> Any:
    return np.exp2(np.asarray(a).astype(np.float32)).astype(np.float16)


_ROUNDINGS: dict[str, Callable[[Any], Any]] = {
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "rndne": np.rint,
}
for _name, _function in _ROUNDINGS.items():
    for _kind in ("f32", "f16", "f64"):
        VECTOR[f"v_{_name}_{_kind}"] = Rule(_function, (_kind,), (_kind,))


@vector("v_ldexp_f32", "f32 = f32 i32")
def ldexp(a: Any, by: Any) -> Any:
    # two steps in f64, where nothing is lost before the last rounding
    return np.ldexp(np.asarray(a).astype(np.float64), np.clip(by, -400, 400)).astype(np.float32)


@vector("v_ldexp_f64", "f64 = f64 i32")
def ldexp_f64(a: Any, by: Any) -> Any:
    return np.ldexp(a, np.clip(by, -5000, 5000))
