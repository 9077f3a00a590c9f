"""Matrix products (MFMA): D = A B + C for the whole wave, whatever EXEC says.

Layouts (pinned in the tests by products of random matrices through Triton), M the tile's side: lane l
holds row l % M of A and column l % M of B, each with K / (64 / M) consecutive values of k that begin at
(l // M) times as many. Of C and D it holds column l % M, in groups of four rows: register r is row
4 * (64 // M) * (r // 4) + 4 * (l // M) + r % 4. Products and sums are in float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pagegate.amdgcn.access import Step, need_count
from pagegate.amdgcn.errors import AssemblyError
from pagegate.amdgcn.formats import TABLES, from_bf16
from pagegate.amdgcn.machine import LANES, Array, Machine
from pagegate.amdgcn.operands import Operand, Parsed, constant_bits
from pagegate.amdgcn.rules import SPECIAL


def _as_f16(words: Array) -> Array:
    return words.view(np.float16).astype(np.float32)


def _as_bf16(words: Array) -> Array:
    return from_bf16(words.view(np.uint16))


def _as_f32(words: Array) -> Array:
    return words.view(np.float32)


def _as_i8(words: Array) -> Array:
    # sums stay below 2**31 and are exact in f64
    return words.view(np.int8).astype(np.float64)


def _as_table(table: Array) -> Callable[[Array], Array]:
    return lambda words: table[words.view(np.uint8)]


def _decoder(
    side: int,
    depth: int,
    width: int,
    reads: tuple[Callable[[Array], Array], Callable[[Array], Array]],
    kind: str = "f32",
) -> Any:
    """The decoder of one shape: side x side x depth, operands of `width` bits, sums of a kind (f32, i32)."""
    blocks = LANES // side
    words = depth // blocks * width // 32
    rows = side * side // LANES

    def fetch(operand: Operand, read: Callable[[Array], Array]) -> Callable[[Machine], Array]:
        def matrix(m: Machine) -> Array:
            raw = np.ascontiguousarray(m.vector[operand.index : operand.end].transpose(1, 2, 0))
            values = read(raw).reshape(m.shape.waves, blocks, side, depth // blocks)
            return values.transpose(0, 2, 1, 3).reshape(m.shape.waves, side, depth)

        return matrix

    def decode(parsed: Parsed) -> Step:
        target, left, right, addend = parsed.operands
        for operand, count in ((target, rows), (left, words), (right, words), (addend, rows)):
            if operand.kind not in ("v", "c") or (operand.kind == "c" and operand is not addend):
                raise AssemblyError(f"{parsed.line}: required vector registers, found {operand.text!r}")
            need_count(parsed, operand, count)
        a, b = fetch(left, reads[0]), fetch(right, reads[1])
        dtype = np.float32 if kind == "f32" else np.int32
        constant = None
        if addend.kind == "c":
            constant = np.uint32(constant_bits(addend.text, kind == "f32", 32)).view(dtype)

        def step(m: Machine) -> None:
            product = np.matmul(a(m), b(m).transpose(0, 2, 1)).astype(dtype, copy=False)
            grouped = product.reshape(m.shape.waves, rows // 4, blocks, 4, side)
            values = grouped.transpose(1, 3, 0, 2, 4).reshape(rows, m.shape.waves, LANES)
            old = m.vector[addend.index : addend.end].view(dtype) if constant is None else constant
            m.put_vector_unmasked(target.index, (values + old).view(np.uint32))

        return step

    return decode


def _mixed_decoder(side: int, depth: int) -> Any:
    """Float8 products of gfx950 whose formats are modifiers (cbsz of A, blgp of B): 0 fp8, 1 bf8."""

    def decode(parsed: Parsed) -> Step:
        names = []
        for modifier in ("cbsz", "blgp"):
            code = parsed.take_number(modifier)
            if code > 1:
                raise AssemblyError(f"{parsed.line}: {modifier}:{code} (6 or 4 bits) is not modelled")
            names.append(("fp8", "bf8")[code])
        left, right = (_as_table(TABLES["gfx950", name]) for name in names)
        step: Step = _decoder(side, depth, 8, (left, right))(parsed)
        return step

    return decode


SPECIAL["v_mfma_f32_16x16x128_f8f6f4"] = _mixed_decoder(16, 128)
SPECIAL["v_mfma_f32_32x32x64_f8f6f4"] = _mixed_decoder(32, 64)

_READS: dict[str, tuple[int, Callable[[Array], Array]]] = {
    "f16": (16, _as_f16),
    "bf16": (16, _as_bf16),
    "f32": (32, _as_f32),
}
for _side, _depth, _kind in (
    (16, 4, "f32"), (32, 2, "f32"),
    (16, 16, "f16"), (32, 8, "f16"), (16, 16, "bf16"), (32, 8, "bf16"),
    (16, 32, "f16"), (32, 16, "f16"), (16, 32, "bf16"), (32, 16, "bf16"),
):  # fmt: skip
    _width, _read = _READS[_kind]
    SPECIAL[f"v_mfma_f32_{_side}x{_side}x{_depth}_{_kind}"] = _decoder(_side, _depth, _width, (_read, _read))

for _side, _depth in ((16, 32), (32, 16), (16, 64), (32, 32)):
    _name = f"v_mfma_i32_{_side}x{_side}x{_depth}_i8"
    SPECIAL[_name] = _decoder(_side, _depth, 8, (_as_i8, _as_i8), "i32")

for _target in ("gfx942", "gfx950"):
    for _side, _depth in ((16, 32), (32, 16)):
        for _left in ("fp8", "bf8"):
            for _right in ("fp8", "bf8"):
                _pair = (_as_table(TABLES[_target, _left]), _as_table(TABLES[_target, _right]))
                _name = f"v_mfma_f32_{_side}x{_side}x{_depth}_{_left}_{_right}@{_target}"
                SPECIAL[_name] = _decoder(_side, _depth, 8, _pair)
