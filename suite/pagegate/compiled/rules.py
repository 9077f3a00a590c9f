"""What a change of figures means: one pure function per rule.

A rule sees the figures of one launch before and after and whether both run the same configuration (the
same launch parameters and constexprs): counts per step of a loop mean little when the step itself changed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping

from .figures import Figures

FASTER, SLOWER, AMBIGUOUS = "FASTER", "SLOWER", "AMBIGUOUS"

# growth that a compiler makes by placing the same code otherwise, and growth that is more than that
SOME, MUCH = 1.05, 1.25
# of the width that a byte is loaded with: a smaller tile alone changes it by less
WIDER = 1.15
# fewer instructions than these are noise, however large their share
FEW = 8


Rule = Callable[[Figures, Figures, bool], tuple[str, str] | None]


def spills(before: Figures, after: Figures, same: bool) -> tuple[str, str] | None:
    """Registers that live in memory instead."""
    if after.spills == before.spills:
        return None
    words = f"registers spilled to memory: {before.spills} before, {after.spills} now"
    return (SLOWER if after.spills > before.spills else FASTER), words


def scratch(before: Figures, after: Figures, same: bool) -> tuple[str, str] | None:
    """Private memory that is no spill: arrays that are indexed at run time."""
    if after.spills != before.spills or after.scratch <= before.scratch:
        return None
    return SLOWER, f"private memory per lane: {before.scratch} bytes before, {after.scratch} now"


def occupancy(before: Figures, after: Figures, same: bool) -> tuple[str, str] | None:
    """Warps that hide each other's latency."""
    if after.warps == before.warps:
        return None
    need = f"{after.registers} registers per lane ({before.registers} before)"
    # what stood in the way on the side with fewer
    if (after if after.warps < before.warps else before).limit == "shared memory":
        need = f"{after.shared:,} bytes of shared memory per group ({before.shared:,} before)"
    words = f"occupancy: {before.warps} warps per multiprocessor before, {after.warps} now; {need}"
    # warps of another configuration do another share of the work
    return (AMBIGUOUS if not same else SLOWER if after.warps < before.warps else FASTER), words


def matrix_work(kind: str) -> int:
    """Multiply-adds of one matrix instruction, from the shape in its name; 0 if it names none."""
    match = re.search(r"(\d+)x(\d+)x(\d+)", kind)
    if match is not None:
        return math.prod(map(int, match.groups()))
    match = re.search(r"MMA\.(\d+)", kind)  # m and n take two digits, or n one: 16816 is 16x8x16
    if match is not None and match[1].startswith("168"):
        return 16 * 8 * int(match[1][3:] or 1)
    return 0


def matrix(before: Figures, after: Figures, same: bool) -> tuple[str, str] | None:
    """Matrix units used no longer, or by smaller instructions."""
    if before.total.num_matrix and not after.total.num_matrix:
        return SLOWER, f"no matrix instructions are left of {_kinds(before)}"
    if after.total.num_matrix and not before.total.num_matrix:
        return FASTER, f"matrix instructions: none before, {_kinds(after)} now"
    was, now = _mean_work(before), _mean_work(after)
    if not was or not now or was == now:
        return None
    words = f"matrix instructions of another size: {_kinds(before)} before, {_kinds(after)} now"
    # the shape of a tile may ask for it
    return (AMBIGUOUS if not same else SLOWER if now < was else FASTER), words


def _mean_work(figures: Figures) -> float:
    work = [n * matrix_work(kind) for kind, n in figures.loops.matrix.items()]
    return sum(work) / sum(figures.loops.matrix.values()) if all(work) and work else 0.0


def _kinds(figures: Figures) -> str:
    return " and ".join(f"{n} {kind}" for kind, n in sorted(figures.total.matrix.items()))


def loads(before: Figures, after: Figures, same: bool) -> tuple[str, str] | None:
    """Wide global loads replaced by more and narrower ones."""
    was, now = before.loops, after.loops
    if not was.num_loads or not now.num_loads:
        return None
    words = f"global loads in loops, bytes per lane: {_widths(was.loads)} before, {_widths(now.loads)} now"
    narrowest = {width for width in {**was.loads, **now.loads} if width < was.load_width}
    more = sum(now.loads.get(w, 0) for w in narrowest) > sum(was.loads.get(w, 0) for w in narrowest)
    if now.load_width < was.load_width / WIDER and more:
        return SLOWER, f"narrower {words}"
    if now.load_width > WIDER * was.load_width:
        return FASTER, f"wider {words}"
    return None


def _widths(counts: Mapping[int, int]) -> str:
    return " and ".join(f"{n} of {width}" for width, n in sorted(counts.items(), reverse=True))


def async_loads(before: Figures, after: Figures, same: bool) -> tuple[str, str] | None:
    """Loads that no longer run ahead of the arithmetic: none, or fewer of them and more of the others."""
    was, now = before.loops, after.loops
    others = now.num_loads - now.async_loads - (was.num_loads - was.async_loads)
    words = f"asynchronous loads in loops: {was.async_loads} of {was.num_loads} loads before, "
    words += f"{now.async_loads} of {now.num_loads} now"
    gone = was.async_loads > 0 == now.async_loads
    if gone or (same and was.async_loads > MUCH * now.async_loads and others > 0):
        return SLOWER, words
    return (FASTER, words) if same and now.async_loads > 0 == was.async_loads else None


def masks(before: Figures, after: Figures, same: bool) -> tuple[str, str] | None:
    """Compares and selects per step: masking of tiles that need none."""
    was, now = before.loops.masks, after.loops.masks
    if not same or now < MUCH * was or now - was < FEW:
        return None
    return SLOWER, f"compares and selects in loops (masking): {was} before, {now} now"


def exponentials(before: Figures, after: Figures, same: bool) -> tuple[str, str] | None:
    was, now = before.loops.exponentials, after.loops.exponentials
    if not same or now < MUCH * was or now - was < FEW:
        return None
    return SLOWER, f"exponentials in loops: {was} before, {now} now"


def barriers(before: Figures, after: Figures, same: bool) -> tuple[str, str] | None:
    was, now = before.loops.barriers, after.loops.barriers
    return (AMBIGUOUS, f"barriers in loops: {was} before, {now} now") if same and now > was else None


def shared_accesses(before: Figures, after: Figures, same: bool) -> tuple[str, str] | None:
    was, now = before.loops.shared, after.loops.shared
    if not same or now < MUCH * was or now - was < FEW:
        return None
    return AMBIGUOUS, f"accesses to shared memory in loops: {was} before, {now} now"


def instructions(before: Figures, after: Figures, same: bool) -> tuple[str, str] | None:
    """Work per step of the loops; whether time follows depends on what the kernel waits for."""
    was, now = before.loops.instructions, after.loops.instructions
    if not same or not was or abs(now - was) < FEW:
        return None
    words = f"instructions in loops: {was:,} before, {now:,} now ({now / was - 1:+.0%})"
    if now >= SOME * was:
        return (SLOWER if now >= MUCH * was else AMBIGUOUS), words
    return (FASTER, words) if was >= MUCH * now else None


RULES: tuple[Rule, ...] = (
    spills,
    scratch,
    occupancy,
    matrix,
    loads,
    async_loads,
    masks,
    exponentials,
    barriers,
    shared_accesses,
    instructions,
)
