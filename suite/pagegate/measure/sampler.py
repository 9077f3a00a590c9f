"""The one way in which anything here is timed: warm up by time, sample in batches, stop by the interval.

This module decides; `measure.gpu` launches. The stopping rule follows nvbench's idea (stop when the
relative error is small enough or the time is up, and say which).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from pagegate.errors import UsageError

from .samples import Reading, Samples, relative_half_width

_MIN_SAMPLES = 20
_MAX_SAMPLES = 2000


@dataclass(frozen=True)
class Launch:
    """One timed launch. late: the device reached the start before the host had enqueued it all, so that
    the time holds the host's delay."""

    seconds: float
    late: bool = False


class Stopwatch(Protocol):
    """Launches one thing. `quantity` names what `take` measures."""

    quantity: str

    def warm(self) -> None:
        """Launch for a while and wait."""

    def take(self, count: int) -> list[Launch]:
        """Time some launches, in order."""

    def slow_down(self) -> None:
        """Give the host more time ahead of the device; called after late launches."""


@dataclass(frozen=True)
class Plan:
    """When to stop. target: of the relative half-width of the median's 95 % interval."""

    warm_s: float = 0.15
    target: float = 0.002
    budget_s: float = 1.0
    batch: int = 20


def sample(
    watch: Stopwatch,
    plan: Plan = Plan(),
    read: Callable[[], Reading] = Reading,
    now: Callable[[], float] = time.monotonic,
) -> Samples:
    """Sample until the interval is narrow enough or the budget is spent.

    Raises UsageError when the host stayed behind the device: then there is no device time to report.
    """
    started = now()
    while True:
        watch.warm()
        if now() - started >= plan.warm_s:
            break
    seconds: list[float] = []
    readings: list[Reading] = []
    throttled = refused = 0
    started = now()
    while True:
        launches = watch.take(plan.batch)
        reading = read()
        good = [launch.seconds for launch in launches if not launch.late]
        refused += len(launches) - len(good)
        if len(good) < len(launches):
            watch.slow_down()
        if good:
            seconds += good
            readings.append(reading)
            throttled += len(good) if reading.reasons else 0
        stop = _stop(seconds, plan, now() - started)
        if stop:
            break
    if not seconds:
        raise UsageError(
            f"{watch.quantity}: required a host that enqueues ahead of the device, found all {refused} "
            "launches late; stop what else keeps this machine's cores busy, or measure the quantity call"
        )
    return Samples(watch.quantity, tuple(seconds), stop, throttled, refused, tuple(readings))


def _stop(seconds: list[float], plan: Plan, spent_s: float) -> str:
    if len(seconds) >= _MIN_SAMPLES and relative_half_width(seconds) <= plan.target:
        return "target"
    return "budget" if spent_s >= plan.budget_s or len(seconds) >= _MAX_SAMPLES else ""
