"""Which `paged_kernels` runs here. Standard library only."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

from pagegate.cases.registry import kernels_root

UNVERSIONED = "unversioned"


def subject(root: Path | None = None) -> dict[str, str]:
    """paged_kernels: the commit of the folder that holds it, "-dirty" when it was changed since, or
    "unversioned"; sources: twelve hex digits over its files, which tell two copies apart without git.

    Raises UsageError when there is no such package.
    """
    root = kernels_root() if root is None else root
    return {"paged_kernels": _commit(root), "sources": _sources(root / "paged_kernels")}


def _sources(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(f"{path.relative_to(folder).as_posix()}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def _commit(root: Path) -> str:
    def git(*words: str) -> str:
        done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, check=False)
        return done.stdout.strip() if done.returncode == 0 else ""

    try:
        commit = git("rev-parse", "HEAD")
    except OSError:
        return UNVERSIONED
    if not commit:
        return UNVERSIONED
    return commit + ("-dirty" if git("status", "--porcelain", "--", str(root)) else "")
