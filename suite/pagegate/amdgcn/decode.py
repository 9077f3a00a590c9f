"""From a listing's lines to steps: one closure per instruction, built once.

Strict on purpose: an unknown mnemonic, an operand of the wrong kind or a modifier that nobody consumed
is an AssemblyError that names the line. A wrong guess would be a silent wrong result.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .access import (
    WIDTHS,
    Change,
    Fetch,
    Put,
    Step,
    register_set,
    scalar_result,
    scalar_source,
    vector_result,
    vector_source,
)
from .errors import AssemblyError
from .instructions import SCALAR, SPECIAL, VECTOR
from .instructions.lanes import dpp_control, sdwa_change, sdwa_merge
from .machine import Machine
from .operands import VCC, Operand, Parsed, parse
from .packed import caller, decode_packed
from .rules import Rule
from .text import Line

_SUFFIXES = ("_e32", "_e64", "_dpp", "_sdwa")
_VCC = Operand("s", VCC, 2, "vcc")


@dataclass(frozen=True)
class Instruction:
    """A decoded line. registers: the set whose use before its wait would be a mistake; named: all that
    the text names."""

    step: Step
    registers: int
    named: int


_known: dict[tuple[str, str, str], Instruction] = {}


def decode(line: Line, target: str) -> Instruction:
    """The step of one line (branches, barriers and ends belong to the scheduler).

    Steps know nothing of their place, so equal lines share one.
    """
    key = (line.mnemonic, line.arguments, target)
    if key not in _known:
        _known[key] = _decode(line, target)
    return _known[key]


def _decode(line: Line, target: str) -> Instruction:
    parsed = parse(line)
    name, form = split_name(line.mnemonic)
    named = registers = register_set(parsed.operands)
    if (decoder := SPECIAL.get(name) or SPECIAL.get(f"{name}@{target}")) is not None:
        step = decoder(parsed)
        if name.startswith(("ds_", "global_", "buffer_", "scratch_", "s_load", "s_buffer_load")):
            registers = _sources_of_memory(name, parsed)
    elif (rule := VECTOR.get(name) or VECTOR.get(f"{name}@{target}")) is not None:
        step = _decode_vector(parsed, rule, form)
    elif name in SCALAR:
        step = _decode_scalar(parsed, SCALAR[name])
    else:
        raise AssemblyError(
            f"{line}: {line.mnemonic} is unknown; describe it with one function in "
            "pagegate/amdgcn/instructions (docs/amdgcn.md, 'A new instruction')"
        )
    parsed.finish()
    return Instruction(step, registers, named)


def split_name(mnemonic: str) -> tuple[str, str]:
    """Mnemonic without its encoding suffix, and the suffix."""
    for suffix in _SUFFIXES:
        if mnemonic.endswith(suffix):
            return mnemonic[: -len(suffix)], suffix
    return mnemonic, ""


def _sources_of_memory(name: str, parsed: Parsed) -> int:
    """A load's destination may still be in flight: operations of one kind return in order."""
    if "_atomic_" in name or "_rtn_" in name:
        returns = "_rtn_" in name or "sc0" in parsed.line.arguments.split()
        first = 1 if returns and not name.startswith("buffer") else 0
        return register_set(parsed.operands[first:])
    loads = "_load" in name or name.startswith(("ds_read", "ds_bpermute", "ds_permute", "ds_swizzle"))
    to_register = (
        loads and not name.startswith("global_load_lds") and "lds" not in parsed.line.arguments.split()
    )
    return register_set(parsed.operands[1:] if to_register else parsed.operands)


def _decode_scalar(parsed: Parsed, rule: Rule) -> Step:
    _need_operands(parsed, len(rule.results) + sum(not s.startswith("+") for s in rule.sources))
    function = rule.function
    puts = [scalar_result(parsed, o, k) for o, k in zip(parsed.operands, rule.results, strict=False)]
    left = parsed.operands[len(rule.results) :]
    fetches: list[Fetch] = []
    for kind in rule.sources:
        if kind == "+scc":
            fetches.append(lambda m: m.scc)
        elif kind.startswith("+dst"):
            fetches.append(scalar_source(parsed, parsed.operands[0], kind.partition(":")[2]))
        else:
            fetches.append(scalar_source(parsed, left.pop(0), kind))
    call = caller(function, fetches)
    if not puts:
        return lambda m: m.put_scc(call(m))
    put = puts[0]
    if rule.scc == "given":

        def with_scc(m: Machine) -> None:
            value, scc = call(m)
            put(m, value)
            m.put_scc(scc)

        return with_scc
    if rule.scc == "nonzero":

        def with_nonzero(m: Machine) -> None:
            value = call(m)
            put(m, value)
            m.put_scc(value != 0)

        return with_nonzero
    return lambda m: put(m, call(m))


