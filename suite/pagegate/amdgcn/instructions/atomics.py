"""Atomic instructions on global memory, raw buffers and LDS.

Source: "CDNA3 Instruction Set Architecture". Lanes take their turns in order, waves too; the hardware
may choose another order. With sc0 (or "rtn") the value from before lands in a register like a load's.
Floating-point sums round to nearest; min and max are those of numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from pagegate.amdgcn.access import Fetch, Step, need_count
from pagegate.amdgcn.errors import AssemblyError
from pagegate.amdgcn.formats import from_bf16, to_bf16
from pagegate.amdgcn.machine import Array, Machine
from pagegate.amdgcn.operands import Operand, Parsed
from pagegate.amdgcn.rules import SPECIAL

from .memory import buffer_place, global_address, land, stored, vector_data

# old [n], operand [n] -> new [n], of one dtype
Update: TypeAlias = Callable[[Any, Any], Any]


def _pk_bf16(old: Any, operand: Any) -> Any:
    return to_bf16(from_bf16(old) + from_bf16(operand))


_ARITHMETIC: dict[str, Update] = {
    "swap": lambda old, operand: operand,
    "add": lambda old, operand: old + operand,
    "sub": lambda old, operand: old - operand,
    "and": lambda old, operand: old & operand,
    "or": lambda old, operand: old | operand,
    "xor": lambda old, operand: old ^ operand,
    "min": np.minimum,
    "max": np.maximum,
    "inc": lambda old, operand: np.where(old >= operand, old * 0, old + old.dtype.type(1)),
    "dec": lambda old, operand: np.where((old == 0) | (old > operand), operand, old - old.dtype.type(1)),
}
_PLAIN = ("add", "sub", "and", "or", "xor", "inc", "dec")
# name in global and buffer instructions -> update, dtype of 32-bit operands, dtype of 64-bit ones
_GLOBAL = {
    **{name: (name, np.uint32, np.uint64) for name in (*_PLAIN, "swap")},
    "smin": ("min", np.int32, np.int64), "smax": ("max", np.int32, np.int64),
    "umin": ("min", np.uint32, np.uint64), "umax": ("max", np.uint32, np.uint64),
}  # fmt: skip
_FLOATS: dict[str, tuple[Update, Any, int]] = {
    "add_f32": (_ARITHMETIC["add"], np.float32, 4),
    "add_f64": (_ARITHMETIC["add"], np.float64, 8),
    "min_f64": (np.fmin, np.float64, 8),
    "max_f64": (np.fmax, np.float64, 8),
    "pk_add_f16": (_ARITHMETIC["add"], np.float16, 4),
    "pk_add_bf16": (_pk_bf16, np.uint16, 4),
}


def _typed(update: Update, dtype: Any) -> Update:
    """An update of words (uint32 [words]) from one of values."""
    return lambda old, data: np.ascontiguousarray(update(old.view(dtype), data.view(dtype))).view(np.uint32)


def _compare(old: Array, data: Array) -> Array:
    """data: the new value, then what the old one must be."""
    return data[: len(old)] if np.array_equal(old, data[len(old) :]) else old


def _global(update: Update, size: int, operands: int = 1) -> Callable[[Parsed], Step]:
    def decode(parsed: Parsed) -> Step:
        returns = bool(parsed.take("sc0"))
        if len(parsed.operands) != 3 + returns:
            raise AssemblyError(f"{parsed.line}: required a result with sc0, and none without")
        target = parsed.operands.pop(0) if returns else None
        vector, source, base = parsed.operands
        data = vector_data(parsed, source, size * operands)
        address = global_address(parsed, vector, base)
        return _step(lambda m: (address(m), m.lanes), data, update, size, _register(parsed, target, size))

    return decode


def _buffer(update: Update, size: int, operands: int = 1) -> Callable[[Parsed], Step]:
    def decode(parsed: Parsed) -> Step:
        returns = bool(parsed.take("sc0"))
        source, *rest = parsed.operands
        data = vector_data(parsed, source, size * operands)
        locate = buffer_place(parsed, rest, size)

        def place(m: Machine) -> tuple[Array, Array]:
            address, fits = locate(m)
            return address, m.lanes & fits

        # the result replaces the data
        target = Operand("v", source.index, size // 4, source.text) if returns else None
        return _step(place, data, update, size, _register(parsed, target, size))

    return decode


def _register(parsed: Parsed, target: Operand | None, size: int) -> int | None:
    if target is None:
        return None
    if target.kind != "v":
        raise AssemblyError(f"{parsed.line}: required vector registers, found {target.text!r}")
    need_count(parsed, target, size // 4)
    return target.index


def _step(
    place: Callable[[Machine], tuple[Array, Array]],
    data: Fetch,
    update: Update,
    size: int,
    target: int | None,
) -> Step:
    def step(m: Machine) -> None:
        address, lanes = place(m)
        old = m.memory.update(address, data(m), size, lanes, m.findings, update)
        if target is None:
            stored(m)
        else:
            old[~lanes] = 0  # beyond num_records; masked lanes keep their register
            land(m, target, old, "vmcnt")

    return step


for _form, _decoder in (("global", _global), ("buffer", _buffer)):
    for _name, (_function, _narrow, _wide) in _GLOBAL.items():
        SPECIAL[f"{_form}_atomic_{_name}"] = _decoder(_typed(_ARITHMETIC[_function], _narrow), 4)
        SPECIAL[f"{_form}_atomic_{_name}_x2"] = _decoder(_typed(_ARITHMETIC[_function], _wide), 8)
    for _name, (_update, _dtype, _size) in _FLOATS.items():
        SPECIAL[f"{_form}_atomic_{_name}"] = _decoder(_typed(_update, _dtype), _size)
    SPECIAL[f"{_form}_atomic_cmpswap"] = _decoder(_compare, 4, 2)
    SPECIAL[f"{_form}_atomic_cmpswap_x2"] = _decoder(_compare, 8, 2)


# LDS ----------------------------------------------------------------------------------------------


def _local(update: Update, size: int, returns: bool, operands: int = 1) -> Callable[[Parsed], Step]:
    def decode(parsed: Parsed) -> Step:
        if len(parsed.operands) != 1 + operands + returns:
            raise AssemblyError(f"{parsed.line}: required {1 + operands + returns} operands")
        target = _register(parsed, parsed.operands.pop(0) if returns else None, size)
        where, *sources = parsed.operands
        if where.kind != "v":
            raise AssemblyError(f"{parsed.line}: required a vector register, found {where.text!r}")
        offset = parsed.take_number("offset")
        data = [vector_data(parsed, source, size) for source in sources]

        def step(m: Machine) -> None:
            address = m.vector[where.index].astype(np.int64) + offset
            values = np.concatenate([fetch(m) for fetch in data], axis=-1)
            old = m.local.update(address, values, size, m.lanes, update)
            if target is None:
                stored(m, counter="lgkmcnt")
            else:
                land(m, target, old, "lgkmcnt")

        return step

    return decode


def _compare_store(old: Array, data: Array) -> Array:
    """data: what the old value must be, then the new one."""
    return data[len(old) :] if np.array_equal(old, data[: len(old)]) else old


# update, letter in the name
_LOCAL = [
    *((name, "b" if name in ("and", "or", "xor") else "u") for name in _PLAIN),
    *((name, letter) for name in ("min", "max") for letter in "iu"),
]
for _returns, _suffix in ((False, ""), (True, "_rtn")):
    for _bits in (32, 64):
        for _name, _letter in _LOCAL:
            _number: Any = np.dtype(f"{'i' if _letter == 'i' else 'u'}{_bits // 8}").type
            _update = _typed(_ARITHMETIC[_name], _number)
            SPECIAL[f"ds_{_name}{_suffix}_{_letter}{_bits}"] = _local(_update, _bits // 8, _returns)
        SPECIAL[f"ds_cmpst{_suffix}_b{_bits}"] = _local(_compare_store, _bits // 8, _returns, 2)
    SPECIAL[f"ds_add{_suffix}_f32"] = _local(_typed(_ARITHMETIC["add"], np.float32), 4, _returns)
for _bits in (32, 64):
    _number = np.dtype(f"u{_bits // 8}").type
    SPECIAL[f"ds_wrxchg_rtn_b{_bits}"] = _local(_typed(_ARITHMETIC["swap"], _number), _bits // 8, True)
