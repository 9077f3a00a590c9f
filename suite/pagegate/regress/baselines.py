"""Accepted numbers, versioned with the code: baselines/<role>/latency.json. Needs no torch."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from pagegate.errors import UsageError
from pagegate.files import write_json
from pagegate.measure.environment import Environment

from .results import Results, Row, read_versioned

FORMAT_VERSION = 1
FOLDER = Path("baselines")


@dataclass(frozen=True)
class Accepted:
    """One accepted number. spread: largest over smallest process's median, minus 1, of `processes`;
    roofline: the floor over the median; commit: of paged_kernels; command: what measured it."""

    workload: str
    kernel: str
    quantity: str
    median_s: float
    spread: float
    processes: int
    roofline: float | None
    digest: str
    environment: Environment
    commit: str
    command: str
    reason: str

    @property
    def name(self) -> str:
        return f"{self.workload} {self.kernel} {self.quantity}"


def baseline_path(role: str, folder: Path = FOLDER) -> Path:
    return folder / role / "latency.json"


def accept(runs: Sequence[Results], reason: str, commit: str = "") -> list[Accepted]:
    """Numbers from runs of one environment in fresh processes: the median of their medians.

    commit: of paged_kernels, for runs that could not tell. Raises UsageError for no reason, no runs, or runs
    that cannot be compared.
    """
    if not reason.strip():
        raise UsageError("--reason: required why these numbers are accepted, found nothing")
    if not runs:
        raise UsageError("baseline update: required result files of `pagegate bench --json`, found none")
    for other in runs[1:]:
        _refuse_different(runs[0], other)
    accepted = [_accepted(runs, row, reason.strip(), commit) for row in _measured(runs)]
    if not accepted:
        raise UsageError("baseline update: required at least one measured row, found none")
    return accepted


def _refuse_different(first: Results, other: Results) -> None:
    differences = first.environment.differences(other.environment)
    if first.subject != other.subject:
        differences.append(f"paged_kernels: {first.subject} against {other.subject}")
    if differences:
        raise UsageError(f"baseline update: required runs of one environment, found {'; '.join(differences)}")


def _measured(runs: Sequence[Results]) -> list[Row]:
    """One row of each name that some run measured."""
    rows: dict[tuple[str, str, str], Row] = {}
    for row in (row for run in runs for row in run.rows if row.samples):
        rows.setdefault(row.name, row)
    return list(rows.values())


def _accepted(runs: Sequence[Results], row: Row, reason: str, commit: str) -> Accepted:
    same = [r for run in runs for r in run.rows if r.name == row.name and r.samples]
    if len({r.digest for r in same}) > 1:
        raise UsageError(f"baseline update: required one spec of {row.workload}, found several digests")
    medians = [r.samples.median for r in same if r.samples]
    shares = [r.floor_s / r.samples.median for r in same if r.samples and r.floor_s]
    return Accepted(
        *row.name,
        median_s=statistics.median(medians),
        spread=max(medians) / min(medians) - 1,
        processes=len(medians),
        roofline=statistics.median(shares) if shares else None,
        digest=row.digest,
        environment=runs[0].environment,
        commit=commit or runs[0].subject.get("paged_kernels", "unknown"),
        command=runs[0].command,
        reason=reason,
    )


def update(path: Path, accepted: Sequence[Accepted]) -> None:
    """Put numbers into a baseline file; entries that are not among them stay.

    Sorted, six digits, and each environment once, so that a difference shows what changed.
    """
    entries = load(path) if path.exists() else {}
    entries |= {entry.name: entry for entry in accepted}
    path.parent.mkdir(parents=True, exist_ok=True)
    environments = {entry.environment.key(): entry.environment.to_json() for entry in entries.values()}
    written = {name: _written(entry) for name, entry in entries.items()}
    write_json(path, {"format": FORMAT_VERSION, "environments": environments, "entries": written})


def _written(entry: Accepted) -> dict[str, Any]:
    values = {f.name: getattr(entry, f.name) for f in fields(entry)}
    values["environment"] = entry.environment.key()
    return {k: float(f"{v:.6g}") if isinstance(v, float) else v for k, v in values.items()}


def load(path: Path) -> dict[str, Accepted]:
    """The entries of a baseline file by name. Raises UsageError for what is none."""
    what = "a baseline file (`pagegate baseline update`)"
    data = read_versioned(path, FORMAT_VERSION, what)
    try:
        known = {key: Environment.from_json(e, str(path)) for key, e in data["environments"].items()}
        entries = {
            name: Accepted(**entry | {"environment": known[entry["environment"]]})
            for name, entry in data["entries"].items()
        }
    except (KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{path}: required {what}, found {error!r}") from None
    for name, entry in entries.items():
        if not isinstance(entry.median_s, float) or not entry.median_s > 0 or entry.name != name:
            raise UsageError(f"{path}: required a median above 0 under its name, found otherwise in {name!r}")
    return entries


@dataclass(frozen=True)
class AgainstBaseline:
    """A measured row beside its accepted number; ratio None with the reason when INCOMPARABLE."""

    name: str
    ratio: float | None
    reason: str = ""


def against(entries: dict[str, Accepted], results: Results) -> list[AgainstBaseline]:
    """Each measured row against its baseline, and baseline entries that were not measured."""
    found, seen = [], set()
    for row in results.rows:
        name = " ".join(row.name)
        seen.add(name)
        entry = entries.get(name)
        if entry is None:
            found.append(AgainstBaseline(name, None, "no baseline for it"))
        elif row.samples is None:
            found.append(AgainstBaseline(name, None, f"{row.status}: {row.reason}"))
        elif entry.digest != row.digest:
            found.append(
                AgainstBaseline(name, None, f"digest {entry.digest} in the baseline, {row.digest} now")
            )
        elif differences := entry.environment.differences(results.environment):
            reason = f"environments differ: {'; '.join(differences)}"
            found.append(AgainstBaseline(name, None, reason))
        else:
            found.append(AgainstBaseline(name, row.samples.median / entry.median_s))
    return found + [AgainstBaseline(n, None, "missing: not measured") for n in entries if n not in seen]
