"""Scratch memory: private words of each lane, where registers are spilled to."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pagegate.amdgcn.access import Fetch, Step, need_count
from pagegate.amdgcn.machine import LANES, Array, Machine
from pagegate.amdgcn.operands import Operand, Parsed, constant_bits
from pagegate.amdgcn.rules import SPECIAL

from .memory import land, stored, vector_data

_WORDS = {"dword": 1, "dwordx2": 2, "dwordx3": 3, "dwordx4": 4}
_LANE = np.arange(LANES)


def _offset(parsed: Parsed, vector: Operand, base: Operand) -> Fetch:
    """[wave, lane] byte offsets into each lane's scratch."""
    fixed = parsed.take_number("offset")
    for name in ("sc0", "sc1", "nt"):
        parsed.take(name)

    def fetch(m: Machine) -> Array:
        total = np.full((m.shape.waves, LANES), fixed, np.int64)
        if vector.kind == "v":
            total += m.vector_i[vector.index]
        if base.kind == "s":
            total += m.scalar_i[:, base.index, None]
        elif base.kind == "c":
            total += constant_bits(base.text, False, 32)
        return total

    return fetch


def _check(m: Machine, offset: Array, words: int) -> Array:
    """Word indices, and a finding where they leave the lane's scratch (they are then clipped)."""
    size = m.shape.private_bytes
    bad = m.lanes & ((offset < 0) | (offset + 4 * words > size) | (offset % 4 != 0))
    if bad.any():
        m.findings.add("out-of-bounds access", f"scratch byte {int(offset[bad][0])} of {size}")
    return np.clip(offset // 4, 0, max(size // 4 - words, 0))


def _load(words: int) -> Callable[[Parsed], Step]:
    def decode(parsed: Parsed) -> Step:
        target, vector, base = parsed.operands
        need_count(parsed, target, words)
        offset = _offset(parsed, vector, base)

        def step(m: Machine) -> None:
            first = _check(m, offset(m), words)
            waves = np.arange(m.shape.waves)[:, None]
            data = np.stack([m.private[first + word, waves, _LANE] for word in range(words)], axis=-1)
            land(m, target.index, data, "vmcnt")

        return step

    return decode


def _store(words: int) -> Callable[[Parsed], Step]:
    def decode(parsed: Parsed) -> Step:
        vector, source, base = parsed.operands
        offset, data = _offset(parsed, vector, base), vector_data(parsed, source, 4 * words)

        def step(m: Machine) -> None:
            first = _check(m, offset(m), words)
            values = data(m)
            waves, lanes = np.nonzero(m.lanes)
            for word in range(words):
                m.private[first[waves, lanes] + word, waves, lanes] = values[waves, lanes, word]
            stored(m)

        return step

    return decode


for _name, _count in _WORDS.items():
    SPECIAL[f"scratch_load_{_name}"] = _load(_count)
    SPECIAL[f"scratch_store_{_name}"] = _store(_count)
