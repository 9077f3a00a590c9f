"""The three instructions that LLVM's float division adds to a reciprocal and fused multiply-adds.

Source: "CDNA3 Instruction Set Architecture". The document's pseudocode of v_div_fmas_f32 (a factor of
2**32) does not fit the scaling by 2**64 of v_div_scale_f32; the tests hold the whole sequence against
correctly rounded quotients instead.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pagegate.amdgcn.machine import Array
from pagegate.amdgcn.rules import vector

from .arithmetic import TINY, fma_f32


def _exponent(a: Any) -> Any:
    """The biased exponent field."""
    return (np.asarray(a).view(np.int32) >> 23) & 0xFF


@vector("v_div_scale_f32", "f32 mask = f32 f32 f32")
def div_scale(value: Any, denominator: Any, numerator: Any) -> Any:
    """Scales one operand of a division away from overflow and underflow; the mask asks for the reverse."""
    value, denominator, numerator = np.broadcast_arrays(value, denominator, numerator)
    wide = denominator.astype(np.float64)
    ratio = numerator / denominator
    tiny_ratio = (np.abs(ratio) < TINY) & (ratio != 0)
    inverse = np.abs(1 / wide)
    tiny_inverse = (inverse < 2.0**-126) & (inverse != 0)
    is_denominator = value.view(np.int32) == denominator.view(np.int32)
    is_numerator = value.view(np.int32) == numerator.view(np.int32)
    denormal = (np.abs(denominator) < TINY) & (denominator != 0)
    huge_ratio = _exponent(numerator) - _exponent(denominator) >= 96
    up, down = _scaled(value, 64), _scaled(value, -64)
    cases = [
        ((numerator == 0) | (denominator == 0), np.full_like(value, np.nan), False),
        (huge_ratio, np.where(is_denominator, up, value), True),
        (denormal, up, False),
        # the document scales up here, which would overflow; only scaling down gives right quotients
        (tiny_inverse & tiny_ratio, np.where(is_denominator, down, value), True),
        (tiny_inverse, down, False),
        (tiny_ratio, np.where(is_numerator, up, value), True),
        (_exponent(numerator) <= 23, up, False),
    ]
    result = np.select([case for case, _, _ in cases], [choice for _, choice, _ in cases], value)
    flag = np.select([case for case, _, _ in cases], [np.full(value.shape, f) for _, _, f in cases], False)
    return result.astype(np.float32), flag


def _scaled(a: Array, by: int) -> Array:
    return np.ldexp(a.astype(np.float64), by).astype(np.float32)


@vector("v_div_fmas_f32", "f32 = f32 f32 f32 +vcc")
def div_fmas(a: Any, b: Any, c: Any, scaled: Array) -> Any:
    """The last step of a division; undoes the scaling. (LLVM's sequence scales by 2**64 here.)"""
    result = fma_f32(a, b, c)
    shift = np.where(_exponent(c) > 127, 64, -64)
    return np.where(scaled, np.ldexp(result.astype(np.float64), shift).astype(np.float32), result)


@vector("v_div_fixup_f32", "f32 = f32 f32 f32")
def div_fixup(quotient: Any, denominator: Any, numerator: Any) -> Any:
    """The special cases of a division, given its computed quotient."""
    quotient, denominator, numerator = np.broadcast_arrays(quotient, denominator, numerator)
    negative = np.signbit(denominator) ^ np.signbit(numerator)
    signed = np.where(negative, np.float32(-1), np.float32(1))
    far = _exponent(numerator) - _exponent(denominator) < -150
    return np.select(
        [
            np.isnan(numerator),
            np.isnan(denominator),
            (numerator == 0) & (denominator == 0),
            np.isinf(numerator) & np.isinf(denominator),
            (denominator == 0) | np.isinf(numerator),
            np.isinf(denominator) | (numerator == 0),
            far,
            _exponent(denominator) == 255,
        ],
        [
            numerator,
            denominator,
            np.full_like(quotient, np.nan),
            np.full_like(quotient, np.nan),
            signed * np.float32(np.inf),
            signed * np.float32(0),
            signed * np.float32(0),
            signed * np.float32(np.inf),
        ],
        np.where(negative, -np.abs(quotient), np.abs(quotient)),
    )
