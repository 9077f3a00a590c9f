"""Small float formats as tables: 256 values each, as float32.

OCP formats (gfx950): e4m3fn has no infinity, e5m2 is IEEE-like. FNUZ formats (gfx942): one more in the
exponent's bias, no infinity, no negative zero; 0x80 is the only NaN. Sources: OCP "8-bit Floating Point
Specification" 1.0; "CDNA3 Instruction Set Architecture", section on data formats.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .machine import Array


def _table(exponent_bits: int, bias: int, fnuz: bool) -> Array:
    mantissa_bits = 7 - exponent_bits
    code = np.arange(256)
    exponent = (code >> mantissa_bits) & ((1 << exponent_bits) - 1)
    fraction = (code & ((1 << mantissa_bits) - 1)) / (1 << mantissa_bits)
    size = np.where(
        exponent == 0, fraction * 2.0 ** (1 - bias), (1 + fraction) * 2.0 ** (exponent - float(bias))
    )
    values = np.where(code >= 128, -size, size)
    if fnuz:
        values[0x80] = np.nan
    elif exponent_bits == 4:
        values[[0x7F, 0xFF]] = np.nan
    else:
        values[[0x7C, 0xFC]] = (np.inf, -np.inf)
        values[[0x7D, 0x7E, 0x7F, 0xFD, 0xFE, 0xFF]] = np.nan
    return values.astype(np.float32)


TABLES = {
    ("gfx942", "fp8"): _table(4, 8, fnuz=True),
    ("gfx942", "bf8"): _table(5, 16, fnuz=True),
    ("gfx950", "fp8"): _table(4, 7, fnuz=False),
    ("gfx950", "bf8"): _table(5, 15, fnuz=False),
}


def to_bf16(a: Any) -> Array:
    """float32 to the bits of bfloat16, round to nearest even; NaN stays NaN."""
    bits = np.asarray(a).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(a), (bits >> np.uint32(16)) | np.uint32(0x40), rounded).astype(np.uint16)


def from_bf16(bits: Array) -> Array:
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def encode(values: Any, table: Array) -> Array:
    """float32 to the nearest code of a table, ties to even; what is out of range becomes NaN or infinity.

    That is the hardware's default mode (FP16_OVFL = 0).
    """
    wide = np.asarray(values).astype(np.float64)
    finite = np.flatnonzero(np.isfinite(table) & (np.arange(256) < 128))
    sizes = table[finite].astype(np.float64)
    size = np.abs(wide)
    above = np.clip(np.searchsorted(sizes, size), 1, len(sizes) - 1)
    low, high = above - 1, above
    middle = (sizes[low] + sizes[high]) / 2
    pick = np.where((size > middle) | ((size == middle) & (finite[high] % 2 == 0)), high, low)
    code = finite[pick]
    step = sizes[-1] - sizes[-2]
    lost = size >= sizes[-1] + step / 2
    missing = int(np.flatnonzero(np.isnan(table))[0])
    infinite = np.flatnonzero(np.isposinf(table))
    code = np.where(lost, infinite[0] if infinite.size else missing, code)
    negative = np.signbit(wide) & ((code != 0) | (not np.isnan(table[0x80])))
    code = np.where(negative, code | 0x80, code)
    return np.where(np.isnan(wide), missing, code).astype(np.uint32)