def _decode_vector(parsed: Parsed, rule: Rule, form: str) -> Step:
    named = [kind for kind in rule.sources if not kind.startswith("+")]
    _need_operands(parsed, len(rule.results) + len(named))
    targets = parsed.operands[: len(rule.results)]
    operands = parsed.operands[len(rule.results) :]
    if rule.packed:
        return decode_packed(parsed, rule, targets[0], operands)
    changes = _changes(parsed, rule, form, len(operands))
    raw, wrap = dpp_control(parsed, operands[0]) if form == "_dpp" else (None, None)
    puts = _results(parsed, rule, targets, form, len(operands))
    fetches: list[Fetch] = []
    for kind in rule.sources:
        if kind == "+vcc":
            fetches.append(vector_source(parsed, _VCC, "mask"))
        elif kind.startswith("+dst"):
            fetches.append(vector_source(parsed, targets[0], kind.partition(":")[2]))
        else:
            position = _position(fetches, rule)
            shuffled = raw if position == 0 else None
            fetches.append(vector_source(parsed, operands[position], kind, changes[position], shuffled))
    constants = [parsed.take_number(name) for name in rule.extra]
    function = rule.function
    if rule.clamped is not None and parsed.take("clamp"):
        function = rule.clamped
    call = caller(function, fetches, constants)
    step = _finish(parsed, rule, call, puts)
    return step if wrap is None else wrap(step)


def _position(fetches: list[Fetch], rule: Rule) -> int:
    """Which named source comes next."""
    return sum(not kind.startswith("+") for kind in rule.sources[: len(fetches)])


def _need_operands(parsed: Parsed, count: int) -> None:
    if len(parsed.operands) != count:
        raise AssemblyError(f"{parsed.line}: required {count} operands, found {len(parsed.operands)}")


def _finish(parsed: Parsed, rule: Rule, call: Fetch, puts: list[Put]) -> Step:
    """Clamp and output multiplier, then the writes."""
    clamp, scale = parsed.take("clamp"), _output_scale(parsed)
    if clamp or scale is not None:
        if rule.results[0] != "f32":
            raise AssemblyError(f"{parsed.line}: clamp and output scale are modelled for f32 results only")
        plain = call

        def scaled(m: Machine) -> Any:
            value = plain(m) if scale is None else plain(m) * scale
            return np.clip(np.where(np.isnan(value), np.float32(0), value), 0, 1) if clamp else value

        call = scaled
    if len(puts) == 1:
        (put,) = puts
        return lambda m: put(m, call(m))

    def step(m: Machine) -> None:
        for put, value in zip(puts, call(m), strict=True):
            put(m, value)

    return step


def _output_scale(parsed: Parsed) -> Any:
    if factor := parsed.take("mul"):
        return np.float32(int(factor))
    return np.float32(0.5) if parsed.take("div") else None


def _changes(parsed: Parsed, rule: Rule, form: str, count: int) -> list[Change | None]:
    """How SDWA or op_sel rework each source's raw bits."""
    changes: list[Change | None] = [None] * max(count, 1)
    if form == "_sdwa":
        for position in range(count):
            select = parsed.take(f"src{position}_sel", "DWORD")
            changes[position] = sdwa_change(select, parsed.operands[len(rule.results) + position].sign_extend)
        return changes
    flags = parsed.modifiers.get("op_sel")
    if flags is not None:
        selected = parsed.take_flags("op_sel", count + 1, 0)
        parsed.modifiers["op_sel_result"] = str(selected[count])
        named = [kind for kind in rule.sources if not kind.startswith("+")]
        for position, (kind, high) in enumerate(zip(named, selected, strict=False)):
            if high and WIDTHS.get(kind, 0) != 16:
                raise AssemblyError(f"{parsed.line}: op_sel on a source of kind {kind} is not modelled")
            if high:
                changes[position] = lambda bits: bits >> np.uint32(16)
    return changes


def _results(parsed: Parsed, rule: Rule, targets: list[Operand], form: str, count: int) -> list[Put]:
    puts = [vector_result(parsed, o, k) for o, k in zip(targets, rule.results, strict=True)]
    high = parsed.take("op_sel_result", "0") == "1"
    if high and WIDTHS.get(rule.results[0], 0) != 16:
        raise AssemblyError(f"{parsed.line}: op_sel on a result of kind {rule.results[0]} is not modelled")
    if high:
        puts[0] = sdwa_merge(targets[0].index, "WORD_1", "UNUSED_PRESERVE", parsed)
    if form == "_sdwa" and rule.results[0] != "mask":
        select = parsed.take("dst_sel", "DWORD")
        unused = parsed.take("dst_unused", "UNUSED_PAD")
        if select != "DWORD":
            puts[0] = sdwa_merge(targets[0].index, select, unused, parsed)
    return puts
