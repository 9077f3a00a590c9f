"""The gate's error rates on this machine: gates of equal sides, every second with a planted slowdown.

What is planted is work: in head's graph of one row, a share of the launches is done twice (see
`measure.gpu.GraphWatch`). Each gate is one trial for false alarms, in the rows where nothing was planted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pagegate.errors import UsageError

from .noise import Noise, measured_noise
from .outcome import GateResult
from .simulation import Rate
from .verdict import SLOWER

# what the gate promises: of builds without a change red, of planted slowdowns found
MOST_FALSE, LEAST_FOUND = 0.001, 0.95

# a gate with these plants: row name -> share
RunGate = Callable[[Mapping[str, float]], GateResult]


@dataclass(frozen=True)
class Trial:
    """One gate of equal sides. planted: the row that was slowed down, or nothing; verdicts, changes (log
    ratios), log_ratios (of all rounds), digests: by row name, of the rows that were measured."""

    planted: str
    verdicts: Mapping[str, str]
    changes: Mapping[str, float]
    log_ratios: Mapping[str, Sequence[float]]
    digests: Mapping[str, str]
    seconds: float

    @property
    def red(self) -> list[str]:
        """Rows that are SLOWER although nothing was planted in them."""
        return [name for name, word in self.verdicts.items() if word == SLOWER and name != self.planted]

    @property
    def found(self) -> bool:
        return self.verdicts.get(self.planted) == SLOWER


@dataclass(frozen=True)
class Tally:
    """What all trials say; a rate is None where there was no trial for it."""

    trials: Sequence[Trial]

    @property
    def false_builds(self) -> Rate | None:
        return _rate(bool(trial.red) for trial in self.trials)

    @property
    def false_rows(self) -> Rate | None:
        return _rate(n in trial.red for trial in self.trials for n in trial.verdicts if n != trial.planted)

    @property
    def found(self) -> Rate | None:
        return _rate(trial.found for trial in self.trials if trial.planted)

    @property
    def holds(self) -> bool | None:
        """Whether the rates may still be what is promised, by their intervals; None without both rates."""
        false, found = self.false_builds, self.found
        if false is None or found is None:
            return None
        return false.interval[0] <= MOST_FALSE and found.interval[1] >= LEAST_FOUND

    def noise(self) -> dict[str, Noise]:
        """Of each row, by all rounds in which nothing was planted in it."""
        rounds: dict[str, list[float]] = {}
        digests: dict[str, str] = {}
        for trial in self.trials:
            for name in trial.log_ratios.keys() - {trial.planted}:
                rounds.setdefault(name, []).extend(trial.log_ratios[name])
                digests[name] = trial.digests[name]
        return {name: measured_noise(values, digests[name]) for name, values in sorted(rounds.items())}

    def to_json(self) -> dict[str, Any]:
        rates = {"false_builds": self.false_builds, "false_rows": self.false_rows, "found": self.found}
        return {
            "holds": self.holds,
            "rates": {
                name: rate and asdict(rate) | {"share": rate.share, "interval": list(rate.interval)}
                for name, rate in rates.items()
            },
            "noise": {name: asdict(row) for name, row in self.noise().items()},
            "trials": [asdict(trial) for trial in self.trials],
        }


def _rate(held: Iterator[bool]) -> Rate | None:
    values = list(held)
    return Rate(sum(values), len(values)) if values else None


def run_trials(
    gate: RunGate, gates: int, change: float, budget_s: float, now: Callable[[], float] = time.monotonic
) -> Iterator[Trial]:
    """So many trials of each kind in turns, as they end; the row that is slowed down is another each time.

    The first two are run whatever they cost; another one is started only if it would end within the budget.
    Raises UsageError when a side cannot be run or nothing could be measured.
    """
    began, longest = now(), 0.0
    rows: list[str] = []
    for number in range(2 * gates):
        started = now()
        if number >= 2 and started - began + longest > budget_s:
            return
        planted = rows[(number // 2) % len(rows)] if number % 2 else ""
        result = gate({planted: change} if planted else {})
        seconds = now() - started
        longest = max(longest, seconds)
        trial = trial_of(result, planted, seconds)
        rows = rows or list(trial.verdicts)
        yield trial


def trial_of(result: GateResult, planted: str, seconds: float) -> Trial:
    """Raises UsageError for a gate that failed or measured nothing."""
    if result.failures:
        failure = result.failures[0]
        words = f"{failure.side} {failure.row}: {failure.words}"
        raise UsageError(f"gate --self-test: required sides that can be run, found {words}")
    measured = {row.name: row for row in result.rows if row.track and row.track.figures}
    if not measured:
        raise UsageError("gate --self-test: required rows that can be measured, found none")
    tracks = {name: row.track for name, row in measured.items() if row.track}
    return Trial(
        planted,
        {name: row.verdict for name, row in measured.items()},
        {name: track.figures.change for name, track in tracks.items() if track.figures},
        {name: tuple(one.time for one in track.rounds) for name, track in tracks.items()},
        {name: row.digest for name, row in measured.items()},
        seconds,
    )
