"""Vector comparisons: one bit per lane, 0 in lanes that are switched off.

Float relations are named as the hardware names them: lg is "less or greater" (ordered), neq its
unordered counterpart, o and u ask whether both operands are numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pagegate.amdgcn.machine import Array
from pagegate.amdgcn.rules import VECTOR, Rule, vector

_INTEGER: dict[str, Callable[[Any, Any], Any]] = {
    "lt": np.less,
    "eq": np.equal,
    "le": np.less_equal,
    "gt": np.greater,
    "ne": np.not_equal,
    "ge": np.greater_equal,
}


def _unordered(a: Any, b: Any) -> Any:
    return np.isnan(a) | np.isnan(b)


_FLOAT: dict[str, Callable[[Any, Any], Any]] = {
    "lt": np.less,
    "eq": np.equal,
    "le": np.less_equal,
    "gt": np.greater,
    "lg": lambda a, b: (a < b) | (a > b),
    "ge": np.greater_equal,
    "o": lambda a, b: ~_unordered(a, b),
    "u": _unordered,
    "nge": lambda a, b: ~(a >= b),
    "nlg": lambda a, b: ~((a < b) | (a > b)),
    "ngt": lambda a, b: ~(a > b),
    "nle": lambda a, b: ~(a <= b),
    "neq": np.not_equal,
    "nlt": lambda a, b: ~(a < b),
}

for _kind, _relations in (
    *((kind, _INTEGER) for kind in ("i16", "u16", "i32", "u32", "i64", "u64")),
    *((kind, _FLOAT) for kind in ("f16", "f32", "f64")),
):
    for _name, _function in _relations.items():
        VECTOR[f"v_cmp_{_name}_{_kind}"] = Rule(_function, ("mask",), (_kind, _kind))


def _classes(bits: Array, mantissa: int, exponent: int) -> Array:
    """The class of each float as a bit: sNaN, qNaN, -inf, -normal, -denormal, -0, +0, ... +inf."""
    fraction = bits & ((1 << mantissa) - 1)
    power = (bits >> mantissa) & ((1 << exponent) - 1)
    negative = (bits >> (mantissa + exponent)) & 1
    top = (1 << exponent) - 1
    quiet = (fraction >> (mantissa - 1)) & 1
    kind = np.select(
        [(power == top) & (fraction != 0), power == top, power != 0, fraction != 0],
        [
            np.where(quiet == 1, 1, 0),
            np.where(negative == 1, 2, 9),
            np.where(negative == 1, 3, 8),
            np.where(negative == 1, 4, 7),
        ],
        np.where(negative == 1, 5, 6),
    )
    return 1 << kind


@vector("v_cmp_class_f32", "mask = b32 b32")
def class_f32(value: Any, wanted: Any) -> Any:
    return (_classes(value.astype(np.int64), 23, 8) & wanted) != 0
