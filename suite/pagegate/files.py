"""Files that are whole or not there: written beside their place, then renamed."""

from __future__ import annotations

import json
import secrets
from pathlib import Path
from typing import Any

from pagegate.errors import UsageError


def write_text(path: Path, text: str) -> None:
    """Raises UsageError when the file cannot be written; then the old one, if any, is untouched."""
    try:
        # not tempfile's: its files are for their owner alone, and results are read by others
        beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        try:
            with beside.open("x") as file:
                file.write(text)
            beside.replace(path)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise UsageError(f"{path}: required a file that can be written, found {error.strerror}") from error


def write_json(path: Path, data: Any) -> None:
    """Sorted and indented, so that differences read well."""
    write_text(path, json.dumps(data, indent=2, sort_keys=True) + "\n")
