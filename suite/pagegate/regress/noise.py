"""A/A noise: how far a round's log ratio scatters when nothing changed. baselines/<role>/noise.json."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from pagegate.errors import UsageError
from pagegate.files import write_json

from .baselines import FOLDER
from .results import read_versioned

FORMAT_VERSION = 1
# a scatter of fewer rounds says little
LEAST_ROUNDS = 16


@dataclass(frozen=True)
class Noise:
    """Of one row. scatter: standard deviation of a round's log ratio between equal sides, disturbed rounds
    aside; worst: the largest |log ratio| seen; rounds: how many; digest: of the workload's spec."""

    scatter: float
    worst: float
    rounds: int
    digest: str


def scatter_of(log_ratios: Sequence[float]) -> float:
    """A standard deviation that a few disturbed rounds do not move: the median deviation, scaled as for a
    normal distribution."""
    middle = statistics.median(log_ratios)
    return 1.4826 * statistics.median(abs(value - middle) for value in log_ratios)


def measured_noise(log_ratios: Sequence[float], digest: str) -> Noise:
    return Noise(scatter_of(log_ratios), max(map(abs, log_ratios)), len(log_ratios), digest)


def noise_path(role: str, folder: Path = FOLDER) -> Path:
    return folder / role / "noise.json"


def save(path: Path, noise: Mapping[str, Noise], environment: str, command: str) -> None:
    """Rows by name ("workload kernel quantity"); rows of the file that were not measured stay."""
    rows = (load(path) if path.exists() else {}) | dict(noise)
    written = {
        name: {k: float(f"{v:.4g}") if isinstance(v, float) else v for k, v in asdict(row).items()}
        for name, row in rows.items()
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(
        path, {"format": FORMAT_VERSION, "environment": environment, "command": command, "rows": written}
    )


def load(path: Path) -> dict[str, Noise]:
    """Raises UsageError for a file that is none of these."""
    what = "a noise file (`pagegate gate --self-test`)"
    data = read_versioned(path, FORMAT_VERSION, what)
    try:
        rows = {name: Noise(**row) for name, row in data["rows"].items()}
    except (KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{path}: required {what}, found {error!r}") from None
    for name, row in rows.items():
        if not isinstance(row.scatter, float) or not 0 <= row.scatter < 1:
            raise UsageError(f"{path}: required a scatter from 0 to 1, found {row.scatter!r} in {name!r}")
    return rows
