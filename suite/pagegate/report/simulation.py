"""The table of `pagegate gate --simulate`."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from pagegate.regress.simulation import Outcome

from .terminal import status, table


def simulation_table(outcomes: Sequence[Outcome]) -> Table:
    columns = ["machine", "planted", "builds", "red", "share", "95 % interval", "on a wrong row",
               "missed as SAME", "ambiguous", "rounds", "minutes", "wanted", ""]  # fmt: skip
    return table(
        "the gate on simulated machines", columns, [_line(one) for one in outcomes], right=range(1, 12)
    )


def _line(outcome: Outcome) -> list[str]:
    scenario, counts = outcome.scenario, outcome.counts
    low, high = outcome.rate.interval
    changed = scenario.change > scenario.rules.floor
    return [
        scenario.machine.name,
        f"{100 * scenario.change:+.1f} %" if scenario.change else "nothing",
        f"{counts.builds:,}",
        f"{counts.red:,}",
        f"{100 * outcome.rate.share:.2f} %",
        f"{100 * low:.2f} to {100 * high:.2f} %",
        f"{counts.wrong:,}",
        f"{counts.missed:,}",
        f"{counts.ambiguous:,}",
        f"{counts.rounds / counts.builds:.0f}",
        f"{counts.seconds / counts.builds / 60:.1f}",
        f"{'at least' if changed else 'at most'} {100 * scenario.wanted:g} %",
        status("PASSED" if outcome.holds else "FAILED"),
    ]
