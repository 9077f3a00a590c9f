"""What `pagegate gate` prints: the live table, the last one, and the Markdown of a job summary."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from pagegate.regress.gating import Progress
from pagegate.regress.looks import Round
from pagegate.regress.outcome import PASSED, GateResult, RowResult
from pagegate.regress.revisions import WORKING_TREE
from pagegate.regress.verdict import AMBIGUOUS, FASTER, INCOMPARABLE, SAME, SLOWER, percent

from .terminal import progress, table

STYLES = {SAME: "green", FASTER: "green", SLOWER: "bold red", AMBIGUOUS: "yellow", INCOMPARABLE: "yellow"}
_MARKDOWN_ROWS = 12
_HEADLINES = {
    PASSED: "no slowdown found",
    "WRONG": "head is wrong or cannot be run",
    "UNUSABLE": "base cannot be run",
    SLOWER: "head is slower",
    AMBIGUOUS: "undecided within the budget",
    INCOMPARABLE: "not everything can be compared",
}


def headline(result: GateResult, outcome: str) -> str:
    """The verdict over all in one line, with its counts."""
    counts = ", ".join(f"{count} {verdict}" for verdict, count in result.counts.items())
    return f"{outcome}: {_HEADLINES[outcome]}" + (f" ({counts})" if counts else "")


def side_words(side: Mapping[str, Any]) -> str:
    """A revision for people: its name and commit."""
    commit = str(side["commit"])[:10] + (" with changes" if side["dirty"] else "")
    if not side["commit"] or str(side["commit"]).startswith(str(side["name"])):
        return commit or str(side["name"])
    return f"{side['name']} ({commit})"


def microseconds(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return f"{seconds * 1e6:.2f}" if seconds < 1e-4 else f"{seconds * 1e6:,.1f}"


def cells(row: RowResult) -> list[str]:
    """base us, head us, change, interval, rounds: empty where nothing was measured."""
    times = [microseconds(row.median_s(side)) for side in ("base", "head")]
    figures = row.track.figures if row.track else None
    if figures is None:
        return [*times, "", "", str(len(row.visits) or "")]
    interval = f"{percent(figures.lower)} to {percent(figures.upper)}"
    return [*times, percent(figures.change), interval, str(figures.rounds)]


def gate_table(result: GateResult) -> Table:
    """Worst first."""
    lines = [[row.workload, row.kernel, *cells(row), verdict(row.verdict)] for row in result.worst_first()]
    columns = ["workload", "kernel", "base us", "head us", "change", "interval", "rounds", "verdict"]
    title = f"{result.quantity}, {side_words(result.head)} against {side_words(result.base)}"
    return table(title, columns, lines, right=range(2, 7))


def verdict(word: str) -> str:
    return f"[{STYLES.get(word, 'yellow')}]{word}[/]"


def print_gate(out: Console, result: GateResult, outcome: str) -> None:
    """The table, the reasons of all but what is the same, notes, and the verdict over all at the end."""
    if result.rows:
        out.print(gate_table(result))
    for row in result.worst_first():
        if row.verdict != SAME:
            words = "; ".join(row.reasons)
            out.print(f"{verdict(row.verdict)} [bold]{escape(row.workload)} {row.kernel}[/]: {escape(words)}")
        for line in row.why:
            out.print(f"  differs: {escape(line)}")
    for failure in result.failures:
        where = f" [bold]{escape(failure.row)}[/]" if failure.row else ""
        out.print(f"[bold red]{failure.status}[/] {failure.side}{where}: {escape(failure.words)}")
    for note in result.notes:
        out.print(f"[yellow]note:[/] {escape(note)}")
    seconds = ", ".join(f"{phase} {spent:.0f} s" for phase, spent in result.seconds.items())
    spent = ", ".join(f"{what} {took:.0f} s" for what, took in result.rounds_s.items())
    out.print(f"took {sum(result.seconds.values()):.0f} s ({seconds}{f'; rounds: {spent}' if spent else ''})")
    style = "green" if outcome == PASSED else STYLES.get(outcome, "bold red")
    out.print(f"[{style}]{headline(result, outcome)}[/]")
    if outcome != PASSED:
        out.print(f"again: [bold]{escape(again(result))}[/]")


def again(result: GateResult) -> str:
    """The command that gates the worst rows once more, on the same two revisions."""
    words = ["pagegate", "gate", "--base", _revision(result.base)]
    if result.head["name"] != WORKING_TREE:
        words += ["--head", _revision(result.head)]
    failed = [failure.row.split()[0] for failure in result.failures if failure.row]
    slow = [row.workload for row in result.worst_first() if row.verdict in (SLOWER, AMBIGUOUS)]
    names = list(dict.fromkeys(failed or slow))[:3]
    if names:
        words += ["-k", " or ".join(names)]
    for kernel in dict.fromkeys(row.kernel for row in result.rows):
        words += ["--kernel", kernel]
    return shlex.join([*words, "--quantity", result.quantity])


def _revision(side: Mapping[str, Any]) -> str:
    return str(side["commit"])[:12] or str(side["name"])


def markdown(result: GateResult, outcome: str) -> str:
    """A short summary: the verdict, the worst rows, what differs, how to see it again."""
    lines = [f"### pagegate gate: {headline(result, outcome)}", ""]
    gpu = result.environment.get("gpu", "no GPU")
    lines.append(
        f"`{side_words(result.head)}` against `{side_words(result.base)}` on {gpu}; quantity "
        f"{result.quantity}; a slowdown counts from {100 * result.rules.floor:g} %."
    )
    for failure in result.failures:
        lines.append(f"\n**{failure.status}** {failure.side} {failure.row}: {_plain(failure.words)}")
    rows = [row for row in result.worst_first() if row.verdict != SAME]
    if rows:
        head = ["workload", "kernel", "base us", "head us", "change", "interval", "rounds", "verdict"]
        lines += ["", f"| {' | '.join(head)} |", "|" + " --- |" * len(head)]
        for row in rows[:_MARKDOWN_ROWS]:
            lines.append(f"| {' | '.join([row.workload, row.kernel, *cells(row), row.verdict])} |")
        if len(rows) > _MARKDOWN_ROWS:
            lines.append(f"\n... and {len(rows) - _MARKDOWN_ROWS} more.")
        lines.append("")
        for row in rows[:_MARKDOWN_ROWS]:
            lines += [
                f"- **{row.workload} {row.kernel}**: {_plain(word)}" for word in (*row.reasons, *row.why)
            ]
    elif result.rows:
        lines += ["", _smallest(result)]
    lines += ["", *(f"> {_plain(note)}" for note in result.notes)]
    lines.append(f"\nTook {sum(result.seconds.values()):.0f} s. Again: `{again(result)}`")
    return "\n".join(lines) + "\n"


def _smallest(result: GateResult) -> str:
    """What could not have been missed: the largest upper bound."""
    uppers = [(r.track.figures.upper, r.name) for r in result.rows if r.track and r.track.figures]
    if not uppers:
        return "Nothing was measured."
    upper, name = max(uppers)
    return f"No row is slower by more than {percent(upper)} ({name})."


def _plain(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


@contextmanager
def live(out: Console) -> Iterator[Callable[[Progress], None]]:
    """Show where a gate is: the rows measured so far on a terminal, the phases elsewhere."""
    bar = progress(out)
    task = bar.add_task("", total=None, note="")
    shown = ""
    with Live(console=out, transient=True, refresh_per_second=4) as screen:

        def show(state: Progress) -> None:
            nonlocal shown
            bar.update(
                task, description=state.phase, completed=state.done, total=state.total or None,
                note=state.note,
            )  # fmt: skip
            if out.is_terminal:
                screen.update(Group(_so_far(state.rounds, out.height - 8), bar))
            elif f"{state.phase} {state.note}" != shown and state.done == 0 and state.total:
                shown = f"{state.phase} {state.note}"
                out.print(f"{state.phase}: {state.note or f'{state.total} jobs'}")

        yield show


def _so_far(rounds: Mapping[str, Sequence[Round]], height: int) -> Table:
    """Medians of the rows, the slowest first, as many as the screen holds."""
    medians = sorted(
        ((float(np.median([one.time for one in row])), name, len(row)) for name, row in rounds.items()),
        reverse=True,
    )
    lines = [[name, percent(median), str(count)] for median, name, count in medians[: max(1, height)]]
    return table("so far", ["row", "head over base", "rounds"], lines, right=(1, 2))
