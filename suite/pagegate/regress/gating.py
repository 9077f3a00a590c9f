"""A gate from two revisions to verdicts: select, check head, compile, look after look, explain."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pagegate.oracle.results import CheckResult

from .looks import Round, run_looks
from .noise import LEAST_ROUNDS, Noise, load, noise_path
from .outcome import Failure, GateResult, RowResult
from .revisions import Revision
from .rounds import BEGIN, SIDES, Rounds, Row, SideFailed, SideWorker, Start, Visits
from .survey import Check, Selection, compile_all, unequal_support
from .verdict import AMBIGUOUS, INCOMPARABLE, SLOWER, Rules
from .why import differences

UNSUPPORTED = "UNSUPPORTED"


@dataclass(frozen=True)
class Settings:
    """How to gate. launches: timed at each visit; budget_s: of rounds; workers: processes that compile;
    ahead: start the next round's workers early (they only import; not where the host is timed)."""

    rules: Rules = field(default=Rules())
    budget_s: float = 600.0
    launches: int = 8
    workers: int = 4
    ahead: bool = True


@dataclass
class Progress:
    """Where a gate is, for whoever shows it. rounds: so far, by row name."""

    phase: str = ""
    done: int = 0
    total: int = 0
    note: str = ""
    rounds: dict[str, list[Round]] = field(default_factory=dict)


Observer = Callable[[Progress], None]


