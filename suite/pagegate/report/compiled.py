"""What `pagegate compiled` prints: a table of variants per target, and findings with their reasons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.markup import escape

from pagegate.compiled.comparing import Finding
from pagegate.compiled.figures import Compiled, Variant
from pagegate.compiled.targets import Target

from .terminal import table

STYLES = {
    "SAME": "green",
    "FASTER": "green",
    "SLOWER": "bold red",
    "AMBIGUOUS": "yellow",
    "INCOMPARABLE": "yellow",
    "WRONG": "bold red",
}
_COLUMNS = ("variant", "by", "config", "registers", "spills", "shared", "warps", "matrix", "loads", "masks",
            "loops")  # fmt: skip
_LEGEND = (
    "by: workloads that launch it; config: rows/tile/warps/stages; warps: that a multiprocessor holds, of "
    "how many, and what limits them; in loops: matrix instructions, loads x bytes per lane, compares and "
    "selects, all instructions"
)
_MOST_REASONS = 3
_LIMITS = {"registers": "regs", "shared memory": "shared", "warps": "", "groups": "groups"}


def verdict(word: str) -> str:
    return f"[{STYLES[word]}]{word}[/]"


def print_figures(out: Console, compiled: Compiled, target: Target) -> None:
    """One row per variant, kernel by kernel."""
    title = f"{target.name} ({target.processor}), triton {compiled.triton}: {len(compiled.variants)} variants"
    users: dict[str, int] = {}
    for names in compiled.launches.values():
        for name in set(names):
            users[name] = users.get(name, 0) + 1
    order = sorted(compiled.variants.items(), key=lambda item: item[1].kernel)
    rows = [_row(name, variant, users.get(name, 0), target) for name, variant in order]
    out.print(table(title, _COLUMNS, rows, right=range(3, len(_COLUMNS))))
    out.print(_LEGEND, style="dim")


def _row(name: str, variant: Variant, users: int, target: Target) -> list[str]:
    figures = variant.figures
    start = [escape(name), str(users), _configuration(variant)]
    if figures is None:
        return [*start, "failed", *[""] * (len(_COLUMNS) - 4)]
    most = target.partitions * target.warps_per_partition
    loops = figures.loops
    return [
        *start,
        str(figures.registers) + (f" ({figures.agprs}a)" if figures.agprs else ""),
        str(figures.spills) + (f"+{figures.sgpr_spills}s" if figures.sgpr_spills else ""),
        str(figures.shared),
        f"{figures.warps}/{most} {_LIMITS[figures.limit]}".strip(),
        str(loops.num_matrix),
        f"{loops.num_loads}x{loops.load_width:.0f}" if loops.num_loads else "0",
        str(loops.masks),
        str(loops.instructions),
    ]


def _configuration(variant: Variant) -> str:
    """Rows, tile, warps and stages; a dash for what a kernel has not."""
    names = ("BLOCK_M", "TILE", "num_warps", "num_stages")
    return "/".join(str(variant.options.get(name, "-")) for name in names)


def print_findings(out: Console, target: str, findings: Sequence[Finding]) -> None:
    """One paragraph for each kind of finding and kernel: its reasons, and where they apply."""
    paragraphs: dict[tuple[str, str, str], list[Finding]] = {}
    for finding in findings:
        paragraphs.setdefault((finding.verdict, finding.rule, finding.where), []).append(finding)
    for (word, _, where), members in paragraphs.items():
        out.print(f"\n{verdict(word)} {target} [bold]{escape(where)}[/]")
        members.sort(key=lambda finding: -len(finding.launches))
        for member in members[:_MOST_REASONS]:
            out.print(f"  {escape(member.reason)}{_where(member.launches)}")
        if len(members) > _MOST_REASONS:
            rest = [launch for member in members[_MOST_REASONS:] for launch in member.launches]
            out.print(f"  and more of the kind{_where(rest)}")


def _where(launches: Sequence[str]) -> str:
    if not launches:
        return ""
    more = f" and {len(launches) - 3} more" if len(launches) > 3 else ""
    return f" [dim]({escape(', '.join(launches[:3]) + more)})[/]"


def print_refused(out: Console, refused: Mapping[str, str]) -> None:
    """Launches that a kernel does not support, by reason."""
    reasons: dict[tuple[str, str], int] = {}
    for launch, reason in refused.items():
        key = (launch.split()[-1], reason)
        reasons[key] = reasons.get(key, 0) + 1
    for (kernel, reason), count in sorted(reasons.items()):
        out.print(f"[yellow]UNSUPPORTED[/] {escape(kernel)} in {count} workloads: {escape(reason)}")
