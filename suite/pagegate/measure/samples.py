"""Samples and what may be said of them. Pure; standard library only."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

QUANTITIES = ("kernel", "graph", "call")
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Reading:
    """What the machine said of itself around some samples. reasons: of throttling that distorts."""

    sm_mhz: int | None = None
    memory_mhz: int | None = None
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class Samples:
    """Seconds of single launches, in the order they were taken.

    quantity: "kernel" (device time, cold L2), "graph" (share of a graph's replay, inputs rotated) or
    "call" (host: from the call to completion, warm). throttled: how many were taken while a reading gave
    a reason; they are in `seconds`, not dropped. refused: launches that the host did not enqueue in time,
    which are no kernel time and not in `seconds`. stopped: "target" or "budget".
    """

    quantity: str
    seconds: tuple[float, ...]
    stopped: str
    throttled: int = 0
    refused: int = 0
    readings: tuple[Reading, ...] = ()

    def __post_init__(self) -> None:
        if not self.seconds or not all(second > 0 for second in self.seconds):
            raise ValueError(f"seconds: required at least one, all above 0, found {self.seconds[:3]}")

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def interval(self) -> tuple[float, float]:
        return median_interval(self.seconds)

    @property
    def half_width(self) -> float:
        """Half of the median's interval over the median."""
        return relative_half_width(self.seconds)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: dict[str, Any]) -> Samples:
        readings = tuple(Reading(**{**r, "reasons": tuple(r["reasons"])}) for r in data["readings"])
        return Samples(**{**data, "seconds": tuple(data["seconds"]), "readings": readings})


def median_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float]:
    """A distribution-free interval for the median, from order statistics (binomial with p = 1/2).

    With too few values for the confidence it is their whole range.
    """
    ordered = sorted(values)
    count = len(ordered)
    if count == 0:
        raise ValueError("median_interval: required at least one value, found none")
    tail = (1 - confidence) / 2
    below, lower = 0.0, 0
    for k in range(count // 2 + 1):
        below += math.comb(count, k) * 0.5**count
        if below > tail:
            lower = k
            break
    return ordered[max(lower - 1, 0)], ordered[min(count - lower, count - 1)]


def relative_half_width(values: Sequence[float]) -> float:
    low, high = median_interval(values)
    median = statistics.median(values)
    return (high - low) / 2 / median if median > 0 else math.inf
