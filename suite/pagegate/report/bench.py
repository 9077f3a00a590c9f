"""Tables and pictures of measured results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from pagegate.cases.workloads import workloads
from pagegate.measure.roofline import bound_by, cost
from pagegate.regress.results import Comparison, Results, Row

from .terminal import table


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:.1f}" if seconds < 1e-3 else f"{seconds * 1e6:,.0f}"


def bench_table(results: Results, against: str | None) -> Table:
    """One line per row; `against` adds how many times as fast as that kernel."""
    specs = {row.name: row.spec for row in workloads()}
    medians = {row.name: row.samples.median for row in results.rows if row.samples}
    lines = []
    for row in results.rows:
        if row.samples is None:
            lines.append(
                [row.workload, row.kernel, f"[yellow]{row.status}[/] {row.reason}", "", "", "", "", ""]
            )
            continue
        median = row.samples.median
        spec = specs.get(row.workload)
        rate = bound = ""
        if spec is not None:
            needed, bound = cost(spec), bound_by(spec, results.ceilings)
            rate = (
                f"{needed.bytes / median / 1e9:,.0f} GB/s"
                if bound == "memory"
                else f"{needed.flops / median / 1e12:,.0f} TFLOP/s"
            )
        share = f"{100 * row.floor_s / median:.0f} %" if row.floor_s else ""
        other = medians.get((row.workload, against or "", row.quantity))
        width, ratio = f"{100 * row.samples.half_width:.2f} %", f"{other / median:.2f}" if other else ""
        lines.append([row.workload, row.kernel, _us(median), width, rate, share, ratio, _notes(row)])
    columns = ["workload", "kernel", "median us", "+-", "rate", "of roofline",
               f"x {against}" if against else "", "notes"]  # fmt: skip
    title = f"{results.rows[0].quantity if results.rows else 'bench'} on {results.environment.gpu}"
    return table(title, columns, lines, right=range(2, 7))


def _notes(row: Row) -> str:
    samples = row.samples
    assert samples is not None
    notes = [] if samples.stopped == "target" else ["time budget"]
    if samples.throttled:
        reasons = sorted({reason for reading in samples.readings for reason in reading.reasons})
        notes.append(f"{samples.throttled} of {len(samples.seconds)} throttled ({', '.join(reasons)})")
    if samples.refused:
        notes.append(f"{samples.refused} late launches refused")
    return "; ".join(notes)


def comparison_table(rows: Sequence[Comparison]) -> Table:
    lines = []
    for row in rows:
        ratio = f"{row.ratio:.3f}" if row.ratio else "[yellow]INCOMPARABLE[/]"
        lines.append([row.workload, row.kernel, row.quantity, _us(row.a_s) if row.a_s else "",
                      _us(row.b_s) if row.b_s else "", ratio, row.reason])  # fmt: skip
    columns = ["workload", "kernel", "quantity", "first us", "second us", "second / first", ""]
    return table("compare", columns, lines, right=(3, 4, 5))


def plot(results: Results, path: Path) -> None:
    """Latency and share of the roofline per workload, one line per kernel; PNG or SVG by the name."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    measured = [row for row in results.rows if row.samples]
    names = list(dict.fromkeys(row.workload for row in measured))
    figure, (above, below) = plt.subplots(2, 1, sharex=True, figsize=(max(7, 0.55 * len(names)), 7))
    for kernel in dict.fromkeys(row.kernel for row in measured):
        mine = [row for row in measured if row.kernel == kernel and row.samples]
        places = [names.index(row.workload) for row in mine]
        medians = [row.samples.median * 1e6 for row in mine if row.samples]
        above.plot(places, medians, "o-", label=kernel, markersize=4, linewidth=1)
        shares = [
            (p, 100 * row.floor_s / (m / 1e6))
            for p, row, m in zip(places, mine, medians, strict=True)
            if row.floor_s
        ]
        below.plot(
            [p for p, _ in shares], [s for _, s in shares], "o-", label=kernel, markersize=4, linewidth=1
        )
    above.set(
        yscale="log",
        ylabel="median, us",
        title=f"{measured[0].quantity if measured else ''} on {results.environment.gpu}",
    )
    below.set(ylabel="% of the roofline", ylim=(0, 105))
    below.set_xticks(range(len(names)), names, rotation=60, ha="right", fontsize=8)
    for axes in (above, below):
        axes.grid(alpha=0.3)
    above.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    plt.close(figure)
