"""Tables of measured results, as they grow and when they are done."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from pagegate.cases.spec import AttentionSpec
from pagegate.cases.workloads import workloads
from pagegate.measure.roofline import Ceilings, bound_by, cost
from pagegate.regress.results import Comparison, Results, Row

from .terminal import progress, table


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:.1f}" if seconds < 1e-3 else f"{seconds * 1e6:,.0f}"


def bench_table(results: Results, against: str | None, rows: Sequence[Row] | None = None) -> Table:
    """One line per row (or per given row); `against` adds how many times as fast as that kernel."""
    specs = {row.name: row.spec for row in workloads()}
    medians = {row.name: row.samples.median for row in results.rows if row.samples}
    lines = []
    for row in results.rows if rows is None else rows:
        spec = specs.get(row.workload)
        if row.samples is None:
            why = [f"[yellow]{row.status}[/]: {escape(row.reason)}"]
            lines.append([row.workload, row.kernel, *[""] * 5, *why])
            continue
        median = row.samples.median
        share = f"{100 * row.floor_s / median:.0f} %" if row.floor_s else ""
        other = medians.get((row.workload, against or "", row.quantity))
        width, ratio = f"{100 * row.samples.half_width:.2f} %", f"{other / median:.2f}" if other else ""
        rate = _rate(spec, median, results.ceilings) if spec else ""
        lines.append([row.workload, row.kernel, _us(median), width, rate, share, ratio, _notes(row)])
    columns = ["workload", "kernel", "median us", "+-", "rate", "of roofline",
               f"x {against}" if against else "", "notes"]  # fmt: skip
    title = f"{results.rows[0].quantity if results.rows else 'bench'} on {results.environment.gpu}"
    return table(title, columns, lines, right=range(2, 7))


def _rate(spec: AttentionSpec, median_s: float, ceilings: Ceilings) -> str:
    """Of what bounds the problem: bytes or FLOPs."""
    needed = cost(spec)
    if bound_by(spec, ceilings) == "memory":
        return f"{needed.bytes / median_s / 1e9:,.0f} GB/s"
    return f"{needed.flops / median_s / 1e12:,.0f} TFLOP/s"


def _notes(row: Row) -> str:
    samples = row.samples
    assert samples is not None
    notes = [] if samples.stopped == "target" else ["time budget"]
    if samples.throttled:
        reasons = sorted({reason for reading in samples.readings for reason in reading.reasons})
        notes.append(f"{samples.throttled} of {len(samples.seconds)} throttled ({', '.join(reasons)})")
    clocks = [reading.sm_mhz for reading in samples.readings if reading.sm_mhz]
    if clocks and min(clocks) < 0.97 * max(clocks):
        notes.append(f"SM clock {min(clocks):,} to {max(clocks):,} MHz")
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


@contextmanager
def live(out: Console, total: int, against: str | None) -> Iterator[Callable[[Results, str], None]]:
    """show(results so far, what comes next): the table grows on a terminal; elsewhere nothing is shown."""
    bar = progress(out)
    task = bar.add_task("bench", total=total, note="")
    with Live(console=out, transient=True, refresh_per_second=8) as screen:

        def show(results: Results, note: str) -> None:
            bar.update(task, completed=len(results.rows), note=note)
            if out.is_terminal:
                # the last rows: a table longer than the screen would be cut at its end
                rows = results.rows[-max(1, out.height - 10) :]
                screen.update(Group(bench_table(results, against, rows), bar))

        yield show
