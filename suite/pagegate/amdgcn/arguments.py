"""The argument block of a launch and the registers that waves start with.

Source: LLVM's "User Guide for AMDGPU Backend": initial kernel execution state (user SGPRs in their
order, then workgroup ids), preloaded kernel arguments, hidden arguments of code object V5.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np

from .errors import LaunchError
from .machine import LANES, Array, Machine
from .text import Argument, Listing

_FILL = 0xED  # what hidden arguments hold that nobody should need
_USER_REGISTERS = (
    ("user_sgpr_private_segment_buffer", 4),
    ("user_sgpr_dispatch_ptr", 2),
    ("user_sgpr_queue_ptr", 2),
    ("user_sgpr_kernarg_segment_ptr", 2),
    ("user_sgpr_dispatch_id", 2),
    ("user_sgpr_flat_scratch_init", 2),
    ("user_sgpr_private_segment_size", 1),
)
_FORMATS = {
    "i1": "<?", "i8": "<b", "i16": "<h", "i32": "<i", "i64": "<q",
    "u1": "<?", "u8": "<B", "u16": "<H", "u32": "<I", "u64": "<Q",
    "fp16": "<e", "f16": "<e", "fp32": "<f", "f32": "<f", "fp64": "<d", "f64": "<d",
}  # fmt: skip


@dataclass(frozen=True)
class Value:
    """One explicit argument: its Triton type and its value (an address for pointers)."""

    name: str
    kind: str
    value: float | int


def pack(listing: Listing, values: list[Value], grid: tuple[int, int, int], group_size: int) -> Array:
    """The bytes of the argument block."""
    explicit = [argument for argument in listing.arguments if not argument.kind.startswith("hidden_")]
    if len(explicit) < len(values):
        raise LaunchError(f"{listing.name}: required {len(explicit)} arguments, found {len(values)}")
    size = listing.descriptor.get("kernarg_size", 0)
    block = bytearray([_FILL]) * size
    for argument, value in zip(explicit, values, strict=False):
        data = _encode(value)
        if len(data) != argument.size:
            raise LaunchError(
                f"{listing.name}, {value.name}: required {argument.size} bytes, found {value.kind}"
            )
        block[argument.offset : argument.offset + argument.size] = data
    for argument in explicit[len(values) :]:
        # Triton's scratch pointers, null where the kernel uses none
        block[argument.offset : argument.offset + argument.size] = bytes(argument.size)
    for argument in listing.arguments:
        _hidden(block, argument, grid, group_size)
    return np.frombuffer(bytes(block), np.uint8).copy()


def _encode(value: Value) -> bytes:
    if value.kind.startswith("*"):
        return struct.pack("<Q", int(value.value))
    if value.kind == "bf16":
        return struct.pack("<f", value.value)[2:]
    if value.kind not in _FORMATS:
        raise LaunchError(f"{value.name}: arguments of type {value.kind} are not modelled")
    return struct.pack(_FORMATS[value.kind], value.value)


def _hidden(block: bytearray, argument: Argument, grid: tuple[int, int, int], group_size: int) -> None:
    group = (group_size, 1, 1)
    for axis, name in enumerate("xyz"):
        known = {
            f"hidden_block_count_{name}": grid[axis],
            f"hidden_group_size_{name}": group[axis],
            f"hidden_remainder_{name}": 0,
            f"hidden_global_offset_{name}": 0,
        }
        if argument.kind in known:
            data = known[argument.kind].to_bytes(argument.size, "little")
            block[argument.offset : argument.offset + argument.size] = data
    if argument.kind == "hidden_grid_dims":
        block[argument.offset : argument.offset + argument.size] = (3).to_bytes(argument.size, "little")


def start(m: Machine, listing: Listing, address: int, block: Array, groups: Array) -> None:
    """Fill the registers that waves start with. groups: [workgroup, 3] ids."""
    descriptor, register = listing.descriptor, 0
    for name, count in _USER_REGISTERS:
        if not descriptor.get(name, 0):
            continue
        if name == "user_sgpr_kernarg_segment_ptr":
            m.scalar64[:, register // 2] = address
        register += count
    preload = descriptor.get("user_sgpr_kernarg_preload_length", 0)
    words = np.frombuffer(block.tobytes() + bytes(-len(block) % 4), np.uint32)
    first = descriptor.get("user_sgpr_kernarg_preload_offset", 0)
    if preload:
        loaded = words[first : first + preload]
        m.scalar[:, register : register + len(loaded)] = loaded
    register = descriptor.get("user_sgpr_count", register + preload)
    per_wave = np.repeat(groups, m.shape.waves_per_group, axis=0)
    for axis, name in enumerate("xyz"):
        if descriptor.get(f"system_sgpr_workgroup_id_{name}", int(axis == 0)):
            m.scalar[:, register] = per_wave[:, axis]
            register += 1
    wave = np.arange(m.shape.waves) % m.shape.waves_per_group
    # work items are numbered along x only; y and z share the register (packed, gfx90a and later)
    m.vector[0] = wave[:, None] * LANES + np.arange(LANES)
