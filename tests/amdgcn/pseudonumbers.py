"""Numbers of the pseudocode: integers of any width, and floats of 16, 32 and 64 bits, one at a time."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

_FLOATS = {16: np.float16, 32: np.float32, 64: np.float64}
_FIELDS = {16: (10, 5), 32: (23, 8), 64: (52, 11)}


@dataclass(frozen=True)
class Value:
    """kind: "u", "i", "f", "bf" or "b" (bits). signalling: a NaN that was signalling where it came from."""

    kind: str
    width: int
    number: Any
    signalling: bool = False


def from_bits(bits: int, kind: str, width: int) -> Value:
    bits &= (1 << width) - 1
    if kind == "f":
        whole = np.array(bits, f"u{width // 8}").view(_FLOATS[width])[()]
        mantissa, _ = _FIELDS[width]
        signalling = bool(np.isnan(whole)) and not bits >> (mantissa - 1) & 1
        return Value(kind, width, float(whole), signalling)
    if kind == "bf":
        return Value("f", 32, float(np.array(bits << 16, "u4").view(np.float32)))
    if kind == "i" and bits >> (width - 1):
        bits -= 1 << width
    return Value(kind, width, bits)


def to_bits(value: Value, width: int) -> int:
    if value.kind == "f":
        rounded = _FLOATS[value.width](value.number)
        return int(rounded.view(f"u{value.width // 8}")) & ((1 << width) - 1)
    if value.kind == "bf":
        return int(value.number)
    return int(value.number) & ((1 << width) - 1)


def convert(value: Value, kind: str, width: int) -> Value:
    """A cast: numbers keep their value, bits are cut or extended."""
    if kind == "f":
        if value.kind == "f":
            return _float(value.number, width, value.signalling)
        if value.kind in ("u", "b") and value.width == width:
            return from_bits(int(value.number), "f", width)
        return _float(float(value.number), width)
    if kind == "bf":
        return Value("bf", 16, _bf16_bits(value.number) if value.kind == "f" else int(value.number) & 0xFFFF)
    if value.kind == "f":
        return Value(kind, width, to_bits(value, value.width) & ((1 << width) - 1))
    return from_bits(to_bits(value, max(width, value.width)), kind, width)


def truth(value: Value) -> bool:
    return value.number != 0


def _float(number: float, width: int, signalling: bool = False) -> Value:
    with np.errstate(all="ignore"):
        return Value("f", width, float(_FLOATS[width](number)), signalling)


def _round(exact: Fraction, width: int) -> float:
    """The nearest float of a width, ties to even."""
    mantissa, exponent_bits = _FIELDS[width]
    if exact == 0:
        return 0.0
    bias = (1 << (exponent_bits - 1)) - 1
    size = abs(exact)
    power = size.numerator.bit_length() - size.denominator.bit_length()
    if Fraction(2) ** power > size:
        power -= 1
    step = Fraction(2) ** (max(power, 1 - bias) - mantissa)
    rounded = round(size / step) * step * (1 if exact > 0 else -1)
    if abs(rounded) >= Fraction(2) ** (bias + 1):
        return math.inf if exact > 0 else -math.inf
    return float(rounded) if rounded else (0.0 if exact > 0 else -0.0)


def operate(operator: str, left: Value | None, right: Value) -> Value:
    """A unary operator (left is None) or a binary one."""
    if left is None:
        return _unary(operator, right)
    if operator in ("==", "!=", "<", ">", "<=", ">=", "<>"):
        return Value("u", 1, int(_compare(operator, left, right)))
    if "f" in (left.kind, right.kind):
        return _float_operation(operator, left, right)
    a, b = int(left.number), int(right.number)
    width = left.width if operator in ("<<", ">>") else max(left.width, right.width)
    kind = left.kind if left.kind != "b" else right.kind
    results: dict[str, Callable[[], int]] = {
        "+": lambda: a + b, "-": lambda: a - b, "*": lambda: a * b, "%": lambda: a % b, "/": lambda: a // b,
        "&": lambda: a & b, "|": lambda: a | b, "^": lambda: a ^ b, "<<": lambda: a << b, ">>": lambda: a >> b,
    }  # fmt: skip
    return from_bits(results[operator]() & ((1 << width) - 1), kind, width)


def _unary(operator: str, value: Value) -> Value:
    if operator == "!":
        return Value("u", 1, int(not truth(value)))
    if operator == "~":
        return from_bits(~int(value.number) & ((1 << value.width) - 1), value.kind, value.width)
    if operator == "+" or value.kind != "f":
        return value if operator == "+" else from_bits(-int(value.number), value.kind, value.width)
    return Value("f", value.width, -value.number, value.signalling)


def _compare(operator: str, left: Value, right: Value) -> bool:
    if right.number == "denormal":
        mantissa, exponent = _FIELDS[right.width]
        return 0 < abs(left.number) < 2.0 ** (2 - (1 << (exponent - 1)))
    a, b = left.number, right.number
    if operator == "<>":
        return bool(a < b or a > b)
    relations = {"==": a == b, "!=": a != b, "<": a < b, ">": a > b, "<=": a <= b, ">=": a >= b}
    return bool(relations[operator])


def _float_operation(operator: str, left: Value, right: Value) -> Value:
    width = max(value.width for value in (left, right) if value.kind == "f")
    a, b = float(left.number), float(right.number)
    if operator == "**":
        try:
            return _float(a**b, width if abs(b) < 120 else 64)
        except OverflowError:
            return _float(math.inf, 64)
    if math.isfinite(a) and math.isfinite(b) and (operator != "/" or b != 0):
        exact = {
            "+": lambda: Fraction(a) + Fraction(b),
            "-": lambda: Fraction(a) - Fraction(b),
            "*": lambda: Fraction(a) * Fraction(b),
            "/": lambda: Fraction(a) / Fraction(b),
        }[operator]()
        if exact:
            return Value("f", width, _round(exact, width))
    with np.errstate(all="ignore"):
        x, y = np.float64(a), np.float64(b)
        plain = {"+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide}[operator](x, y)
    return Value("f", width, float(plain))


def _fma(a: Value, b: Value, c: Value) -> Value:
    numbers = [float(value.number) for value in (a, b, c)]
    if all(map(math.isfinite, numbers)):
        exact = Fraction(numbers[0]) * Fraction(numbers[1]) + Fraction(numbers[2])
        if exact:
            return Value("f", a.width, _round(exact, a.width))
    with np.errstate(all="ignore"):
        return Value("f", a.width, float(np.float64(numbers[0]) * numbers[1] + np.float64(numbers[2])))


def _bf16_bits(number: float) -> int:
    if math.isnan(number):
        return 0x7FC0
    if math.isinf(number):
        return 0x7F80 if number > 0 else 0xFF80
    bits = int(np.float32(number).view(np.uint32))
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16) & 0xFFFF


def _biased_exponent(value: Value) -> Value:
    mantissa, width = _FIELDS[value.width]
    return Value("i", 32, to_bits(value, value.width) >> mantissa & ((1 << width) - 1))


def _ldexp(value: Value, by: Value) -> Value:
    if not math.isfinite(value.number) or value.number == 0:
        return value
    exact = Fraction(value.number) * Fraction(2) ** max(min(int(by.number), 5000), -5000)
    return Value("f", value.width, _round(exact, value.width))


def _extreme(highest: bool) -> Callable[[Value, Value], Value]:
    def function(a: Value, b: Value) -> Value:
        if a.kind != "f":
            return a if (a.number >= b.number) == highest else b
        for value in (a, b):
            if value.signalling:
                return Value("f", value.width, math.nan)
        if math.isnan(a.number):
            return b
        if math.isnan(b.number):
            return a
        if a.number == b.number == 0:
            negative = math.copysign(1, a.number) < 0
            return b if negative == highest else a
        return a if (a.number > b.number) == highest else b

    return function


def _third(choose: Callable[[Value, Value], Value]) -> Callable[[Value, Value, Value], Value]:
    return lambda a, b, c: choose(choose(a, b), c)


def _nan_wins(highest: bool) -> Callable[[Value, Value], Value]:
    choose = _extreme(highest)

    def function(a: Value, b: Value) -> Value:
        missing = math.isnan(a.number) or math.isnan(b.number)
        return Value("f", a.width, math.nan) if missing else choose(a, b)

    return function


def _integer(width: int, signed: bool) -> Callable[[Value], Value]:
    low, high = (-(1 << (width - 1)), (1 << (width - 1)) - 1) if signed else (0, (1 << width) - 1)

    def function(value: Value) -> Value:
        number = value.number
        if math.isnan(number):
            whole = 0
        else:
            whole = int(max(low, min(high, number)))
        return Value("i" if signed else "u", width, whole)

    return function


def _mapped(function: Callable[[float], float]) -> Callable[[Value], Value]:
    def apply(value: Value) -> Value:
        try:
            number = float(function(value.number))
        except (ValueError, OverflowError):
            with np.errstate(all="ignore"):
                number = float(getattr(np, function.__name__)(np.float64(value.number)))
        if number == 0 and value.number != 0:
            number = math.copysign(0.0, value.number)
        return _float(number, value.width)

    return apply


def _signed_field(value: Value, width: Value) -> Value:
    size = int(width.number)
    number = int(value.number) & ((1 << size) - 1)
    return Value("i", 32, number - (1 << size) if size and number >> (size - 1) else number)


def _mantissa(value: Value) -> Value:
    return Value("f", value.width, math.frexp(value.number)[0])


def _pow(base: Value, power: Value) -> Value:
    with np.errstate(all="ignore"):
        return _float(float(np.float64(base.number) ** np.float64(power.number)), 32)


FUNCTIONS: dict[str, Callable[..., Value]] = {
    "fma": _fma,
    "ldexp": _ldexp,
    "exponent": _biased_exponent,
    "mantissa": _mantissa,
    "sign": lambda v: Value("u", 1, to_bits(v, v.width) >> (v.width - 1)),
    "abs": lambda v: Value(v.kind, v.width, abs(v.number), v.signalling),
    "isNAN": lambda v: Value("u", 1, int(math.isnan(v.number))),
    "isSignalNAN": lambda v: Value("u", 1, int(v.signalling)),
    "isQuietNAN": lambda v: Value("u", 1, int(math.isnan(v.number) and not v.signalling)),
    "cvtToQuietNAN": lambda v: Value("f", v.width, math.nan),
    "isEven": lambda v: Value("u", 1, int(math.isfinite(v.number) and v.number % 2 == 0)),
    "signext": lambda v: from_bits(to_bits(v, v.width), "i", v.width),
    "signext_from_bit": _signed_field,
    "floor": _mapped(np.floor),
    "ceil": _mapped(np.ceil),
    "trunc": _mapped(np.trunc),
    "fract": lambda v: _float(
        v.number - math.floor(v.number) if math.isfinite(v.number) else math.nan, v.width
    ),
    "sqrt": _mapped(np.sqrt),
    "log2": _mapped(np.log2),
    "pow": _pow,
    "f16_to_f32": lambda v: Value("f", 32, v.number),
    "f32_to_f16": lambda v: _float(v.number, 16),
    "f32_to_f64": lambda v: Value("f", 64, v.number),
    "f64_to_f32": lambda v: _float(v.number, 32),
    "f32_to_bf16": lambda v: Value("bf", 16, _bf16_bits(v.number)),
    "bf16_to_f32": lambda v: v,
    "f32_to_u32": _integer(32, False),
    "f32_to_i32": _integer(32, True),
    "f64_to_u32": _integer(32, False),
    "f64_to_i32": _integer(32, True),
    "f16_to_u16": _integer(16, False),
    "f16_to_i16": _integer(16, True),
    "u32_to_f32": lambda v: _float(v.number, 32),
    "i32_to_f32": lambda v: _float(v.number, 32),
    "u32_to_f64": lambda v: _float(v.number, 64),
    "i32_to_f64": lambda v: _float(v.number, 64),
    "u16_to_f16": lambda v: _float(v.number, 16),
    "i16_to_f16": lambda v: _float(v.number, 16),
    "s_ff1_i32_b64": lambda v: Value("i", 32, (int(v.number) & -int(v.number)).bit_length() - 1),
}
for _kind in ("f32", "f16", "i32", "u32", "i16", "u16"):
    FUNCTIONS[f"v_max_{_kind}"], FUNCTIONS[f"v_min_{_kind}"] = _extreme(True), _extreme(False)
    FUNCTIONS[f"v_max3_{_kind}"] = _third(_extreme(True))
    FUNCTIONS[f"v_min3_{_kind}"] = _third(_extreme(False))
FUNCTIONS["v_maximum_f32"], FUNCTIONS["v_minimum_f32"] = _nan_wins(True), _nan_wins(False)
FUNCTIONS["v_maximum3_f16"], FUNCTIONS["v_minimum3_f16"] = _third(_nan_wins(True)), _third(_nan_wins(False))
