"""What changed between two compiled tables: findings, each with a verdict and its reason in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from .figures import Compiled, Variant
from .rules import AMBIGUOUS, FASTER, RULES, SLOWER

SAME, INCOMPARABLE, WRONG = "SAME", "INCOMPARABLE", "WRONG"
# from the worst on
VERDICTS = (WRONG, SLOWER, INCOMPARABLE, AMBIGUOUS, FASTER, SAME)

_Key = tuple[str, str, str, str]  # of a finding without its launches


@dataclass(frozen=True)
class Finding:
    """One rule's word on launches. verdict: SLOWER, FASTER, AMBIGUOUS (time it), INCOMPARABLE or WRONG;
    rule: its name; where: the kernel, or whose variants; launches: "workload kernel", all that share it."""

    verdict: str
    rule: str
    where: str
    reason: str
    launches: tuple[str, ...] = ()


def compare_variants(before: Variant, after: Variant) -> Iterator[tuple[str, str, str]]:
    """(verdict, rule, reason) of everything that is said about one launch."""
    if after.problem:
        yield WRONG, "launchable", after.problem
        return
    if before.problem or before.figures is None or after.figures is None:
        yield FASTER, "launchable", f"launches now; before: {before.problem or 'no figures'}"
        return
    changed = _configuration(before, after)
    same = not changed
    if changed:
        yield AMBIGUOUS, "configuration", changed
    for rule in RULES:
        said = rule(before.figures, after.figures, same)
        if said is not None:
            yield said[0], rule.__name__, said[1]


def _configuration(before: Variant, after: Variant) -> str:
    """Launch parameters and constexprs that both sides have and that differ; empty if none does. What only
    one side has was introduced or given up in the source, and the figures say what came of it."""
    shared = sorted(before.options.keys() & after.options.keys())
    pairs = [(name, before.options[name], after.options[name]) for name in shared]
    changes = [f"{name} {was} -> {now}" for name, was, now in pairs if was != now]
    return f"launched otherwise, which only a clock can judge: {', '.join(changes)}" if changes else ""


def compare(before: Compiled, after: Compiled) -> list[Finding]:
    """Everything to be said about a table, the worst first; findings that launches share are one.

    Launches of `before` that `after` has not are left out: a selection was compiled, or a row is gone.
    Across Triton versions this shows what the version does; a change of kernels needs one version.
    """
    found: dict[_Key, list[str]] = {}
    edited = {name for name, case in after.workloads.items() if before.workloads.get(name, case) != case}
    for launch, names in after.launches.items():
        was_edited = launch.split()[0] in edited
        keys = (_compare_edited if was_edited else _compare_launch)(launch, names, before, after)
        for key in keys:
            found.setdefault(key, []).append(launch)
    for launch, why in after.refused.items():
        if launch in before.launches:
            key = (INCOMPARABLE, "refused", launch.split()[-1], f"launched before, and not now: {why}")
            found.setdefault(key, []).append(launch)
    merged = [Finding(*key, tuple(dict.fromkeys(launches))) for key, launches in found.items()]
    merged += _compare_variant_counts(before, after, edited)
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


def _compare_edited(launch: str, names: tuple[str, ...], before: Compiled, after: Compiled) -> Iterator[_Key]:
    """Another problem under an old name is never compared with the old one's figures."""
    yield from _unlaunchable(names, after)
    kernels = ", ".join(dict.fromkeys(after.variants[name].kernel for name in names))
    workload = launch.split()[0]
    was, now = before.workloads[workload], after.workloads[workload]
    words = f"another workload under this name: {was} before, {now} now"
    yield INCOMPARABLE, "workload", kernels, words


def _unlaunchable(names: tuple[str, ...], after: Compiled) -> Iterator[_Key]:
    for name in names:
        if after.variants[name].problem:
            yield WRONG, "launchable", after.variants[name].kernel, after.variants[name].problem


def _compare_launch(launch: str, names: tuple[str, ...], before: Compiled, after: Compiled) -> Iterator[_Key]:
    kernels = [after.variants[name].kernel for name in names]
    if launch not in before.launches:
        yield from _unlaunchable(names, after)
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


def _compare_variant_counts(before: Compiled, after: Compiled, edited: set[str]) -> list[Finding]:
    """Each variant is compiled when a server first meets it, which takes a second or so."""
    shared = [
        launch for launch in after.launches if launch in before.launches and launch.split()[0] not in edited
    ]
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
