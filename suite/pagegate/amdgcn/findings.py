"""What a run reports besides its results: accesses out of bounds, races, hazards, and coverage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from .text import Line


@dataclass(frozen=True)
class Finding:
    """One kind of misbehaviour at one instruction. `detail` describes its first occurrence."""

    kind: str
    kernel: str
    line: Line
    detail: str
    count: int = 1

    def __str__(self) -> str:
        times = f" ({self.count} times)" if self.count > 1 else ""
        return f"{self.kind} in {self.kernel}, {self.line}: {self.detail}{times}"


class Findings:
    """Collects findings of one kernel, one entry per kind and instruction."""

    def __init__(self, kernel: str, lines: tuple[Line, ...]) -> None:
        self.kernel = kernel
        self.lines = lines
        self.current = 0
        self._details: dict[tuple[str, int], str] = {}
        self._counts: Counter[tuple[str, int]] = Counter()

    def add(self, kind: str, detail: str, at: int | None = None) -> None:
        """Note misbehaviour of the instruction `at` (an index; the current one if None)."""
        key = (kind, self.current if at is None else at)
        self._details.setdefault(key, detail)
        self._counts[key] += 1

    def merge(self, entries: Iterable[tuple[str, int, str, int]]) -> None:
        for kind, at, detail, count in entries:
            self._details.setdefault((kind, at), detail)
            self._counts[kind, at] += count

    def raw(self) -> list[tuple[str, int, str, int]]:
        return [(kind, at, self._details[kind, at], count) for (kind, at), count in self._counts.items()]

    def report(self) -> tuple[Finding, ...]:
        return tuple(
            Finding(kind, self.kernel, self.lines[at], detail, count)
            for kind, at, detail, count in self.raw()
        )
