"""What a change of figures means: one pure function per rule, and the verdict on a whole table.

A rule sees the figures of one launch before and after and whether both run the same configuration (the
same launch parameters and constexprs): counts per step of a loop mean little when the step itself changed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from .figures import Compiled, Figures, Variant

SAME, FASTER, SLOWER, AMBIGUOUS = "SAME", "FASTER", "SLOWER", "AMBIGUOUS"
INCOMPARABLE, WRONG = "INCOMPARABLE", "WRONG"
# from the worst on
VERDICTS = (WRONG, SLOWER, INCOMPARABLE, AMBIGUOUS, FASTER, SAME)

# no rule: what changed on purpose, said beside the findings
CONFIGURATION = "configuration"

# growth that a compiler makes by placing the same code otherwise, and growth that is more than that
SOME, MUCH = 1.05, 1.25
# of the width that a byte is loaded with: a smaller tile alone changes it by less
WIDER = 1.15
# fewer instructions than these are noise, however large their share
FEW = 8


@dataclass(frozen=True)
class Finding:
    """One rule's word on launches. verdict: SLOWER, FASTER, AMBIGUOUS (time it), INCOMPARABLE or WRONG;
    rule: its name; where: the kernel, or whose variants; launches: "workload kernel", all that share it."""

    verdict: str
    rule: str
    where: str
    reason: str
    launches: tuple[str, ...] = ()


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
    return (SLOWER if after.warps < before.warps else FASTER), words


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
    """Loads that no longer run ahead of the arithmetic."""
    was, now = before.loops.async_loads, after.loops.async_loads
    if bool(was) == bool(now):
        return None
    words = f"asynchronous loads in loops: {was} before, {now} now"
    return (FASTER if now else SLOWER), words


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


def compare_variants(before: Variant, after: Variant) -> Iterator[tuple[str, str, str]]:
    """(verdict, rule, reason) of everything that is said about one launch."""
    if after.problem:
        yield WRONG, "launchable", after.problem
        return
    if before.problem or before.figures is None or after.figures is None:
        yield FASTER, "launchable", f"launches now; before: {before.problem or 'no figures'}"
        return
    same = dict(before.options) == dict(after.options)
    if not same:
        yield SAME, CONFIGURATION, _configuration(before, after)
    for rule in RULES:
        said = rule(before.figures, after.figures, same)
        if said is not None:
            yield said[0], rule.__name__, said[1]


def _configuration(before: Variant, after: Variant) -> str:
    names = sorted({*before.options, *after.options})
    pairs = [(name, before.options.get(name), after.options.get(name)) for name in names]
    return "configuration: " + ", ".join(f"{name} {was} -> {now}" for name, was, now in pairs if was != now)


def compare(before: Compiled, after: Compiled) -> list[Finding]:
    """Everything to be said about a table, the worst first; findings that launches share are one.

    Launches of `before` that `after` has not are left out: a selection was compiled, or a row is gone.
    Across Triton versions this shows what the version does; a change of kernels needs one version.
    """
    found: dict[tuple[str, str, str, str], list[str]] = {}
    for launch, names in after.launches.items():
        for key in _compare_launch(launch, names, before, after):
            found.setdefault(key, []).append(launch)
    merged = [Finding(*key, tuple(dict.fromkeys(launches))) for key, launches in found.items()]
    merged += _compare_variant_counts(before, after)
    return sorted(merged, key=lambda finding: VERDICTS.index(finding.verdict))


def no_baseline(compiled: Compiled, versions: Iterable[str]) -> Finding:
    """Figures of another Triton are no baseline: code changes with the version."""
    mine, others = compiled.triton, sorted(versions)
    install = f"install triton {' or '.join(others)}, or use --triton {others[-1]}; or " if others else ""
    words = (
        f"required a baseline of triton {mine}, found {' and '.join(others) or 'none at all'}: {install}"
        "compile the other side with --base REV; or accept these figures with --update --reason TEXT"
    )
    if others:
        words += f". `pagegate compiled --triton {others[-1]} --triton {mine}` shows what the version changes"
    return Finding(INCOMPARABLE, "triton", compiled.target, words)


def problems(compiled: Compiled) -> list[Finding]:
    """What cannot be launched at all."""
    found: dict[tuple[str, str], list[str]] = {}
    for launch, names in compiled.launches.items():
        for name in names:
            variant = compiled.variants[name]
            if variant.problem:
                found.setdefault((variant.kernel, variant.problem), []).append(launch)
    return [
        Finding(WRONG, "launchable", where, reason, tuple(dict.fromkeys(launches)))
        for (where, reason), launches in found.items()
    ]


def _compare_launch(
    launch: str, names: tuple[str, ...], before: Compiled, after: Compiled
) -> Iterator[tuple[str, str, str, str]]:
    kernels = [after.variants[name].kernel for name in names]
    if launch not in before.launches:
        problem = next((v.problem for name in names if (v := after.variants[name]).problem), "")
        if problem:
            yield WRONG, "launchable", kernels[0], problem
        yield INCOMPARABLE, "missing", ", ".join(kernels), "nothing to compare with: a new workload or kernel"
        return
    old = [before.variants[name] for name in before.launches[launch]]
    if len(old) != len(names):
        was = ", ".join(variant.kernel for variant in old) or "none"
        yield (
            AMBIGUOUS,
            "launches",
            ", ".join(kernels),
            f"kernels that one call launches: {was} before, {', '.join(kernels) or 'none'} now",
        )
    for was_variant, name in zip(old, names, strict=False):
        now_variant = after.variants[name]
        for verdict, rule, reason in compare_variants(was_variant, now_variant):
            yield verdict, rule, now_variant.kernel, reason


def _compare_variant_counts(before: Compiled, after: Compiled) -> list[Finding]:
    """Each variant is compiled when a server first meets it, which takes a second or so."""
    shared = [launch for launch in after.launches if launch in before.launches]
    found = []
    for kernel in dict.fromkeys(launch.split()[-1] for launch in shared):
        mine = [launch for launch in shared if launch.split()[-1] == kernel]
        was = len({name for launch in mine for name in before.launches[launch]})
        now = len({name for launch in mine for name in after.launches[launch]})
        if was != now:
            words = f"compiled variants over {len(mine)} workloads: {was} before, {now} now"
            note = "; each is compiled when a server first meets it" if now > was else ""
            found.append(
                Finding(SLOWER if now > was else FASTER, "variants", kernel, words + note, tuple(mine))
            )
    return found


def overall(findings: list[Finding]) -> str:
    """The worst verdict; SAME without any."""
    return min((f.verdict for f in findings), key=VERDICTS.index, default=SAME)
