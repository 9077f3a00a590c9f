"""What `pagegate gate --self-test` prints: a line for each gate, the rates, the noise of each row."""

from __future__ import annotations

from rich.table import Table

from pagegate.regress.selftest import LEAST_FOUND, MOST_FALSE, Tally, Trial
from pagegate.regress.simulation import Rate
from pagegate.regress.verdict import AMBIGUOUS, percent

from .terminal import status, table


def trial_line(number: int, trial: Trial) -> str:
    """One gate in one line."""
    open_rows = sum(verdict == AMBIGUOUS for verdict in trial.verdicts.values())
    words = ["nothing planted"]
    if trial.planted:
        verdict, seen = trial.verdicts.get(trial.planted, "not measured"), trial.changes.get(trial.planted)
        words = [f"{trial.planted}: {verdict}" + (f" ({percent(seen)})" if seen is not None else "")]
    if trial.red:
        words.append(f"false alarm: {', '.join(trial.red)}")
    if open_rows:
        words.append(f"{open_rows} undecided")
    return f"gate {number}, {trial.seconds:.0f} s: {'; '.join(words)}"


def rates_table(tally: Tally, change: float) -> Table:
    lines = [
        _line("builds red without a cause", tally.false_builds, f"at most {100 * MOST_FALSE:g} %"),
        _line("rows red without a cause", tally.false_rows, ""),
        _line(f"planted {100 * change:+g} % found", tally.found, f"at least {100 * LEAST_FOUND:g} %"),
    ]
    columns = ["", "count", "of", "share", "95 % interval", "promised"]
    word = {True: "PASSED", False: "FAILED", None: "UNDECIDED"}[tally.holds]
    return table(f"the gate on this machine: {status(word)}", columns, lines, right=(1, 2, 3, 4))


def _line(what: str, rate: Rate | None, promised: str) -> list[str]:
    if rate is None:
        return [what, "", "0", "", "", promised]
    low, high = rate.interval
    interval = f"{100 * low:.2f} to {100 * high:.2f} %"
    return [what, str(rate.count), str(rate.of), f"{100 * rate.share:.2f} %", interval, promised]


def noise_table(tally: Tally) -> Table:
    """Noisiest first."""
    rows = sorted(tally.noise().items(), key=lambda item: -item[1].scatter)
    lines = [[n, f"{100 * r.scatter:.2f} %", f"{100 * r.worst:.2f} %", str(r.rounds)] for n, r in rows]
    return table("A/A noise of one round", ["row", "scatter", "worst", "rounds"], lines, right=(1, 2, 3))
