"""Measured results as files, and whether two of them may be compared. Needs no torch."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagegate.errors import UsageError
from pagegate.measure.environment import Environment
from pagegate.measure.roofline import Ceilings
from pagegate.measure.samples import Samples

FORMAT_VERSION = 1


@dataclass(frozen=True)
class Row:
    """One workload, kernel and quantity. status: MEASURED, or UNSUPPORTED or FAILED with the reason."""

    workload: str
    digest: str
    kernel: str
    quantity: str
    status: str = "MEASURED"
    reason: str = ""
    samples: Samples | None = None
    floor_s: float | None = None

    @property
    def name(self) -> tuple[str, str, str]:
        return self.workload, self.kernel, self.quantity


@dataclass(frozen=True)
class Results:
    """A run of `bench`. subject: which paged_kernels, see `measure.subject`; command: what made it."""

    environment: Environment
    ceilings: Ceilings
    subject: dict[str, str]
    rows: tuple[Row, ...]
    command: str = ""

    def to_json(self) -> dict[str, Any]:
        rows = []
        for row in self.rows:
            values = {k: v for k, v in vars(row).items() if v not in (None, "")}
            if row.samples:
                values["samples"] = row.samples.to_json()
            rows.append(values)
        return {
            "format": FORMAT_VERSION,
            "environment": self.environment.to_json(),
            "ceilings": vars(self.ceilings),
            "subject": self.subject,
            "command": self.command,
            "rows": rows,
        }


def load_results(path: Path) -> Results:
    """Raises UsageError for a file that is not a result of this format version."""
    data = read_versioned(path, FORMAT_VERSION, "a result of `pagegate bench --json`")
    try:
        rows = tuple(
            Row(**{**row, "samples": Samples.from_json(row["samples"]) if "samples" in row else None})
            for row in data["rows"]
        )
        environment = Environment.from_json(data["environment"], str(path))
        ceilings, command = Ceilings(**data["ceilings"]), data.get("command", "")
        return Results(environment, ceilings, dict(data["subject"]), rows, command)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"{path}: required a result of `pagegate bench --json`, found {error!r}") from None


def read_versioned(path: Path, version: int, what: str) -> dict[str, Any]:
    """A JSON object whose "format" is `version`. Raises UsageError otherwise."""
    try:
        data = json.loads(path.read_text())
    except OSError as error:
        raise UsageError(f"{path}: required {what}, found {error.strerror}") from None
    except ValueError as error:
        raise UsageError(f"{path}: required {what}, found text that is no JSON ({error})") from None
    if not isinstance(data, dict) or "format" not in data:
        raise UsageError(f"{path}: required {what}, found no format version")
    if data["format"] != version:
        newer = isinstance(data["format"], int) and data["format"] > version
        advice = "update pagegate" if newer else "measure again"
        raise UsageError(f"{path}: required format {version}, found {data['format']!r}; {advice}")
    return data


@dataclass(frozen=True)
class Comparison:
    """Two rows of one name. ratio: median of b over a; None with a reason where they cannot be compared."""

    workload: str
    kernel: str
    quantity: str
    a_s: float | None = None
    b_s: float | None = None
    reason: str = ""

    @property
    def ratio(self) -> float | None:
        return self.b_s / self.a_s if self.a_s and self.b_s and not self.reason else None


def compare(a: Results, b: Results) -> list[Comparison]:
    """All rows of both, in a's order. What differs in the environment makes every row INCOMPARABLE."""
    differences = a.environment.differences(b.environment)
    everywhere = f"environments differ: {'; '.join(differences)}" if differences else ""
    theirs = {row.name: row for row in b.rows}
    found = []
    for row in a.rows:
        other = theirs.pop(row.name, None)
        found.append(_compared(row, other, everywhere))
    found += [Comparison(*row.name, reason="only in the second") for row in theirs.values()]
    return found


def _compared(row: Row, other: Row | None, everywhere: str) -> Comparison:
    if other is None:
        return Comparison(*row.name, reason="only in the first")
    if row.samples is None or other.samples is None:
        return Comparison(*row.name, reason=f"{row.status} against {other.status}")
    reason = everywhere
    if row.digest != other.digest:
        reason = f"the workload changed: digest {row.digest} against {other.digest}"
    return Comparison(*row.name, row.samples.median, other.samples.median, reason)
