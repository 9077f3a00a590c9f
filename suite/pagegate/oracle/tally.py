"""What to fuzz, and what a run has seen."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path

from pagegate.cases.features import feature_names
from pagegate.cases.spec import Case

from .results import CheckResult

_MAX_SHARDS, _EXAMPLES_PER_SHARD = 16, 30


@dataclass(frozen=True)
class FuzzPlan:
    """What to fuzz. examples and seconds: whichever ends first; None = no limit. max_relations: per
    case and kernel, None = all. shards, seed: what is drawn; workers: how many processes check it, None = one
    per shard. database: where Hypothesis keeps examples between runs, or None."""

    kernels: tuple[str, ...]
    size: str
    seed: int
    shards: int
    examples: int | None = None
    seconds: float | None = None
    max_relations: int | None = None
    database: Path | None = None
    workers: int | None = None


def shards_for(examples: int | None) -> int:
    """How many searches share a run: decided by its budget and not by the machine, so that a seed draws the
    same cases on all."""
    if examples is None:
        return _MAX_SHARDS
    return max(1, min(_MAX_SHARDS, examples // _EXAMPLES_PER_SHARD))


@dataclass(frozen=True)
class Failure:
    """A shrunk failure, the case it was found with, and how often its kind was seen."""

    result: CheckResult
    found: Case
    steps: int
    repeatable: bool = True
    count: int = 1


@dataclass
class Tally:
    """What a run has seen so far; shared by the shards."""

    cases: int = 0
    checks: Counter[str] = field(default_factory=Counter)
    unsupported: Counter[tuple[str, str]] = field(default_factory=Counter)
    features: Counter[str] = field(default_factory=Counter)
    relations: Counter[str] = field(default_factory=Counter)
    worst: dict[str, CheckResult] = field(default_factory=dict)
    failures: dict[tuple[str, str, str | None], Failure] = field(default_factory=dict)
    running: dict[int, tuple[str, Case, float]] = field(default_factory=dict)
    seconds: float = 0.0
    stalled: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add_case(self, case: Case) -> None:
        with self.lock:
            self.cases += 1
            self.features.update((*feature_names(case.spec), f"profile_{case.profile}", f"dead_{case.dead}"))

    def add(self, result: CheckResult) -> None:
        with self.lock:
            if result.status == "UNSUPPORTED":
                self.unsupported[result.kernel, result.reason] += 1
                return
            self.checks[result.kernel] += 1
            self.relations.update(result.relations)
            if result.status != "PASSED" or result.worst is None:
                return
            before = self.worst.get(result.kernel)
            if before is None or before.worst is None or result.worst.ratio > before.worst.ratio:
                self.worst[result.kernel] = result

    def knows(self, result: CheckResult) -> bool:
        """Count a failure of a kind that was shrunk before; False for a new kind."""
        with self.lock:
            known = self.failures.get(result.signature)
            if known is None:
                return False
            self.failures[result.signature] = replace(known, count=known.count + 1)
            return True
