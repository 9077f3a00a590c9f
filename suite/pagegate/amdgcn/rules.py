"""How an instruction is described: a function of values, and the kinds of its operands.

A signature such as "f32 mask = f32 f32" lists results, then sources, in the order of the text. "+vcc" is
a source that the text does not name; "+dst" is the old value of the first result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from .access import Step
from .operands import Parsed

Function: TypeAlias = Callable[..., Any]
Decoder: TypeAlias = Callable[[Parsed], Step]


@dataclass(frozen=True)
class Rule:
    """packed: applied to both halves separately. scc: "" (untouched), "nonzero" or "given" (the
    function returns it as its last value). extra: modifiers handed to the function as numbers. clamped:
    the function that saturates, for whole numbers with the modifier clamp."""

    function: Function
    results: tuple[str, ...]
    sources: tuple[str, ...]
    packed: bool = False
    scc: str = ""
    extra: tuple[str, ...] = ()
    clamped: Function | None = None


VECTOR: dict[str, Rule] = {}
SCALAR: dict[str, Rule] = {}
SPECIAL: dict[str, Decoder] = {}


def vector(
    names: str,
    signature: str,
    packed: bool = False,
    extra: tuple[str, ...] = (),
    clamped: Function | None = None,
) -> Callable[[Function], Function]:
    """Registers a function of arrays [wave, lane] under one or more mnemonics."""

    def register(function: Function) -> Function:
        results, sources = _kinds(signature)
        for name in names.split():
            _add(VECTOR, name, Rule(function, results, sources, packed, "", extra, clamped))
        return function

    return register


def scalar(names: str, signature: str, scc: str = "") -> Callable[[Function], Function]:
    """Registers a function of arrays [wave]."""

    def register(function: Function) -> Function:
        results, sources = _kinds(signature)
        for name in names.split():
            _add(SCALAR, name, Rule(function, results, sources, scc=scc))
        return function

    return register


def special(names: str) -> Callable[[Decoder], Decoder]:
    """Registers a decoder that builds the step by itself."""

    def register(decoder: Decoder) -> Decoder:
        for name in names.split():
            _add(SPECIAL, name, decoder)
        return decoder

    return register


def _kinds(signature: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    results, _, sources = signature.partition("=")
    return tuple(results.split()), tuple(sources.split())


def _add(table: dict[str, Any], name: str, entry: Any) -> None:
    if name in table:
        raise ValueError(f"instruction {name} is described twice")
    table[name] = entry
