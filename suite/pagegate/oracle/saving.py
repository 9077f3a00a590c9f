"""Failures as small JSON files: the case, what happened, and what it happened on."""

from __future__ import annotations

import json
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagegate.cases.notation import format_case
from pagegate.cases.spec import Case, SpecError, load_case
from pagegate.errors import UsageError
from pagegate.files import write_json

from .results import CheckResult

FAILURES = Path(".pagegate/failures")


@dataclass(frozen=True)
class SavedCase:
    """A case from a file. kernel: the one it failed with, if the file says; why: for people."""

    path: Path
    case: Case
    kernel: str | None = None
    why: str = ""


def save_failure(folder: Path, result: CheckResult, versions: dict[str, str]) -> Path:
    """Write a failure's file and return its path; the same failure gets the same name."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"{result.kernel}-{result.status.lower()}-{result.case.spec.digest()}-{result.case.seed}"
    path = folder / f"{stem}.json"
    data: dict[str, Any] = result.to_json() | {"line": format_case(result.case), "found_on": versions}
    write_json(path, data)
    return path


def load_saved(paths: list[Path]) -> list[SavedCase]:
    """The cases in files, and in all JSON files of folders. Raises UsageError for what is not one."""
    files: list[Path] = []
    for path in paths:
        found = sorted(path.glob("*.json")) if path.is_dir() else [path]
        if not found:
            raise UsageError(f"{path}: required a folder with case files (*.json), found none")
        files += found
    return [_load(path) for path in files]


def _load(path: Path) -> SavedCase:
    case = load_case(path)
    data = json.loads(path.read_text())
    kernel, why = data.get("kernel"), data.get("why", data.get("reason", ""))
    if not isinstance(kernel, str | None) or not isinstance(why, str):
        raise SpecError(f"{path}: required a kernel name and a reason as text, found {kernel!r} and {why!r}")
    return SavedCase(path, case, kernel, why)


def versions(device: str) -> dict[str, str]:
    """What a failure was found on."""
    from importlib.metadata import version

    names = {name: version(name) for name in ("torch", "triton", "pagegate") if _installed(name)}
    return names | {"python": platform.python_version(), "device": device}


def _installed(name: str) -> bool:
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True
