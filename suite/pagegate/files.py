"""Files that are whole or not there: written beside their place, then renamed."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from pagegate.errors import UsageError


def write_text(path: Path, text: str) -> None:
    """Raises UsageError when the file cannot be written; then the old one, if any, is untouched."""
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "w") as file:
                file.write(text)
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink()
            raise
    except OSError as error:
        raise UsageError(f"{path}: required a file that can be written, found {error.strerror}") from error


def write_json(path: Path, data: Any) -> None:
    """Sorted and indented, so that differences read well."""
    write_text(path, json.dumps(data, indent=2, sort_keys=True) + "\n")
