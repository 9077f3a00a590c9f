"""What a gate found, as data: everything that any report shows."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from .looks import Track
from .noise import Noise
from .rounds import SIDES, Visits
from .verdict import AMBIGUOUS, FASTER, INCOMPARABLE, SAME, SLOWER, Rules

FORMAT_VERSION = 1
PASSED, WRONG, UNUSABLE = "PASSED", "WRONG", "UNUSABLE"
# the worst first
_ORDER = (SLOWER, AMBIGUOUS, INCOMPARABLE, FASTER, SAME)


@dataclass(frozen=True)
class Failure:
    """A side that is wrong or could not be measured. status: of the check, or FAILED."""

    side: str
    row: str
    status: str
    words: str


@dataclass(frozen=True)
class RowResult:
    """One row. verdict: of `verdict.VERDICTS`, or UNSUPPORTED on both sides; why: what differs between the
    sides, for a row that is SLOWER."""

    workload: str
    kernel: str
    quantity: str
    verdict: str
    reasons: tuple[str, ...]
    digest: str = ""
    visits: tuple[Visits, ...] = ()
    track: Track | None = None
    noise: Noise | None = None
    why: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.workload} {self.kernel} {self.quantity}"

    def median_s(self, side: str) -> float | None:
        """Of a side: the median of its visits' medians."""
        medians = [samples.median for visits in self.visits for samples in getattr(visits, side)]
        return statistics.median(medians) if medians else None

    def to_json(self) -> dict[str, Any]:
        """Every sample included."""
        track = self.track
        data: dict[str, Any] = {
            "workload": self.workload, "kernel": self.kernel, "quantity": self.quantity,
            "digest": self.digest, "verdict": self.verdict, "reasons": list(self.reasons),
            "why": list(self.why), "rounds": [visits.to_json() for visits in self.visits],
        }  # fmt: skip
        if self.noise:
            data["noise"] = asdict(self.noise)
        if track is not None and track.figures is not None:
            data |= {f"{side}_s": self.median_s(side) for side in SIDES}
            data["figures"] = asdict(track.figures)
            data["log_ratios"] = [one.time for one in track.rounds]
            data["threshold"] = track.judgement.threshold
            data["confirmation"] = asdict(track.confirmation) if track.confirmation else None
        return data


@dataclass(frozen=True)
class GateResult:
    """base, head: of `Revision.to_json`; seconds: by phase; rounds_s: what rounds spent them on (see
    `rounds.Rounds`)."""

    base: Mapping[str, Any]
    head: Mapping[str, Any]
    quantity: str
    rules: Rules
    budget_s: float
    environment: Mapping[str, Any]
    rows: tuple[RowResult, ...]
    failures: tuple[Failure, ...] = ()
    notes: tuple[str, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    rounds_s: Mapping[str, float] = field(default_factory=dict)
    command: str = ""

    @property
    def counts(self) -> dict[str, int]:
        found = dict.fromkeys(_ORDER, 0)
        for row in self.rows:
            found[row.verdict] = found.get(row.verdict, 0) + 1
        return {verdict: count for verdict, count in found.items() if count}

    def outcome(self, allow_ambiguous: bool = False, allow_missing: bool = False) -> str:
        """PASSED, or the worst that happened: WRONG (head), UNUSABLE (base), SLOWER, AMBIGUOUS or
        INCOMPARABLE. Nothing compared at all is INCOMPARABLE, whatever is allowed."""
        sides = {failure.side for failure in self.failures}
        counts = self.counts
        compared = sum(counts.get(verdict, 0) for verdict in (SLOWER, AMBIGUOUS, FASTER, SAME))
        holds = {
            WRONG: "head" in sides,
            UNUSABLE: "base" in sides,
            SLOWER: SLOWER in counts,
            AMBIGUOUS: AMBIGUOUS in counts and not allow_ambiguous,
            INCOMPARABLE: not compared or (INCOMPARABLE in counts and not allow_missing),
        }
        return next((word for word, held in holds.items() if held), PASSED)

    def worst_first(self) -> list[RowResult]:
        def place(row: RowResult) -> tuple[int, float]:
            order = _ORDER.index(row.verdict) if row.verdict in _ORDER else len(_ORDER)
            figures = row.track.figures if row.track else None
            return order, -figures.change if figures else math.inf

        return sorted(self.rows, key=place)

    def to_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT_VERSION,
            "outcome": self.outcome(),
            "counts": self.counts,
            "base": dict(self.base),
            "head": dict(self.head),
            "quantity": self.quantity,
            "rules": asdict(self.rules),
            "budget_s": self.budget_s,
            "environment": dict(self.environment),
            "failures": [asdict(failure) for failure in self.failures],
            "notes": list(self.notes),
            "seconds": dict(self.seconds),
            "rounds_s": dict(self.rounds_s),
            "command": self.command,
            "rows": [row.to_json() for row in self.rows],
        }
