"""What commands print: progress, tables, failures. rich draws; without a terminal it stays plain text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

from pagegate.cases.notation import format_case
from pagegate.oracle.results import CheckResult

STYLES = {"PASSED": "green", "UNSUPPORTED": "yellow", "SKIPPED": "yellow"}


def console() -> Console:
    """One look for all commands; wide enough for logs, where nobody can resize."""
    probe = Console()
    return probe if probe.is_terminal else Console(width=140, soft_wrap=True)


def progress(out: Console) -> Progress:
    return Progress(
        SpinnerColumn(),
        TextColumn("[progress.description]{task.description}"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}"),
        console=out,
        disable=not out.is_terminal,
        transient=True,
    )


def status(word: str) -> str:
    return f"[{STYLES.get(word, 'bold red')}]{word}[/]"


def table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[int] = ()
) -> Table:
    """A table; `right` holds the columns that align right."""
    made = Table(title=title, title_justify="left", title_style="bold", header_style="bold")
    for index, name in enumerate(columns):
        made.add_column(name, justify="right" if index in right else "left", overflow="fold")
    for row in rows:
        made.add_row(*row)
    return made


def print_failure(out: Console, result: CheckResult, command: str, note: str = "") -> None:
    """Kernel, case in one line, status, the worst element, what broke, and how to see it again."""
    out.print(
        f"\n{status(result.status)} [bold]{escape(result.kernel)}[/]  {escape(format_case(result.case))}"
    )
    if result.reason:
        out.print(f"  {escape(result.reason)}")
    if result.worst and str(result.worst) != result.reason:
        out.print(f"  worst against the reference: {escape(str(result.worst))}")
    if note:
        out.print(f"  {escape(note)}")
    out.print(f"  again: [bold]{escape(command)}[/]")


def print_unsupported(out: Console, counts: dict[tuple[str, str], int]) -> None:
    for (kernel, reason), count in sorted(counts.items()):
        out.print(f"{status('UNSUPPORTED')} {escape(kernel)} in {count} cases: {escape(reason)}")


def ratio_of(result: CheckResult | None) -> str:
    return "" if result is None or result.worst is None else f"{result.worst.ratio:.2f}"
