"""Packed instructions (VOP3P): one function on the low and on the high halves of its sources."""

from __future__ import annotations

from typing import Any

import numpy as np

from .access import WIDTHS, Change, Fetch, Step, vector_source
from .errors import AssemblyError
from .machine import Machine
from .operands import Operand, Parsed
from .rules import Rule


def caller(function: Any, fetches: list[Fetch], constants: list[int] | None = None) -> Fetch:
    """function(*fetched, *constants), without a loop for the usual counts."""
    if constants:
        fixed = tuple(constants)
        return lambda m: function(*[fetch(m) for fetch in fetches], *fixed)
    if len(fetches) == 1:
        (a,) = fetches
        return lambda m: function(a(m))
    if len(fetches) == 2:
        a, b = fetches
        return lambda m: function(a(m), b(m))
    if len(fetches) == 3:
        a, b, c = fetches
        return lambda m: function(a(m), b(m), c(m))
    return lambda m: function(*[fetch(m) for fetch in fetches])


def decode_packed(parsed: Parsed, rule: Rule, target: Operand, operands: list[Operand]) -> Step:
    """VOP3P: the function on the low and on the high halves, each half of each source selectable."""
    count = len(operands)
    low = parsed.take_flags("op_sel", count, 0)
    high = parsed.take_flags("op_sel_hi", count, 1)
    negate = (parsed.take_flags("neg_lo", count, 0), parsed.take_flags("neg_hi", count, 0))
    wide = WIDTHS[rule.sources[0]] == 32
    halves = [
        caller(
            rule.function,
            [
                _half(parsed, operand, kind, half[i], bool(negate[number][i]), wide)
                for i, (operand, kind) in enumerate(zip(operands, rule.sources, strict=True))
            ],
        )
        for number, half in enumerate((low, high))
    ]
    if parsed.take("clamp"):
        raise AssemblyError(f"{parsed.line}: clamp on packed instructions is not modelled")
    first, second = halves
    index = target.index
    if wide:

        def step(m: Machine) -> None:
            a, b = first(m), second(m)
            m.put_vector(index, a.view(np.uint32))
            m.put_vector(index + 1, b.view(np.uint32))

        return step

    def step16(m: Machine) -> None:
        bottom = first(m).view(np.uint16).astype(np.uint32)
        m.put_vector(index, bottom | (second(m).view(np.uint16).astype(np.uint32) << np.uint32(16)))

    return step16


def _half(parsed: Parsed, operand: Operand, kind: str, half: int, negate: bool, wide: bool) -> Fetch:
    flip = operand.negate ^ negate
    if not wide:
        shifted: Change | None = (lambda bits: bits >> np.uint32(16)) if half else None
        # a whole-number constant has no upper half; a float constant stands in both
        chosen = Operand(operand.kind, operand.index, 1, operand.text, flip, operand.absolute)
        if operand.kind == "c" and "." in operand.text:
            shifted = None
        return vector_source(parsed, chosen, kind, shifted)
    if operand.kind == "c":
        if half and operand.text != "0":
            raise AssemblyError(f"{parsed.line}: the upper half of constant {operand.text} is not modelled")
        return vector_source(parsed, Operand("c", text=operand.text, negate=flip), kind)
    if operand.kind not in "vs" or operand.count != 2:
        raise AssemblyError(f"{parsed.line}: required a pair of registers, found {operand.text!r}")
    chosen = Operand(operand.kind, operand.index + half, 1, operand.text, flip, operand.absolute)
    return vector_source(parsed, chosen, kind)
