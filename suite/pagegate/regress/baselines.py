"""Accepted numbers, versioned with the code: baselines/<role>/latency.json. Needs no torch."""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pagegate.errors import UsageError
from pagegate.files import write_json

from .results import Results, read_versioned

FORMAT_VERSION = 1
FOLDER = Path("baselines")


@dataclass(frozen=True)
class Accepted:
    """One accepted number. spread: largest over smallest process's median, minus 1; roofline: the floor
    over the median; key: the environment's."""

    workload: str
    kernel: str
    quantity: str
    median_s: float
    spread: float
    roofline: float | None
    digest: str
    key: str
    environment: dict[str, Any]
    commit: str
    reason: str

    @property
    def name(self) -> str:
        return f"{self.workload} {self.kernel} {self.quantity}"


def baseline_path(role: str, folder: Path = FOLDER) -> Path:
    return folder / role / "latency.json"


def accept(runs: list[Results], reason: str) -> list[Accepted]:
    """Numbers from runs of one environment in fresh processes: the median of their medians.

    Raises UsageError for no reason, no runs, or runs that cannot be compared.
    """
    if not reason.strip():
        raise UsageError("--reason: required why these numbers are accepted, found nothing")
    if not runs:
        raise UsageError("baseline update: required result files of `pagegate bench --json`, found none")
    for other in runs[1:]:
        differences = runs[0].environment.differences(other.environment)
        if differences:
            raise UsageError(
                f"baseline update: required runs of one environment, found {'; '.join(differences)}"
            )
    accepted = []
    for row in runs[0].rows:
        if row.samples is None:
            continue
        same = [r for run in runs for r in run.rows if r.name == row.name and r.samples]
        if len({r.digest for r in same}) > 1:
            raise UsageError(f"baseline update: required one spec of {row.workload}, found several digests")
        medians = [r.samples.median for r in same if r.samples]
        median = statistics.median(medians)
        environment = runs[0].environment
        accepted.append(
            Accepted(
                *row.name,
                median_s=median,
                spread=max(medians) / min(medians) - 1,
                roofline=row.floor_s / median if row.floor_s else None,
                digest=row.digest,
                key=environment.key(),
                environment=environment.to_json(),
                commit=runs[0].subject.get("paged_kernels", "unknown"),
                reason=reason.strip(),
            )
        )
    return accepted


def update(path: Path, accepted: list[Accepted]) -> None:
    """Put numbers into a baseline file; entries that are not among them stay."""
    entries = load(path) if path.exists() else {}
    entries |= {entry.name: entry for entry in accepted}
    path.parent.mkdir(parents=True, exist_ok=True)
    data = {name: {k: _rounded(v) for k, v in asdict(entry).items()} for name, entry in entries.items()}
    write_json(path, {"format": FORMAT_VERSION, "entries": data})


def _rounded(value: Any) -> Any:
    """Six digits: more would only make differences hard to read."""
    return float(f"{value:.6g}") if isinstance(value, float) else value


def load(path: Path) -> dict[str, Accepted]:
    """The entries of a baseline file by name. Raises UsageError for what is none."""
    data = read_versioned(path, FORMAT_VERSION, "a baseline file (`pagegate baseline update`)")
    try:
        return {name: Accepted(**entry) for name, entry in data["entries"].items()}
    except (KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{path}: required a baseline file, found {error!r}") from None


@dataclass(frozen=True)
class AgainstBaseline:
    """A measured row beside its accepted number; ratio None with the reason when INCOMPARABLE."""

    name: str
    ratio: float | None
    reason: str = ""


def against(entries: dict[str, Accepted], results: Results) -> list[AgainstBaseline]:
    """Each measured row against its baseline, and baseline entries that were not measured."""
    found, key = [], results.environment.key()
    seen = set()
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
        elif entry.key != key:
            found.append(AgainstBaseline(name, None, _which_field(entry, results)))
        else:
            found.append(AgainstBaseline(name, row.samples.median / entry.median_s))
    return found + [AgainstBaseline(n, None, "missing: not measured") for n in entries if n not in seen]


def _which_field(entry: Accepted, results: Results) -> str:
    from pagegate.measure.environment import Environment

    accepted = Environment.from_json(entry.environment, "baseline")
    return "environments differ: " + "; ".join(accepted.differences(results.environment))