class Gate:
    """One gate. command: how a side's worker is started (see `regress.worker`); check: None does not check.

    noise: role -> stored noise by row name; plants: see `rounds.Rounds`.
    """

    def __init__(
        self,
        base: Revision,
        head: Revision,
        commands: tuple[Sequence[str], Sequence[str]],
        check: Check | None,
        settings: Settings = Settings(),
        noise: Callable[[str], Mapping[str, Noise]] = lambda role: {},
        observe: Observer = lambda progress: None,
        device: str = "cuda",
        plants: Mapping[str, float] = {},
    ):
        self._revisions = (base, head)
        self._base, self._head = (
            Start(side, revision.kernels, tuple(command), revision.sources, device=device)
            for side, revision, command in zip(SIDES, (base, head), commands, strict=True)
        )
        self._check = check
        self._settings = settings
        self._noise = noise
        self._observe = observe
        self._plants = plants
        self._progress = Progress()
        self._began = time.monotonic()
        self._seconds: dict[str, float] = {}
        self._spent: dict[str, float] = {}
        self._visits: dict[str, list[Visits]] = {}
        self._environment: dict[str, Any] = {}
        self._rows: list[RowResult] = []
        self._notes: list[str] = []
        self._failures: list[Failure] = []

    def run(self, selection: Selection, kernels: Sequence[str], quantity: str) -> GateResult:
        """Everything, in order; a side that fails ends it, and what was measured until then stays."""
        rows = [Row(w.name, w.case, k, quantity) for w in selection.workloads for k in kernels]
        self._notes += selection.notes
        self._rows += [
            RowResult(name, kernel, quantity, INCOMPARABLE, (reason,))
            for name, reason in selection.incomparable.items()
            for kernel in kernels
        ]
        settings = self._settings
        try:
            # the first pair of workers imports while the survey goes on
            with Rounds(
                self._base, self._head, settings.launches, self._on_row, settings.ahead, self._plants
            ) as rounds:
                rows = self._survey(rows)
                if rows and not self._failures:
                    self._compare(rows, rounds)
            self._explain(rows)
        except SideFailed as failed:
            name = failed.row.name if failed.row else ""
            self._failures.append(Failure(failed.side, name, "FAILED", failed.words))
            measured = {row.name for row in self._rows}
            self._rows += [
                self._result(row, AMBIGUOUS, ("the gate ended before it was decided",))
                for row in rows
                if row.name not in measured
            ]
        self._enter("done", 0)
        base, head = (revision.to_json() for revision in self._revisions)
        return GateResult(
            base, head, quantity, self._settings.rules, self._settings.budget_s, self._environment,
            tuple(self._rows), tuple(self._failures), tuple(self._notes), self._seconds, self._spent,
        )  # fmt: skip

    def _survey(self, rows: list[Row]) -> list[Row]:
        """Check head and compile; returns what both sides support."""
        if not rows:
            return []
        if self._check is not None:
            self._enter("check head", len(rows))
            results = self._check(self._head, rows, lambda row, result: self._step(row.name))
            self._failures += [_wrong(row, r) for row, r in zip(rows, results, strict=True) if r.failed]
            if self._failures:
                return []
        self._enter("compile", 2 * len(rows))
        reasons, self._environment = compile_all(
            (self._base, self._head), rows, self._settings.workers, lambda row: self._step(row.name)
        )
        one, neither = unequal_support(rows, reasons)
        self._rows += [self._result(r, INCOMPARABLE, (one[r.name],)) for r in rows if r.name in one]
        self._rows += [self._result(r, UNSUPPORTED, (neither[r.name],)) for r in rows if r.name in neither]
        return [row for row in rows if row.name not in one and row.name not in neither]

    def _compare(self, rows: list[Row], rounds: Rounds) -> None:
        stored = self._stored_noise(rows)
        started = time.monotonic()
        self._spent = rounds.spent

        def measure(chosen: Sequence[int], count: int) -> list[list[Round]]:
            words = f"{count} rounds of {len(chosen)} rows"
            self._enter("measure", count * len(chosen), words)
            measured = rounds.measure([rows[place] for place in chosen], count)
            return [[visits.round() for visits in row] for row in measured]

        def affords(chosen: Sequence[int], count: int) -> bool:
            spent = time.monotonic() - started
            return spent + rounds.expected_s(len(chosen), count) <= self._settings.budget_s

        known = [noise.scatter if noise else None for noise in stored]
        tracks = run_looks(known, self._settings.rules, measure, affords)
        for row, track, noise in zip(rows, tracks, stored, strict=True):
            result = self._result(row, track.judgement.verdict, track.judgement.reasons)
            self._rows.append(replace(result, track=track, noise=noise))

    def _on_row(self, row: Row, visits: Visits) -> None:
        self._visits.setdefault(row.name, []).append(visits)
        self._progress.rounds.setdefault(row.name, []).append(visits.round())
        self._step(row.name)

    def _stored_noise(self, rows: Sequence[Row]) -> list[Noise | None]:
        known = self._noise(str(self._environment.get("role", "")))
        found = [known.get(row.name) for row in rows]
        fitting = [
            n if n and n.digest == row.digest and n.rounds >= LEAST_ROUNDS else None
            for n, row in zip(found, rows, strict=True)
        ]
        missing = sum(noise is None for noise in fitting)
        if missing:
            self._notes.append(
                f"no A/A noise is stored for {missing} of {len(rows)} rows: today's scatter stands in "
                "(`pagegate gate --self-test` measures it)"
            )
        return fitting

    def _explain(self, rows: Sequence[Row]) -> None:
        """What differs, for each row that is SLOWER; an explanation that fails is no failure of the side."""
        slower = {row.name for row in self._rows if row.verdict == SLOWER}
        chosen = [row for row in rows if row.name in slower]
        if not chosen:
            return
        self._enter("explain", len(chosen))
        pair = [SideWorker(start) for start in (self._base, self._head)]
        try:
            for row in chosen:
                try:
                    facts = [_explanation(worker, row) for worker in pair]
                    why = tuple(differences(*facts))
                except SideFailed as failed:
                    why = (f"could not be explained: {failed}",)
                self._rows = [replace(r, why=why) if r.name == row.name else r for r in self._rows]
                self._step(row.name)
        finally:
            for worker in pair:
                worker.stop()

    def _result(self, row: Row, verdict: str, reasons: tuple[str, ...]) -> RowResult:
        visits = tuple(self._visits.get(row.name, ()))
        return RowResult(row.workload, row.kernel, row.quantity, verdict, reasons, row.digest, visits)

    def _enter(self, phase: str, total: int, note: str = "") -> None:
        now = time.monotonic()
        previous = self._progress.phase
        if previous:
            self._seconds[previous] = self._seconds.get(previous, 0.0) + now - self._began
        self._began = now
        self._progress.phase, self._progress.done, self._progress.total = phase, 0, total
        self._progress.note = note
        self._observe(self._progress)

    def _step(self, note: str) -> None:
        self._progress.done += 1
        self._observe(self._progress)


def _wrong(row: Row, result: CheckResult) -> Failure:
    return Failure("head", row.name, result.status, result.reason)


def _explanation(worker: SideWorker, row: Row) -> dict[str, Any]:
    worker.ask(BEGIN, row)
    worker.ask(row.request(0), row)
    return worker.ask({"action": "explain"}, row)


def worker_command(plugins: Sequence[str]) -> list[str]:
    """The command of a side's worker."""
    words = [word for plugin in plugins for word in ("--plugin", plugin)]
    return [sys.executable, "-P", "-m", "pagegate.regress.worker", *words]


def default_noise(folder: Path) -> Callable[[str], Mapping[str, Noise]]:
    """Stored noise by role, from a folder of baselines; empty where there is none."""

    def find(role: str) -> Mapping[str, Noise]:
        path = noise_path(role, folder)
        return load(path) if role and path.exists() else {}

    return find
