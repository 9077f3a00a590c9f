"""One round: each row with fresh buffers, timed base, head, head, base (or the other way round).

Both sides get the same placement of pages. A pair of worker processes stays for two rounds, and each request
for rounds begins with a fresh one. While one side is timed, the other waits for its next request; the workers
of the next pair only import.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagegate.cases.spec import Case
from pagegate.measure.samples import Samples
from pagegate.oracle.isolation import Setup, Worker, WorkerLost

from .looks import ROUNDS_PER_PROCESS, Round

BASE, HEAD = SIDES = ("base", "head")
BEGIN = {"action": "begin"}


@dataclass(frozen=True)
class Row:
    """What is compared: one workload, kernel and quantity."""

    workload: str
    case: Case
    kernel: str
    quantity: str

    @property
    def name(self) -> str:
        return f"{self.workload} {self.kernel} {self.quantity}"

    @property
    def digest(self) -> str:
        return self.case.spec.digest()

    def request(self, placement: int) -> dict[str, Any]:
        return {
            "action": "prepare", "case": self.case.to_json(), "kernel": self.kernel,
            "quantity": self.quantity, "placement": placement,
        }  # fmt: skip


@dataclass(frozen=True)
class Visits:
    """What one round measured of one row: two visits to each side; first: the side that came first and
    last."""

    first: str
    base: tuple[Samples, Samples]
    head: tuple[Samples, Samples]

    def round(self) -> Round:
        """The mean of a side's two log medians cancels what drifts along a line."""
        times = [statistics.fmean(math.log(s.median) for s in side) for side in (self.base, self.head)]
        clocks = [_clock(side) for side in (self.base, self.head)]
        known = all(clock > 0 for clock in clocks)
        return Round(times[1] - times[0], math.log(clocks[1] / clocks[0]) if known else math.nan)

    def to_json(self) -> dict[str, Any]:
        sides = {name: [s.to_json() for s in getattr(self, name)] for name in SIDES}
        return {"first": self.first} | sides


def _clock(visits: Sequence[Samples]) -> float:
    """Mean clock in MHz over a side's readings; 0 where a visit has none."""
    means = []
    for visit in visits:
        read = [reading.sm_mhz for reading in visit.readings if reading.sm_mhz]
        if not read:
            return 0.0
        means.append(statistics.fmean(read))
    return statistics.fmean(means)


class SideFailed(Exception):
    """A side that could not be measured: which, on what, and its last words."""

    def __init__(self, side: str, row: Row | None, words: str):
        super().__init__(f"{side}{f', {row.name}' if row else ''}: {words}")
        self.side, self.row, self.words = side, row, words


@dataclass(frozen=True)
class Start:
    """How one side's workers are started; command: see `oracle.isolation.Worker`; sources: of the
    `paged_kernels` that they have to find (see `measure.subject`)."""

    side: str
    kernels: Path
    command: tuple[str, ...]
    sources: str
    timeout_s: float = 180.0
    device: str = "cuda"

    def worker(self) -> Worker:
        return Worker(Setup(self.device, kernels_root=self.kernels, timeout_s=self.timeout_s), self.command)


class SideWorker:
    """A worker whose losses and failures carry the name of its side."""

    def __init__(self, start: Start):
        self.side = start.side
        self._start = start
        self._worker = start.worker()

    def start(self) -> None:
        self._worker.start()

    def stop(self) -> None:
        self._worker.stop()

    def ask(self, request: dict[str, Any], row: Row | None) -> dict[str, Any]:
        """Raises SideFailed when the worker is lost or its kernel failed."""
        self.send(request, row)
        return self.receive(row)

    def send(self, request: dict[str, Any], row: Row | None) -> None:
        try:
            self._worker.send(request)
        except WorkerLost as lost:
            raise SideFailed(self.side, row, lost.reason) from None

    def receive(self, row: Row | None) -> dict[str, Any]:
        try:
            answer = self._worker.receive()
        except WorkerLost as lost:
            raise SideFailed(self.side, row, lost.reason) from None
        if "failed" in answer:
            raise SideFailed(self.side, row, answer["failed"])
        return answer


