"""Whether rounds of head against base show a slowdown: numbers in, verdict and reasons out.

Pure and without chance: no clock, no random numbers, neither torch nor triton. A round gives one number per
row, log(head / base). Everything here rests on the median over rounds, which a few disturbed rounds do not
move. Its interval is the bootstrap over rounds, summed up exactly instead of drawn, as Efron did for the
median ("Bootstrap methods: another look at the jackknife", 1979); its test is the sign test; Benjamini and
Hochberg's procedure (1995) bounds the share of false alarms over all rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[np.float64]]

SAME, FASTER, SLOWER, AMBIGUOUS, INCOMPARABLE = VERDICTS = (
    "SAME", "FASTER", "SLOWER", "AMBIGUOUS", "INCOMPARABLE",
)  # fmt: skip
FLOORS = {"kernel": 0.01, "graph": 0.01, "call": 0.03}


@dataclass(frozen=True)
class Rules:
    """What a verdict needs.

    floor: a ratio of 1 + floor is the smallest slowdown that matters. looks: rounds after which a row is
    judged; error rates are split evenly over them. confirming: fresh rounds that confirm a slowdown, or as
    many as it was found with, if fewer. alpha: of a one-sided bound of the interval, all looks
    together. fdr: share of false alarms that the rows may hold, all looks together. noise_multiple: of the
    row's own A/A noise that a change must exceed, too. clock_share: of a change that the clocks may
    explain.
    """

    floor: float = 0.01
    looks: tuple[int, ...] = (6, 10, 18, 34, 64)
    confirming: int = 16
    alpha: float = 0.05
    fdr: float = 0.05
    noise_multiple: float = 3.0
    clock_share: float = 0.5

    @property
    def bound_level(self) -> float:
        """Error of one bound at one look."""
        return self.alpha / len(self.looks)

    @property
    def row_level(self) -> float:
        """False discovery rate at one look."""
        return self.fdr / len(self.looks)


@dataclass(frozen=True)
class Figures:
    """What the rounds of one row say; all in logs of head over base.

    change: the median; lower, upper: its one-sided bounds; p_slower: of the sign test; scatter:
    standard deviation of one round, as seen here; normalised: the median after times became cycles, None
    without readings of the clocks.
    """

    rounds: int
    change: float
    lower: float
    upper: float
    p_slower: float
    scatter: float
    normalised: float | None = None

    @property
    def ratio(self) -> float:
        return math.exp(self.change)


@dataclass(frozen=True)
class Judgement:
    """threshold: the log ratio that a change had to exceed."""

    verdict: str
    threshold: float
    reasons: tuple[str, ...]


def figures(rounds: Array, clocks: Array | None, rules: Rules) -> list[Figures]:
    """Of rows with equally many rounds. rounds: [rows, n] log ratios of times; clocks: [rows, n] log ratios
    of clocks, NaN where nobody read them; None without any."""
    import numpy as np

    count = rounds.shape[1]
    lower, upper = median_bounds(rounds, rules.bound_level)
    change = np.median(rounds, axis=1)
    # 1.4826 of the median deviation, corrected for few rounds (Croux and Rousseeuw, 1992)
    scatter = 1.4826 * np.median(np.abs(rounds - change[:, None]), axis=1) * count / max(count - 0.8, 0.2)
    cycles: list[float | None] = [None] * len(rounds)
    if clocks is not None:
        read = ~np.isnan(clocks)
        both = rounds + clocks
        cycles = [float(np.median(b[r])) if r.any() else None for b, r in zip(both, read, strict=True)]
    tails = _sign_tails(count)
    slower = [tails[int(n)] for n in (rounds > 0).sum(axis=1)]
    columns = (change.tolist(), lower.tolist(), upper.tolist(), slower, scatter.tolist(), cycles)
    return [Figures(count, *values) for values in zip(*columns, strict=True)]


@cache
def _sign_tails(count: int) -> tuple[float, ...]:
    """P(at least k of `count` fair coins), for k = 0 .. count."""
    ways = [math.comb(count, k) for k in range(count + 1)]
    return tuple(sum(ways[k:]) / 2**count for k in range(count + 1))


def median_bounds(values: Array, level: float) -> tuple[Array, Array]:
    """One-sided bounds of the medians of values [rows, n]: the `level` and 1 - `level` quantiles of the
    bootstrap's medians, over all n^n resamples."""
    import numpy as np

    low, high, weights = _resampled_medians(values.shape[1])
    ordered = np.sort(values, axis=1)
    medians = (ordered[:, low] + ordered[:, high]) / 2
    order = np.argsort(medians, axis=1)
    # a whisker of rounding must not move a quantile by a step
    below = np.cumsum(weights[order], axis=1) + 1e-12
    sides = [(below < edge).sum(axis=1, keepdims=True) for edge in (level, 1 - level)]
    found = [np.take_along_axis(medians, np.take_along_axis(order, s, 1), 1)[:, 0] for s in sides]
    return found[0], found[1]


