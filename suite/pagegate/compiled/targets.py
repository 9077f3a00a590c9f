"""The GPUs that kernels are compiled for, one row each, and how many warps of a kernel they hold at once.

Sources: NVIDIA's CUDA C++ Programming Guide, "Compute Capabilities", and its occupancy calculator; LLVM's
"User Guide for AMDGPU Backend" and AMD's CDNA2, CDNA3, CDNA4 and RDNA4 instruction-set guides. A warp is
AMD's wave, a multiprocessor its compute unit (on RDNA, a workgroup processor), shared memory its LDS.
"""

from __future__ import annotations

from dataclasses import dataclass

from pagegate.errors import UsageError

KIB = 1 << 10


@dataclass(frozen=True)
class Target:
    """A GPU. registers, register_granule and most_registers: per lane, the first of one of the four
    partitions of a multiprocessor; shared, shared_reserved (per group), shared_granule: bytes."""

    name: str
    processor: str
    backend: str
    arch: int | str
    warp_size: int
    multiprocessors: int
    warps_per_partition: int
    registers: int
    register_granule: int
    most_registers: int
    groups: int
    shared: int
    shared_per_group: int
    shared_reserved: int = 0
    shared_granule: int = 512

    partitions = 4


def _nvidia(capability: int, processor: str, multiprocessors: int, shared_kib: int) -> Target:
    shared = shared_kib * KIB
    # a 64 KiB register file of 32 lanes per partition, given out by 256 registers of a warp
    return Target(
        f"sm_{capability}", processor, "cuda", capability, 32, multiprocessors, warps_per_partition=16,
        registers=512, register_granule=8, most_registers=255, groups=32, shared=shared,
        shared_per_group=shared - KIB, shared_reserved=KIB, shared_granule=128,
    )  # fmt: skip


def _cdna(arch: str, processor: str, multiprocessors: int, shared_kib: int, granule: int = 512) -> Target:
    shared = shared_kib * KIB
    return Target(
        arch, processor, "hip", arch, 64, multiprocessors, warps_per_partition=8, registers=512,
        register_granule=8, most_registers=512, groups=16, shared=shared, shared_per_group=shared,
        shared_granule=granule,
    )  # fmt: skip


def _rdna4(arch: str, processor: str, multiprocessors: int) -> Target:
    return Target(
        arch, processor, "hip", arch, 32, multiprocessors, warps_per_partition=16, registers=1536,
        register_granule=24, most_registers=256, groups=32, shared=128 * KIB, shared_per_group=64 * KIB,
    )  # fmt: skip


TARGETS = {
    target.name: target
    for target in (
        _nvidia(80, "A100", 108, 164),
        _nvidia(90, "H100, H200", 132, 228),
        _nvidia(100, "B200", 148, 228),
        _cdna("gfx90a", "MI250X, one die", 110, 64),
        _cdna("gfx942", "MI300X", 304, 64),
        _cdna("gfx950", "MI355X", 256, 160, granule=1280),
        _rdna4("gfx1201", "RX 9070 XT", 32),
    )
}
DEFAULT = ("sm_90", "gfx942")


def find_target(name: str) -> Target:
    """Raises UsageError for an unknown one."""
    if name not in TARGETS:
        raise UsageError(f"--target: required one of {', '.join(TARGETS)}; found {name!r}")
    return TARGETS[name]


@dataclass(frozen=True)
class Occupancy:
    """Groups (thread blocks) and warps that a multiprocessor holds at once, and what allows no more."""

    groups: int
    warps: int
    limit: str


def occupancy(target: Target, registers: int, shared: int, num_warps: int, sgprs: int = 0) -> Occupancy:
    """What a kernel's resources allow: registers per lane (AMD: vector and accumulation registers
    together), shared bytes and warps per group. 0 groups: it cannot launch."""
    per_partition = target.warps_per_partition
    granule = target.register_granule
    taken = -(-max(registers, 1) // granule) * granule
    by_registers = min(per_partition, target.registers // taken)
    if registers > target.most_registers:
        by_registers = 0
    if target.backend == "hip" and target.arch != "gfx1201":
        by_registers = min(by_registers, _by_scalars(sgprs))
    per_group = -(-(shared + target.shared_reserved) // target.shared_granule) * target.shared_granule
    candidates = {
        "registers": target.partitions * by_registers // num_warps,
        "shared memory": target.shared // per_group if per_group else target.groups,
        "warps": target.partitions * per_partition // num_warps,
        "groups": target.groups,
    }
    if target.backend == "cuda" and by_registers * target.partitions < -(-num_warps // 4) * 4:
        candidates["registers"] = 0  # the launch itself counts warps by fours
    if shared > target.shared_per_group:
        candidates["shared memory"] = 0
    limit = min(candidates, key=lambda name: candidates[name])
    if candidates["registers"] == candidates["warps"] == candidates[limit]:
        limit = "warps"
    groups = candidates[limit]
    return Occupancy(groups, groups * num_warps, limit)


def _by_scalars(sgprs: int) -> int:
    """GCN and CDNA: 800 scalar registers per partition, given out by 16."""
    return 8 if sgprs <= 100 else 7
