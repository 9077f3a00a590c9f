"""What launches showed, as plain data: coverage per compiled kernel, findings, instructions executed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .findings import Finding
from .run import Outcome
from .text import Line


@dataclass(frozen=True)
class Coverage:
    """One compiled variant of a kernel. executed: per line, whether any wave ran it.

    Lines before the entry (argument loads for old firmware) are not counted.
    """

    kernel: str
    digest: str
    target: str
    lines: tuple[Line, ...]
    executed: tuple[bool, ...]

    @property
    def share(self) -> float:
        return sum(self.executed) / max(len(self.executed), 1)

    @property
    def missed(self) -> tuple[Line, ...]:
        return tuple(line for line, ran in zip(self.lines, self.executed, strict=True) if not ran)

    def to_json(self) -> dict[str, Any]:
        return {
            "kernel": self.kernel,
            "digest": self.digest,
            "target": self.target,
            "lines": [[line.number, line.mnemonic, line.arguments, line.source] for line in self.lines],
            "executed": "".join("01"[ran] for ran in self.executed),
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Coverage:
        lines = tuple(Line(*line) for line in data["lines"])
        executed = tuple(ran == "1" for ran in data["executed"])
        return Coverage(data["kernel"], data["digest"], data["target"], lines, executed)

    def merged(self, other: Coverage) -> Coverage:
        executed = tuple(a or b for a, b in zip(self.executed, other.executed, strict=True))
        return Coverage(self.kernel, self.digest, self.target, self.lines, executed)


@dataclass(frozen=True)
class Report:
    """instructions: executed ones, counted per wave. coverage: by digest of the assembly text."""

    instructions: int
    coverage: Mapping[str, Coverage]
    findings: tuple[Finding, ...]

    def of_kind(self, kind: str) -> tuple[Finding, ...]:
        """Findings of one kind: "race", "out-of-bounds access", "register used before its wait", ..."""
        return tuple(finding for finding in self.findings if finding.kind == kind)

    def to_json(self) -> dict[str, Any]:
        """Instructions and coverage; findings stay behind, they are part of a verdict."""
        return {
            "instructions": self.instructions,
            "coverage": [entry.to_json() for entry in self.coverage.values()],
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Report:
        entries = [Coverage.from_json(entry) for entry in data["coverage"]]
        return Report(data["instructions"], {entry.digest: entry for entry in entries}, ())


def report_of(outcomes: Iterable[Outcome]) -> Report:
    return merged(_single(outcome) for outcome in outcomes)


def merged(reports: Iterable[Report]) -> Report:
    """Reports of several cases as one."""
    instructions, findings = 0, list[Finding]()
    coverage: dict[str, Coverage] = {}
    for report in reports:
        instructions += report.instructions
        findings.extend(report.findings)
        for digest, entry in report.coverage.items():
            coverage[digest] = coverage[digest].merged(entry) if digest in coverage else entry
    return Report(instructions, coverage, tuple(findings))


def _single(outcome: Outcome) -> Report:
    program = outcome.program
    executed = [False] * len(program.listing.lines)
    for block, count in zip(program.blocks, outcome.executed, strict=True):
        for at in range(block.first, block.first + block.size):
            executed[at] = bool(count)
    first = program.listing.entry
    coverage = Coverage(
        program.listing.name,
        program.digest,
        program.target,
        program.listing.lines[first:],
        tuple(executed[first:]),
    )
    return Report(outcome.instructions, {program.digest: coverage}, outcome.findings)
