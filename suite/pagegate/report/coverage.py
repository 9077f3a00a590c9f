"""Which instructions of the interpreted machine code ran, per compiled variant, and which did not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from rich.console import Console

from pagegate.amdgcn import Coverage, Report

from . import terminal

_SHOWN = 8  # Python lines named per variant


def below(report: Report, required: float) -> list[Coverage]:
    """Compiled variants of which less than this share ran, the worst first."""
    found = [entry for entry in report.coverage.values() if entry.share < required]
    return sorted(found, key=lambda entry: entry.share)


def print_coverage(out: Console, report: Report, required: float, rows_of: Mapping[str, list[str]]) -> None:
    """A line per kernel, then what did not run in variants below the required share.

    rows_of: names of the workloads that ran each variant, by digest.
    """
    if not report.coverage:
        return
    rows = []
    for name in dict.fromkeys(entry.kernel for entry in report.coverage.values()):
        mine = [entry for entry in report.coverage.values() if entry.kernel == name]
        size, ran = sum(len(entry.lines) for entry in mine), sum(sum(entry.executed) for entry in mine)
        worst = min(entry.share for entry in mine)
        rows.append([name, str(len(mine)), f"{size:,}", _percent(ran / max(size, 1)), _percent(worst)])
    columns = ["kernel", "variants", "instructions", "executed", "least executed variant"]
    title = f"coverage, {report.instructions:,} instructions of waves executed"
    out.print(terminal.table(title, columns, rows, right=range(1, 5)))
    for entry in below(report, required):
        where = ", ".join(rows_of.get(entry.digest, []))
        out.print(
            f"{entry.kernel} {entry.digest}: {_percent(entry.share)} of {len(entry.lines)} instructions "
            f"executed ({where})",
            markup=False,
        )
        for source, count in missed_sources(entry).most_common(_SHOWN):
            first = next(line for line in entry.missed if line.source == source)
            out.print(f"  {count:5} never executed from {source or 'no line'}, first {first}", markup=False)


def missed_sources(entry: Coverage) -> Counter[str]:
    """How many instructions of each Python line never ran."""
    return Counter(line.source for line in entry.missed)


def as_json(report: Report, rows_of: Mapping[str, list[str]]) -> list[dict[str, Any]]:
    """One entry per variant, with every line that never ran."""
    return [
        {
            "kernel": entry.kernel,
            "variant": entry.digest,
            "target": entry.target,
            "workloads": rows_of.get(entry.digest, []),
            "instructions": len(entry.lines),
            "share": entry.share,
            "missed": [str(line) for line in entry.missed],
        }
        for entry in report.coverage.values()
    ]


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
