"""Compiling one recorded variant and reading its figures."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from . import gcn, sass
from .figures import Figures, Variant
from .recording import Recorded
from .targets import Target, occupancy


def compile_variant(recorded: Recorded, target: Target) -> Variant:
    """Compile through Triton's own pipeline; what fails there becomes the variant's problem."""
    source = ASTSource(recorded.function, recorded.signature, recorded.constants, recorded.attributes)
    try:
        compiled = triton.compile(
            source,
            target=GPUTarget(target.backend, target.arch, target.warp_size),
            options=dict(recorded.compile_options),
        )
    except Exception as error:
        return Variant(recorded.kernel, recorded.options, None, f"does not compile: {_words(error)}")
    figures = read_figures(compiled, target)
    return Variant(
        recorded.kernel, recorded.options, figures, problem(figures, target, compiled.metadata.num_warps)
    )


def _words(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' | '.join(lines[-2:])[-300:]}"


def read_figures(compiled: Any, target: Target) -> Figures:
    """Figures of a triton CompiledKernel: from its cubin, or from its AMD assembly."""
    metadata = compiled.metadata
    if target.backend == "cuda":
        return _of_cubin(compiled.asm["cubin"], metadata.shared, metadata.num_warps, target)
    return _of_assembly(compiled.asm["amdgcn"], metadata.shared, metadata.num_warps, target)


def _of_cubin(cubin: bytes, shared: int, num_warps: int, target: Target) -> Figures:
    tools = Path(triton.backends.__file__).parent / "nvidia" / "bin"
    with tempfile.TemporaryDirectory(prefix="pagegate-cubin-") as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        found = sass.resources(path, tools)
        total, loops, code = sass.read(sass.listing(path, tools))
    scratch = found.get("STACK", 0) + found.get("LOCAL", 0)
    held = occupancy(target, found["REG"], shared, num_warps)
    return Figures(
        registers=found["REG"], agprs=0, sgprs=0, spills=scratch // 4, sgpr_spills=0, scratch=scratch,
        shared=shared, groups=held.groups, warps=held.warps, limit=held.limit, code=code, total=total,
        loops=loops,
    )  # fmt: skip


def _of_assembly(text: str, shared: int, num_warps: int, target: Target) -> Figures:
    facts, total, loops, code = gcn.read(text)
    shared = max(shared, facts.get("group_segment_fixed_size", 0))
    registers, sgprs = facts["vgpr_count"], facts["sgpr_count"]
    held = occupancy(target, registers, shared, num_warps, sgprs)
    return Figures(
        registers=registers, agprs=facts.get("agpr_count", 0), sgprs=sgprs,
        spills=facts.get("vgpr_spill_count", 0), sgpr_spills=facts.get("sgpr_spill_count", 0),
        scratch=facts.get("private_segment_fixed_size", 0), shared=shared, groups=held.groups,
        warps=held.warps, limit=held.limit, code=code, total=total, loops=loops,
    )  # fmt: skip


def problem(figures: Figures, target: Target, num_warps: int) -> str:
    """Why the target cannot launch it, with the figures; empty if it can."""
    if figures.shared > target.shared_per_group:
        return (
            f"cannot launch: {figures.shared:,} bytes of {shared_word(target)} per group, and {target.name} "
            f"({target.processor}) has {target.shared_per_group:,}"
        )
    if figures.groups == 0:
        return (
            f"cannot launch: {figures.registers} registers for each lane of {num_warps} warps, and a "
            f"multiprocessor of {target.name} has {target.partitions * target.registers} per lane for all"
        )
    return ""


def shared_word(target: Target) -> str:
    return "LDS" if target.backend == "hip" else "shared memory"
