"""Scalar comparisons, changes of EXEC, waits, and instructions without an effect on results.

Source: "CDNA3 Instruction Set Architecture", SOPC, SOPK, SOP1 and SOPP. Branches, barriers and ends
belong to the scheduler.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pagegate.amdgcn.access import Step
from pagegate.amdgcn.errors import AssemblyError
from pagegate.amdgcn.machine import Machine
from pagegate.amdgcn.operands import EXEC, Parsed
from pagegate.amdgcn.rules import SCALAR, Rule, scalar, special

from .scalar import LOGICAL

_U32 = np.uint32


def _saving(function: Callable[[Any, Any], Any]) -> Callable[[Parsed], Step]:
    """EXEC goes to the first operand; function(source, EXEC) becomes EXEC."""

    def decode(parsed: Parsed) -> Step:
        target, source = parsed.operands
        if source.kind != "s" or target.kind != "s":
            raise AssemblyError(f"{parsed.line}: required scalar registers")

        def step(m: Machine) -> None:
            old = m.scalar64[:, EXEC // 2].copy()
            new = function(m.scalar64[:, source.index // 2], old)
            m.put_scalar64(target.index, old)
            m.put_scalar64(EXEC, new)
            m.put_scc(new != 0)

        return step

    return decode


for _name, _function in LOGICAL.items():
    special(f"s_{_name}_saveexec_b64")(_saving(_function))


_RELATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "eq": np.equal,
    "lg": np.not_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "lt": np.less,
    "le": np.less_equal,
}
for _name, _relation in _RELATIONS.items():
    for _kind in ("i32", "u32"):
        SCALAR[f"s_cmp_{_name}_{_kind}"] = Rule(_relation, (), (_kind, _kind))


def _immediate(relation: Callable[[Any, Any], Any], dtype: Any) -> Callable[[Any, Any], Any]:
    """Comparison with a 16-bit constant, extended by its sign or with zeros."""
    return lambda a, b: relation(a, np.asarray(b).astype(dtype).astype(np.asarray(a).dtype))


for _name, _relation in _RELATIONS.items():
    for _kind, _dtype in (("i32", np.int16), ("u32", np.uint16)):
        SCALAR[f"s_cmpk_{_name}_{_kind}"] = Rule(_immediate(_relation, _dtype), (), (_kind, _kind))
for _name in ("eq", "lg"):
    SCALAR[f"s_cmp_{_name}_u64"] = Rule(_RELATIONS[_name], (), ("u64", "u64"))


@scalar("s_bitcmp0_b32", "= b32 u32")
def bitcmp0(a: Any, b: Any) -> Any:
    return (a >> (b & _U32(31))) & _U32(1) == 0


@scalar("s_bitcmp1_b32", "= b32 u32")
def bitcmp1(a: Any, b: Any) -> Any:
    return (a >> (b & _U32(31))) & _U32(1) == 1


@scalar("s_bitset0_b32", "b32 = u32 +dst:b32")
def bitset0(a: Any, old: Any) -> Any:
    return old & ~(_U32(1) << (a & _U32(31)))


@scalar("s_bitset1_b32", "b32 = u32 +dst:b32")
def bitset1(a: Any, old: Any) -> Any:
    return old | (_U32(1) << (a & _U32(31)))


@special("s_nop s_setprio s_sleep s_sched_barrier s_icache_inv s_code_end s_inst_prefetch")
def nothing(parsed: Parsed) -> Step:
    """Instructions without an effect on results."""
    return lambda m: None


@special("s_waitcnt")
def waitcnt(parsed: Parsed) -> Step:
    limits = [(name, parsed.take_number(name)) for name in ("vmcnt", "lgkmcnt") if name in parsed.modifiers]
    parsed.take("expcnt")

    def step(m: Machine) -> None:
        for name, allowed in limits:
            m.waits.wait(name, allowed)

    return step