@cache
def _resampled_medians(count: int) -> tuple[Any, Any, Any]:
    """The medians that resamples of `count` ordered values can have: places of the two values whose mean
    each is, and its probability."""
    import numpy as np

    half = count // 2
    if count % 2:
        below = [_at_least(count, half + 1, i) for i in range(count + 1)]
        cells = [(i, i, below[i + 1] - below[i]) for i in range(count)]
    else:
        cells = []
        at_most = [_at_least(count, half, i) for i in range(count + 1)]
        for i in range(count):
            # half of the draws up to i (with i among them), half from j on (with j among them)
            lower = (i + 1) ** half - i**half
            apart = [
                (j, math.comb(count, half) * lower * ((count - j) ** half - (count - 1 - j) ** half))
                for j in range(i + 1, count)
            ]
            both = at_most[i + 1] - at_most[i] - sum(ways for _, ways in apart)
            cells += [(i, i, both), *((i, j, ways) for j, ways in apart)]
    low, high, ways = zip(*cells, strict=True)
    total = count**count
    return np.array(low), np.array(high), np.array([way / total for way in ways])


def _at_least(count: int, draws: int, places: int) -> int:
    """Ways in which at least `draws` of `count` draws from as many values fall on the first `places`."""
    return sum(
        math.comb(count, k) * places**k * (count - places) ** (count - k) for k in range(draws, count + 1)
    )


def estimate_noise(scatter: float, rounds: int) -> float:
    """Standard deviation of the median of so many rounds, each of standard deviation `scatter`."""
    return math.sqrt(math.pi / 2) * scatter / math.sqrt(rounds)


def judge(rows: Sequence[Figures], noise: Sequence[float | None], rules: Rules) -> list[Judgement]:
    """All rows of a gate at one look. noise: the standard deviation of a round's log ratio without a change
    (see `regress.noise`), None where nobody measured it; the larger of it and of today's scatter counts."""
    slower = discoveries([row.p_slower for row in rows], rules.row_level)
    return [_judge(*one, rules) for one in zip(rows, noise, slower, strict=True)]


def confirm(row: Figures, noise: float | None, rules: Rules) -> Judgement:
    """A row that was found SLOWER, judged by fresh rounds alone: chosen before they were measured, so it
    has no company to be corrected for."""
    return _judge(row, noise, True, rules)


def discoveries(p_values: Sequence[float], level: float) -> list[bool]:
    """Benjamini and Hochberg: which hypotheses fall at this false discovery rate."""
    ordered = sorted(p_values)
    largest = -1.0
    for rank, p in enumerate(ordered, start=1):
        if p <= level * rank / len(ordered):
            largest = p
    return [p <= largest for p in p_values]


def _judge(row: Figures, noise: float | None, discovered: bool, rules: Rules) -> Judgement:
    floor = math.log1p(rules.floor)
    spread = rules.noise_multiple * estimate_noise(max(row.scatter, noise or 0.0), row.rounds)
    threshold = max(floor, spread)
    what = "the floor" if floor >= spread else f"{rules.noise_multiple:g} x its own noise"
    if row.change > threshold and row.lower > 0:
        doubts = []
        if not discovered:
            doubts.append(f"p = {row.p_slower:.2g} is too much among all rows")
        if row.normalised is not None and row.normalised < (1 - rules.clock_share) * row.change:
            doubts.append(f"in cycles it is {percent(row.normalised)}: the clocks explain most of it")
        words = f"{percent(row.change)} (at least {percent(row.lower)}) is above {percent(threshold)}, {what}"
        return Judgement(AMBIGUOUS if doubts else SLOWER, threshold, (words, *doubts))
    if row.upper < floor:
        if row.change < -threshold and row.upper < 0:
            words = (
                f"{percent(row.change)} (at most {percent(row.upper)}) is past {percent(threshold)}, {what}"
            )
            return Judgement(FASTER, threshold, (words,))
        return Judgement(SAME, threshold, (f"at most {percent(row.upper)}, below the floor",))
    words = f"between {percent(row.lower)} and {percent(row.upper)}"
    if row.lower > 0:
        return Judgement(AMBIGUOUS, threshold, (f"{words}, not above {percent(threshold)} ({what})",))
    return Judgement(AMBIGUOUS, threshold, (f"{words}: neither above 0 nor below the floor",))


def percent(log_ratio: float) -> str:
    """A log ratio as people read it: "+1.52 %"."""
    return f"{100 * math.expm1(log_ratio):+.2f} %"
