"""Accepted figures: baselines/compiled/<target>.json, by Triton version. Needs neither torch nor triton."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pagegate.errors import UsageError
from pagegate.files import write_text

from .figures import Compiled

FORMAT_VERSION = 1
FOLDER = Path("baselines/compiled")
_ON_ONE_LINE = ("options", "loops", "total")


def path_of(target: str, folder: Path = FOLDER) -> Path:
    return folder / f"{target}.json"


def load(target: str, folder: Path = FOLDER) -> dict[str, Compiled]:
    """Triton version -> accepted figures; empty without a file. Raises UsageError for what is no baseline."""
    path = path_of(target, folder)
    if not path.exists():
        return {}
    data = _read(path)
    try:
        if data["format"] != FORMAT_VERSION:
            raise UsageError(
                f"{path}: required format {FORMAT_VERSION}, found {data['format']}; remake it with --update"
            )
        return {
            version: Compiled.from_json({"refused": {}, **entry, "target": target, "triton": version})
            for version, entry in data["versions"].items()
        }
    except (KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{path}: required a baseline of `pagegate compiled`, found {error!r}") from None


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: required a JSON file, found {error}") from None


def update(compiled: Compiled, reason: str, folder: Path = FOLDER) -> Path:
    """Accept figures with a reason, in place of all that this Triton version had; returns the file.

    Raises UsageError without a reason.
    """
    if not reason.strip():
        raise UsageError("--reason: required why these figures are accepted, found nothing")
    path = path_of(compiled.target, folder)
    versions: dict[str, Any] = {}
    if path.exists():
        load(compiled.target, folder)  # refuse to write into what is no baseline
        versions = _read(path)["versions"]
    entry = compiled.to_json()
    del entry["target"], entry["triton"], entry["refused"]
    versions[compiled.triton] = entry | {"reason": reason.strip()}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, "".join(_lines({"format": FORMAT_VERSION, "versions": versions})) + "\n")
    return path


def _lines(data: Any, indent: str = "") -> Iterator[str]:
    """JSON, sorted; what stands under _ON_ONE_LINE, and lists, without line breaks: a change of figures is
    then a line or two beneath the variant's name."""
    if not isinstance(data, dict) or not data:
        yield json.dumps(data, sort_keys=True)
        return
    inner = indent + "  "
    yield "{"
    for number, (name, value) in enumerate(sorted(data.items())):
        yield f"{',' if number else ''}\n{inner}{json.dumps(name)}: "
        yield from [json.dumps(value, sort_keys=True)] if name in _ON_ONE_LINE else _lines(value, inner)
    yield f"\n{indent}}}"