class Rounds:
    """Measures rounds; knows what they cost. Use it in a with statement.

    plants: row name -> share by which head is slowed down, for tests of the gate itself; spent: seconds by
    what they went into: start (of a pair of processes), prepare (buffers, graphs), sample.
    """

    def __init__(
        self,
        base: Start,
        head: Start,
        launches: int,
        on_row: Callable[[Row, Visits], None] = lambda row, visits: None,
        ahead: bool = True,
        plants: Mapping[str, float] = {},
    ):
        self._starts = (base, head)
        self._launches = launches
        self._on_row = on_row
        self._ahead = ahead
        self._plants = plants
        self._next: list[SideWorker] | None = None
        self._number = 0
        self._pairs = self._rows = 0
        self.spent = dict.fromkeys(("start", "prepare", "sample"), 0.0)

    def __enter__(self) -> Rounds:
        if self._ahead:
            self._next = self._pair()
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._next or ():
            worker.stop()
        self._next = None

    def measure(self, rows: Sequence[Row], count: int) -> list[list[Visits]]:
        """So many rounds, row by row. Raises SideFailed."""
        measured: list[list[Visits]] = [[] for _ in rows]
        for first in range(0, count, ROUNDS_PER_PROCESS):
            for one in self._by_one_pair(rows, min(ROUNDS_PER_PROCESS, count - first)):
                for place, visits in enumerate(one):
                    measured[place].append(visits)
        return measured

    def _by_one_pair(self, rows: Sequence[Row], count: int) -> list[list[Visits]]:
        began = time.monotonic()
        pair, self._next = self._next or self._pair(), None
        try:
            for worker in pair:
                worker.send(BEGIN, None)
            for worker in pair:
                worker.receive(None)
            self._pairs += 1
            self.spent["start"] += time.monotonic() - began
            if self._ahead:
                self._next = self._pair()
            return [self._round(pair, rows) for _ in range(count)]
        finally:
            for worker in pair:
                worker.stop()

    def _round(self, pair: Sequence[SideWorker], rows: Sequence[Row]) -> list[Visits]:
        found = {row.name: self._measure_row(pair, row) for row in _rotated(rows, self._number)}
        self._number += 1
        return [found[row.name] for row in rows]

    def expected_s(self, rows: int, count: int) -> float:
        """What so many rounds would take, by those before."""
        if not self._pairs:
            return 0.0
        starts = math.ceil(count / ROUNDS_PER_PROCESS)
        row = (self.spent["prepare"] + self.spent["sample"]) / max(self._rows, 1)
        return starts * self.spent["start"] / self._pairs + count * rows * row

    def _pair(self) -> list[SideWorker]:
        pair = [SideWorker(start) for start in self._starts]
        for worker in pair:
            worker.start()
        return pair

    def _measure_row(self, pair: Sequence[SideWorker], row: Row) -> Visits:
        began = time.monotonic()
        for worker in pair:
            worker.send(row.request(self._number) | self._plant(worker, row), row)
        for worker in pair:
            answer = worker.receive(row)
            if "unsupported" in answer:
                raise SideFailed(worker.side, row, f"UNSUPPORTED, which it was not before: {answer}")
        ready = time.monotonic()
        first, second = pair if self._number % 2 == 0 else pair[::-1]
        taken: dict[str, list[Samples]] = {BASE: [], HEAD: []}
        for worker in (first, second, second, first):
            taken[worker.side].append(self._sample(worker, row))
        visits = Visits(first.side, (taken[BASE][0], taken[BASE][1]), (taken[HEAD][0], taken[HEAD][1]))
        self._rows += 1
        self.spent["prepare"] += ready - began
        self.spent["sample"] += time.monotonic() - ready
        self._on_row(row, visits)
        return visits

    def _plant(self, worker: SideWorker, row: Row) -> dict[str, Any]:
        """Both sides' graphs are as long; in head's, a share of the launches is done twice."""
        share = self._plants.get(row.name, 0.0)
        return {"least": math.ceil(1 / share), "extra": share * (worker.side == HEAD)} if share else {}

    def _sample(self, worker: SideWorker, row: Row) -> Samples:
        answer = worker.ask({"action": "sample", "launches": self._launches}, row)
        try:
            return Samples.from_json(answer)
        except (KeyError, TypeError, ValueError) as error:
            raise SideFailed(worker.side, row, f"required samples, found {error!r}") from None


def _rotated(rows: Sequence[Row], number: int) -> list[Row]:
    """Another row first in each round, so that no row always follows the start."""
    turn = (7 * number) % len(rows)
    return [*rows[turn:], *rows[:turn]]
