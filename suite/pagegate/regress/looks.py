"""The order of a gate: planned looks, more rounds for what is still open, fresh rounds to confirm.

The gate and its simulation both run this. What costs time is asked of the caller, so nothing here knows
whether rounds are measured or drawn.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from .verdict import (
    AMBIGUOUS,
    SLOWER,
    Figures,
    Judgement,
    Rules,
    confirm,
    figures,
    judge,
    percent,
)

# how many rounds in a row one pair of processes measures; fresh buffers in each
ROUNDS_PER_PROCESS = 2


class Round(NamedTuple):
    """One round of one row: log(head / base) of times, and of the clocks they ran at (NaN: not read)."""

    time: float
    clock: float = math.nan


# rows, and how many rounds of each; returns the rounds row by row
Measure = Callable[[Sequence[int], int], list[list[Round]]]
# whether there is time for so many rounds of these rows
Affords = Callable[[Sequence[int], int], bool]


@dataclass(frozen=True)
class Track:
    """What became of one row. judgement: the latest, of all its rounds; confirmation: figures of the fresh
    rounds that were to confirm a slowdown; decided: no more rounds for it. It is SLOWER only if confirmed."""

    rounds: tuple[Round, ...] = ()
    figures: Figures | None = None
    judgement: Judgement = field(default=Judgement(AMBIGUOUS, math.nan, ("not measured",)))
    confirmation: Figures | None = None
    decided: bool = False


def run_looks(noise: Sequence[float | None], rules: Rules, measure: Measure, affords: Affords) -> list[Track]:
    """Measure and judge until every row is decided, the looks are over, or the time is.

    noise: of each row, see `verdict.judge`. The first look is taken whatever it costs.
    """
    tracks = [Track() for _ in noise]
    for number, wanted in enumerate(rules.looks):
        still = [row for row, track in enumerate(tracks) if not track.decided]
        missing = max((wanted - len(tracks[row].rounds) for row in still), default=0)
        if not still or (number and missing > 0 and not affords(still, missing)):
            break
        if missing > 0:
            _extend(tracks, still, measure(still, missing), rules)
        for row, judgement in zip(still, _judge_open(tracks, still, noise, rules), strict=True):
            decided = judgement.verdict not in (AMBIGUOUS, SLOWER)
            tracks[row] = replace(tracks[row], judgement=judgement, decided=decided)
        _confirm(tracks, noise, rules, measure, affords)
    return tracks


def _judge_open(
    tracks: Sequence[Track], still: Sequence[int], noise: Sequence[float | None], rules: Rules
) -> list[Judgement]:
    """Open rows in the company of all."""
    all_figures = [track.figures for track in tracks if track.figures is not None]
    judgements = judge(all_figures, noise, rules)
    return [judgements[row] for row in still]


def _confirm(
    tracks: list[Track],
    noise: Sequence[float | None],
    rules: Rules,
    measure: Measure,
    affords: Affords,
) -> None:
    """As many fresh rounds again for each row found SLOWER; they alone decide."""
    found = [
        row for row, track in enumerate(tracks) if track.judgement.verdict == SLOWER and not track.decided
    ]
    if not found:
        return
    count = min(rules.confirming, max(len(tracks[row].rounds) for row in found))
    if not affords(found, count):
        for row in found:
            _note(tracks, row, AMBIGUOUS, "no time was left to confirm it")
        return
    fresh = measure(found, count)
    for row, rounds in zip(found, fresh, strict=True):
        (seen,) = _figures([rounds], rules)
        second = confirm(seen, noise[row], rules)
        tracks[row] = replace(tracks[row], confirmation=seen, decided=second.verdict == SLOWER)
        if tracks[row].decided:
            words = f"confirmed by {count} rounds in fresh processes: {percent(seen.change)}"
            _note(tracks, row, SLOWER, words)
        else:
            words = f"not confirmed by {count} rounds in fresh processes: {second.reasons[0]}"
            _note(tracks, row, AMBIGUOUS, words)
    _extend(tracks, found, fresh, rules)


def _note(tracks: list[Track], row: int, verdict: str, words: str) -> None:
    judgement = tracks[row].judgement
    changed = Judgement(verdict, judgement.threshold, (*judgement.reasons, words))
    tracks[row] = replace(tracks[row], judgement=changed)


def _extend(
    tracks: list[Track], rows: Sequence[int], rounds: Sequence[Sequence[Round]], rules: Rules
) -> None:
    longer = [(*tracks[row].rounds, *more) for row, more in zip(rows, rounds, strict=True)]
    for row, together, seen in zip(rows, longer, _figures(longer, rules), strict=True):
        tracks[row] = replace(tracks[row], rounds=together, figures=seen)


def _figures(rows: Sequence[Sequence[Round]], rules: Rules) -> list[Figures]:
    """Figures of rows that may have different numbers of rounds."""
    import numpy as np

    found: dict[int, Figures] = {}
    for count in {len(rounds) for rounds in rows}:
        places = [place for place, rounds in enumerate(rows) if len(rounds) == count]
        data = np.array([rows[place] for place in places], dtype=np.float64)
        clocks = None if np.isnan(data[:, :, 1]).all() else data[:, :, 1]
        found |= dict(zip(places, figures(data[:, :, 0], clocks, rules), strict=True))
    return [found[place] for place in range(len(rows))]
