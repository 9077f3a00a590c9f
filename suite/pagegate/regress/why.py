"""Why two sides differ: what each launches, what the compiler made of it, what the host pays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pagegate.cases.registry import Kernel
    from pagegate.cases.spec import Case

_CALL_LAUNCHES = 40
# of a compiled variant, in the order in which they are shown
_FACTS = ("registers", "spills", "shared")
_LEAST_HOST_CHANGE = 0.05


def explain(kernel: Kernel, case: Case) -> dict[str, Any]:
    """What one call launches, in order, and the median of calls; needs the GPU. A launch: kernel, grid,
    options (constexprs, warps, stages), registers, spills, shared bytes, counts of instructions ("all" and
    "in loops") where this GPU is one of `compiled.targets`."""
    from pagegate.measure.sampler import Plan, sample
    from pagegate.measure.timing import stopwatch

    watch = stopwatch(kernel, case, "call")
    launches = _recorded(watch)
    host = sample(watch, Plan(warm_s=0, budget_s=0, batch=_CALL_LAUNCHES))
    return {"launches": launches, "call_s": host.median}


def _recorded(watch: Any) -> list[dict[str, Any]]:
    """The Triton launches of one timed call, seen by `JITFunction.run`."""
    from triton.runtime.jit import JITFunction

    run, seen = JITFunction.run, []

    def recording(self: Any, *arguments: Any, grid: Any, warmup: bool, **options: Any) -> Any:
        compiled = run(self, *arguments, grid=grid, warmup=warmup, **options)
        seen.append(_launch(self, compiled, grid, options))
        return compiled

    watch.take(1)  # compiled and loaded
    JITFunction.run = recording
    try:
        watch.take(1)
    finally:
        JITFunction.run = run
    return seen


def _launch(function: Any, compiled: Any, grid: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    constants = {p.name for p in function.params if p.is_constexpr}
    shown = {
        name: value
        for name, value in options.items()
        if name in constants or name in ("num_warps", "num_stages", "maxnreg", "num_ctas", "launch_pdl")
    }
    return {
        "kernel": function.fn.__name__,
        "variant": str(compiled.hash)[:12],
        "grid": None if callable(grid) else list(grid),
        "options": {k: v if isinstance(v, (bool, int, float, str)) else str(v) for k, v in shown.items()},
        "registers": compiled.n_regs,
        "spills": compiled.n_spills,
        "shared": compiled.metadata.shared,
        "instructions": _instructions(compiled),
    }


def _instructions(compiled: Any) -> dict[str, dict[str, int]]:
    """Counts by kind; empty for a GPU that `compiled.targets` does not know, or without its tools."""
    from pagegate.compiled.inspecting import read_figures
    from pagegate.compiled.targets import TARGETS
    from pagegate.errors import UsageError

    arch = compiled.metadata.target.arch
    target = TARGETS.get(f"sm_{arch}" if isinstance(arch, int) else str(arch).split(":")[0])
    if target is None:
        return {}
    try:
        figures = read_figures(compiled, target)
    except UsageError:
        return {}
    return {"all": _counts(figures.total.to_json()), "in loops": _counts(figures.loops.to_json())}


def _counts(mix: Mapping[str, Any]) -> dict[str, int]:
    """One number per kind; kinds that have kinds of their own are spelled out."""
    found: dict[str, int] = {}
    for name, value in mix.items():
        if isinstance(value, Mapping):
            unit = {"loads": "{}-byte loads", "matrix": "{}"}.get(name, name + " {}")
            found |= {unit.format(kind): count for kind, count in value.items()}
        else:
            found[name.replace("_", " ")] = value
    return found


def differences(base: Mapping[str, Any], head: Mapping[str, Any]) -> list[str]:
    """What differs between two sides' `explain`, one line each; never empty."""
    lines: list[str] = []
    mine, theirs = base["launches"], head["launches"]
    names = [[launch["kernel"] for launch in side] for side in (mine, theirs)]
    if names[0] != names[1]:
        lines.append(f"launches: {', '.join(names[0]) or 'none'} -> {', '.join(names[1]) or 'none'}")
    counts = [len({launch["variant"] for launch in side}) for side in (mine, theirs)]
    if counts[0] != counts[1]:
        lines.append(f"compiled variants: {counts[0]} -> {counts[1]}")
    for old, new in zip(mine, theirs, strict=False):
        if old["kernel"] == new["kernel"]:
            lines += [f"{old['kernel']}: {line}" for line in _of_launch(old, new)]
    host = head["call_s"] / base["call_s"] - 1
    if abs(host) > _LEAST_HOST_CHANGE:
        times = f"{base['call_s'] * 1e6:.1f} -> {head['call_s'] * 1e6:.1f} us"
        lines.append(f"host: a call takes {times} ({100 * host:+.0f} %)")
    return lines or [
        "nothing that is looked at differs: launch configuration, grid, registers, spills, shared memory, "
        "counts of instructions, host time"
    ]


def _of_launch(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    lines = [f"{what} {a} -> {b}" for what, a, b in _changed(old["options"], new["options"])]
    if old["grid"] != new["grid"]:
        lines.append(f"grid {old['grid']} -> {new['grid']}")
    lines += [f"{fact} {old[fact]} -> {new[fact]}" for fact in _FACTS if old[fact] != new[fact]]
    for where in ("in loops", "all"):
        changed = _changed(old["instructions"].get(where, {}), new["instructions"].get(where, {}))
        if changed:
            words = ", ".join(f"{what} {a or 0} -> {b or 0}" for what, a, b in changed)
            lines.append(f"instructions {where}: {words}")
    if not lines and old["variant"] != new["variant"]:
        lines.append("compiled from another source to code with the same counts")
    return lines


def _changed(old: Mapping[str, Any], new: Mapping[str, Any]) -> Sequence[tuple[str, Any, Any]]:
    names = dict.fromkeys([*old, *new])
    return [(name, old.get(name), new.get(name)) for name in names if old.get(name) != new.get(name)]
