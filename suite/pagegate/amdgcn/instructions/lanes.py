"""Data that moves between lanes or between parts of a register: DPP, SDWA, lane reads, swaps.

Source: "CDNA3 Instruction Set Architecture", sections on DPP and SDWA, and the CDNA4 document on
v_permlane16_swap and v_permlane32_swap.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pagegate.amdgcn.access import Change, Fetch, Put, Step, need_count, vector_source
from pagegate.amdgcn.errors import AssemblyError
from pagegate.amdgcn.machine import LANES, Array, Machine
from pagegate.amdgcn.operands import Operand, Parsed, constant_bits
from pagegate.amdgcn.rules import special

_LANE = np.arange(LANES)
_IN_ROW = _LANE % 16
_ROW = _LANE // 16
_PARTS = {
    "BYTE_0": (0, 8),
    "BYTE_1": (8, 8),
    "BYTE_2": (16, 8),
    "BYTE_3": (24, 8),
    "WORD_0": (0, 16),
    "WORD_1": (16, 16),
}


def dpp_control(parsed: Parsed, operand: Operand) -> tuple[Fetch, Callable[[Step], Step]]:
    """How the first source is fetched, and a wrapper that leaves out lanes that must not be written."""
    if operand.kind != "v":
        raise AssemblyError(f"{parsed.line}: required a vector register under DPP, found {operand.text!r}")
    source, valid = _dpp_source(parsed)
    zero_fill = parsed.take("bound_ctrl") != ""
    rows, banks = parsed.take_number("row_mask", 15), parsed.take_number("bank_mask", 15)
    allowed = ((rows >> _ROW) & 1).astype(bool) & ((banks >> (_IN_ROW // 4)) & 1).astype(bool)
    register = operand.index

    def fetch(m: Machine) -> Array:
        # a lane that EXEC switches off is as invalid a source as one outside of the row
        readable = valid & m.enabled[:, source]
        return np.where(readable, m.vector[register][:, source], np.uint32(0))

    def wrap(step: Step) -> Step:
        def narrowed(m: Machine) -> None:
            full = m.full
            m.lanes = m.enabled & allowed
            if not zero_fill:
                m.lanes = m.lanes & valid & m.enabled[:, source]
            m.full = False
            step(m)
            m.lanes, m.full = m.enabled, full

        return narrowed

    return fetch, wrap


def _dpp_source(parsed: Parsed) -> tuple[Array, Array]:
    """For each lane, the lane it reads (clipped) and whether that exists."""
    always = np.ones(LANES, bool)
    row_start = _ROW * 16
    if text := parsed.take("quad_perm"):
        order = np.array([int(part) for part in text.strip("[]").split(",")])
        return _LANE // 4 * 4 + order[_LANE % 4], always
    if text := parsed.take("row_shl"):
        at = _IN_ROW + int(text)
        return row_start + np.minimum(at, 15), at < 16
    if text := parsed.take("row_shr"):
        at = _IN_ROW - int(text)
        return row_start + np.maximum(at, 0), at >= 0
    if text := parsed.take("row_ror"):
        return row_start + (_IN_ROW - int(text)) % 16, always
    if parsed.take("row_mirror"):
        return row_start + 15 - _IN_ROW, always
    if parsed.take("row_half_mirror"):
        return _LANE // 8 * 8 + 7 - _LANE % 8, always
    if text := parsed.take("row_newbcast"):
        return row_start + int(text), always
    if text := parsed.take("row_bcast"):
        if text == "15":
            return np.maximum(row_start - 1, 0), _ROW > 0
        return np.full(LANES, 31), _LANE > 31
    for name, shift, wraps in (
        ("wave_shl", 1, False),
        ("wave_rol", 1, True),
        ("wave_shr", -1, False),
        ("wave_ror", -1, True),
    ):
        if parsed.take(name):
            at = _LANE + shift
            return at % LANES, always if wraps else (at >= 0) & (at < LANES)
    raise AssemblyError(
        f"{parsed.line}: the DPP control is not modelled; see docs/amdgcn.md, 'A new modifier'"
    )


def sdwa_change(select: str, sign_extend: bool) -> Change | None:
    """The part of a source that SDWA selects."""
    if select == "DWORD":
        return None
    shift, width = _PARTS[select]
    left, right = np.uint32(32 - shift - width), np.uint32(32 - width)
    if sign_extend:
        return lambda bits: ((bits << left).view(np.int32) >> right.view(np.int32)).view(np.uint32)
    return lambda bits: (bits << left) >> right


def sdwa_merge(index: int, select: str, unused: str, parsed: Parsed) -> Put:
    """Puts a result into the selected part of a register; the rest is cleared, extended or kept."""
    shift, width = _PARTS[select]
    mask = np.uint32(((1 << width) - 1) << shift)
    by = np.uint32(shift)
    if unused not in ("UNUSED_PAD", "UNUSED_PRESERVE"):
        raise AssemblyError(f"{parsed.line}: dst_unused:{unused} is not modelled")
    keep = unused == "UNUSED_PRESERVE"

    def put(m: Machine, value: Any) -> None:
        bits = value.view(f"u{value.dtype.itemsize}").astype(np.uint32)
        placed = (bits << by) & mask
        m.put_vector(index, placed | (m.vector[index] & ~mask) if keep else placed)

    return put


def _lane_number(parsed: Parsed, operand: Operand) -> Fetch:
    """A lane per wave, from a scalar register or a constant."""
    if operand.kind == "c":
        constant = constant_bits(operand.text, False, 32) % LANES
        return lambda m: constant
    if operand.kind != "s":
        raise AssemblyError(f"{parsed.line}: required a lane number, found {operand.text!r}")
    return lambda m: m.scalar[:, operand.index] % LANES


@special("v_readlane_b32")
def readlane(parsed: Parsed) -> Step:
    target, source, which = parsed.operands
    lane = _lane_number(parsed, which)

    def step(m: Machine) -> None:
        m.put_scalar(target.index, m.vector[source.index][np.arange(m.shape.waves), lane(m)])

    return step


@special("v_writelane_b32")
def writelane(parsed: Parsed) -> Step:
    target, value, which = parsed.operands
    lane = _lane_number(parsed, which)
    constant = np.uint32(constant_bits(value.text, False, 32)) if value.kind == "c" else None

    def step(m: Machine) -> None:
        waves = np.flatnonzero(m.active)
        lanes = np.broadcast_to(lane(m), m.shape.waves)[waves]
        m.vector[target.index][waves, lanes] = m.scalar[waves, value.index] if constant is None else constant

    return step


@special("v_readfirstlane_b32")
def readfirstlane(parsed: Parsed) -> Step:
    """The lowest lane that is switched on, or lane 0 if none is."""
    target, source = parsed.operands
    need_count(parsed, source, 1)

    def step(m: Machine) -> None:
        first = m.enabled.argmax(axis=1)
        m.put_scalar(target.index, m.vector[source.index][np.arange(m.shape.waves), first])

    return step


@special("v_swap_b32")
def swap(parsed: Parsed) -> Step:
    first, second = (operand.index for operand in parsed.operands)
    for operand in parsed.operands:
        need_count(parsed, operand, 1)

    def step(m: Machine) -> None:
        a = m.vector[first].copy()
        m.put_vector(first, m.vector[second].copy())
        m.put_vector(second, a)

    return step


def _swap(parsed: Parsed, rows: int) -> Step:
    """Odd groups of `rows` lanes of the first register change places with even ones of the second."""
    first, second = (operand.index for operand in parsed.operands)
    odd = _LANE // rows % 2 == 1

    def step(m: Machine) -> None:
        a, b = m.vector[first].copy(), m.vector[second].copy()
        m.put_vector(first, np.where(odd, np.roll(b, rows, axis=1), a))
        m.put_vector(second, np.where(odd, b, np.roll(a, -rows, axis=1)))

    return step


@special("v_permlane16_swap_b32")
def permlane16_swap(parsed: Parsed) -> Step:
    return _swap(parsed, 16)


@special("v_permlane32_swap_b32")
def permlane32_swap(parsed: Parsed) -> Step:
    return _swap(parsed, 32)


@special("v_pk_mov_b32")
def pk_mov(parsed: Parsed) -> Step:
    """The low result from the first source, the high one from the second; op_sel picks their words."""
    target, *sources = parsed.operands
    words = parsed.take_flags("op_sel", 2, 0)
    parsed.take_flags("op_sel_hi", 2, 1)
    for operand in sources:
        need_count(parsed, operand, 2)
    fetches = []
    for operand, word in zip(sources, words, strict=True):
        chosen = Operand(operand.kind, operand.index + word, 1, operand.text)
        fetches.append(vector_source(parsed, chosen, "b32"))
    first, second = fetches

    def step(m: Machine) -> None:
        a, b = np.array(first(m)), np.array(second(m))
        m.put_vector(target.index, a)
        m.put_vector(target.index + 1, b)

    return step
