"""The gate's error rates on simulated machines: the same looks, the same verdicts, drawn rounds.

What is simulated is each visit of a round (base, head, head, base), with everything that was seen to move a
median on a real GPU: where buffers lie, which process it is, the spread of the median itself, drift, clocks,
and rounds that something else disturbed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

from .looks import ROUNDS_PER_PROCESS, Round, run_looks
from .noise import scatter_of
from .verdict import AMBIGUOUS, SLOWER, Rules

if TYPE_CHECKING:
    import numpy as np

ROWS = 20
AA_ROUNDS = 160  # behind each row's stored noise: 20 gates of eight rounds
_BATCH = 250


@dataclass(frozen=True)
class Machine:
    """Standard deviations of a median's logarithm: between placements, between processes, of a repeat, and
    of the drift from visit to visit (half of it along a line, half at random). disturbed: share of rounds in
    which one side is slower by `disturbance`. start_s, row_s: seconds that a pair of processes costs, and a
    row in a round.
    """

    name: str
    placement: float
    process: float
    repeat: float = 0.002
    drift: float = 0.001
    disturbed: float = 0.03
    disturbance: float = 0.10
    start_s: float = 5.0
    row_s: float = 0.45


QUIET = Machine("quiet", placement=0.003, process=0.002)
NOISY = Machine("noisy", placement=0.02, process=0.01)


@dataclass(frozen=True)
class Scenario:
    """So many builds on a machine in which one row of all is slower by `change`; 0: none is.

    wanted: at least this share of the builds red for their slowed row, or, without a change, at most this
    share red."""

    machine: Machine
    change: float
    builds: int
    wanted: float
    rows: int = ROWS
    budget_s: float = 600.0
    rules: Rules = field(default=Rules())


SCENARIOS = (
    Scenario(QUIET, 0.0, 2000, 0.001),
    Scenario(QUIET, 0.005, 1000, 0.001),
    Scenario(QUIET, 0.015, 2000, 0.95),
    Scenario(QUIET, 0.03, 2000, 0.999),
    Scenario(NOISY, 0.0, 2000, 0.001),
    Scenario(NOISY, 0.05, 1000, 0.90),
)


@dataclass(frozen=True)
class Counts:
    """Of builds: red; red on the slowed row (found), red on another (wrong); the slowed row called SAME or
    FASTER (missed); ambiguous but not red; rounds per build, and its seconds."""

    builds: int = 0
    red: int = 0
    found: int = 0
    wrong: int = 0
    missed: int = 0
    ambiguous: int = 0
    rounds: int = 0
    seconds: float = 0.0

    def __add__(self, other: Counts) -> Counts:
        mine, theirs = asdict(self), asdict(other)
        return Counts(**{name: mine[name] + theirs[name] for name in mine})


@dataclass(frozen=True)
class Rate:
    """A share of builds with its 95 % interval (Clopper and Pearson)."""

    count: int
    of: int

    @property
    def share(self) -> float:
        return self.count / self.of

    @property
    def interval(self) -> tuple[float, float]:
        from scipy.stats import binomtest

        low, high = binomtest(self.count, self.of).proportion_ci(method="exact")
        return float(low), float(high)


@dataclass(frozen=True)
class Outcome:
    scenario: Scenario
    counts: Counts

    @property
    def rate(self) -> Rate:
        """What the scenario asks for: detections, or false alarms where nothing matters."""
        changed = self.scenario.change > self.scenario.rules.floor
        return Rate(self.counts.found if changed else self.counts.red, self.counts.builds)

    @property
    def holds(self) -> bool:
        """Also where a row is slowed, the others may not be red more often than without."""
        if self.scenario.change > self.scenario.rules.floor:
            return self.rate.share >= self.scenario.wanted and self.counts.wrong <= 0.001 * self.counts.builds
        return self.rate.share <= self.scenario.wanted

    def to_json(self) -> dict[str, Any]:
        low, high = self.rate.interval
        return {
            "scenario": asdict(self.scenario), "counts": asdict(self.counts), "share": self.rate.share,
            "interval": [low, high], "holds": self.holds,
        }  # fmt: skip


def simulate(scenarios: Iterable[Scenario] = SCENARIOS, seed: int = 0, workers: int = 2) -> Iterator[Outcome]:
    """Outcomes in order, each as soon as it is known. The same seed gives the same counts for any number of
    workers: each batch of builds draws from a stream of its own."""
    scenarios = list(scenarios)
    jobs = [
        (scenario, seed, place, first, min(_BATCH, scenario.builds - first))
        for place, scenario in enumerate(scenarios)
        for first in range(0, scenario.builds, _BATCH)
    ]
    # not fork: the command line has threads
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        results = pool.map(_batch, *zip(*jobs, strict=True))
        for place, scenario in enumerate(scenarios):
            batches = sum(job[2] == place for job in jobs)
            counts = sum((next(results) for _ in range(batches)), Counts())
            yield Outcome(scenario, counts)


def _batch(scenario: Scenario, seed: int, place: int, first: int, builds: int) -> Counts:
    import numpy as np

    draws = np.random.default_rng([seed, place, first])
    return sum((_build(scenario, draws) for _ in range(builds)), Counts())


def _build(scenario: Scenario, draws: np.random.Generator) -> Counts:
    """One gate over all rows; the slowed one is drawn, too."""
    machine, spent, taken = scenario.machine, 0.0, 0
    slowed = int(draws.integers(scenario.rows)) if scenario.change else -1
    changes = [math.log1p(scenario.change) if row == slowed else 0.0 for row in range(scenario.rows)]
    aa = draw_rounds(machine, [0.0] * scenario.rows, AA_ROUNDS, draws)
    noise = [scatter_of([one.time for one in rounds]) for rounds in aa]

    def cost_s(rows: Sequence[int], count: int) -> float:
        starts = math.ceil(count / ROUNDS_PER_PROCESS)
        return starts * machine.start_s + count * machine.row_s * len(rows)

    def measure(rows: Sequence[int], count: int) -> list[list[Round]]:
        nonlocal spent, taken
        spent += cost_s(rows, count)
        taken += count
        return draw_rounds(machine, [changes[row] for row in rows], count, draws)

    def affords(rows: Sequence[int], count: int) -> bool:
        return spent + cost_s(rows, count) <= scenario.budget_s

    verdicts = [track.judgement.verdict for track in run_looks(noise, scenario.rules, measure, affords)]
    slower = {row for row, verdict in enumerate(verdicts) if verdict == SLOWER}
    return Counts(
        1,
        red=bool(slower),
        found=slowed in slower,
        wrong=bool(slower - {slowed}),
        missed=slowed >= 0 and verdicts[slowed] not in (SLOWER, AMBIGUOUS),
        ambiguous=not slower and AMBIGUOUS in verdicts,
        rounds=taken,
        seconds=spent,
    )


def draw_rounds(
    machine: Machine, changes: Sequence[float], count: int, draws: np.random.Generator
) -> list[list[Round]]:
    """Rounds of rows whose head is slower by a log ratio."""
    import numpy as np

    shape = (len(changes), count)
    # what both visits of a side share; a process stays for several rounds
    processes = (2, len(changes), math.ceil(count / ROUNDS_PER_PROCESS))
    own = draws.normal(0, machine.process, processes).repeat(ROUNDS_PER_PROCESS, axis=2)[:, :, :count]
    own = own + draws.normal(0, machine.placement, (2, *shape))
    own[1] += np.asarray(changes)[:, None]
    hit = draws.random(shape) < machine.disturbed
    own += (
        hit * (np.arange(2)[:, None, None] == draws.integers(2, size=shape)) * math.log1p(machine.disturbance)
    )
    steps = draws.normal(0, machine.drift / math.sqrt(2), (4, *shape)).cumsum(axis=0)
    slope = draws.normal(0, machine.drift / math.sqrt(2), shape)
    noise = steps + slope * np.arange(4)[:, None, None] + draws.normal(0, machine.repeat, (4, *shape))
    base, head, again, last = noise + own[[0, 1, 1, 0]]
    times = (head + again) / 2 - (base + last) / 2
    # clocks are read in steps of 15 MHz; the mean of two readings of each side
    clocks = np.log(1980 - 15 * (draws.random((2, 2, *shape)) < 0.3)).mean(axis=1)
    return [
        [Round(t, c) for t, c in zip(*row, strict=True)]
        for row in zip(times.tolist(), (clocks[1] - clocks[0]).tolist(), strict=True)
    ]
