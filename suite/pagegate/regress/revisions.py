"""The two sides of a gate as folders: worktrees of commits, or the working tree as it stands."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagegate.errors import UsageError
from pagegate.measure.subject import subject

WORKING_TREE = "working tree"
KERNELS, SUITE = "kernels", "suite"


@dataclass(frozen=True)
class Revision:
    """One side. name: as it was asked for; commit: its full hash, or nothing for a folder; dirty: whether
    files under kernels/ differ from it; root: holds kernels/, which goes on a worker's path, and suite/,
    which is read for its table of workloads; sources: twelve hex digits over the kernels."""

    name: str
    commit: str
    dirty: bool
    root: Path
    sources: str

    @property
    def kernels(self) -> Path:
        return self.root / KERNELS

    def __str__(self) -> str:
        """For people: "main (1a2b3c4d5e)"."""
        if not self.commit:
            return self.name
        words = self.commit[:10] + (" with changes" if self.dirty else "")
        return words if self.commit.startswith(self.name) else f"{self.name} ({words})"

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "commit": self.commit, "dirty": self.dirty, "sources": self.sources}


@contextmanager
def checked_out(folder: Path, base: str | None, head: str | None) -> Iterator[tuple[Revision, Revision]]:
    """Base and head for a while, in a temporary folder; afterwards nothing of them is left.

    Each is a revision of the repository that holds `folder`, or a path (with a slash in it) of a folder that
    holds kernels/. None: the working tree. What is no commit is copied now, so that edits meanwhile
    change nothing. Raises UsageError for what is none of these.
    """
    with tempfile.TemporaryDirectory(prefix="pagegate-gate-") as scratch, ExitStack() as stack:

        def side(place: str, name: str | None) -> Revision:
            path = Path(scratch) / place
            if name is not None and "/" in name and Path(name).is_dir():
                return _copied(Path(name), path, name, "", False)
            root = repository(folder)
            if name is None:
                dirty = bool(_git(root, "status", "--porcelain", "--", KERNELS).stdout.strip())
                return _copied(root, path, WORKING_TREE, _commit(root, "HEAD"), dirty)
            return _worktree(root, path, name, _commit(root, name), stack)

        yield side("base", base), side("head", head)


def repository(folder: Path) -> Path:
    """The root of the repository that holds a folder. Raises UsageError if none does."""
    try:
        found = _git(folder, "rev-parse", "--show-toplevel")
    except FileNotFoundError:
        raise UsageError("gate: required git, found no such program") from None
    if found.returncode:
        raise UsageError(f"gate: required a git repository, found none that holds {folder}")
    return Path(found.stdout.strip())


def _git(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, check=False)


def _commit(root: Path, name: str) -> str:
    found = _git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
    if found.returncode:
        recent = _git(root, "log", "--oneline", "-3").stdout.strip().replace("\n", "; ")
        shallow = _git(root, "rev-parse", "--is-shallow-repository").stdout.strip() == "true"
        advice = "fetch the whole history (it is shallow)" if shallow else "fetch it, or name another"
        raise UsageError(
            f"revision: required one that this repository has, found {name!r}; {advice} "
            f"(latest here: {recent})"
        )
    return found.stdout.strip()


def _worktree(root: Path, path: Path, name: str, commit: str, stack: ExitStack) -> Revision:
    stack.callback(_git, root, "worktree", "prune")
    stack.callback(_git, root, "worktree", "remove", "--force", str(path))
    made = _git(root, "worktree", "add", "--detach", str(path), commit)
    if made.returncode:
        found = made.stderr.strip()[-300:]
        raise UsageError(f"git worktree: required a checkout of {name}, found {found!r}")
    return _revision(name, commit, False, path)


def _copied(source: Path, path: Path, name: str, commit: str, dirty: bool) -> Revision:
    path.mkdir()
    for part in (KERNELS, SUITE):
        if (source / part).is_dir():
            shutil.copytree(source / part, path / part, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    return _revision(name, commit, dirty, path)


def _revision(name: str, commit: str, dirty: bool, root: Path) -> Revision:
    if not (root / KERNELS / "paged_kernels").is_dir():
        raise UsageError(f"{name}: required a folder {KERNELS}/paged_kernels, found none in it")
    return Revision(name, commit, dirty, root, subject(root / KERNELS)["sources"])


_LIST = """
import json
from pagegate.cases.workloads import workloads
print(json.dumps([[row.name, row.tier, row.spec.digest()] for row in workloads()]))
"""


def table_of(revision: Revision) -> list[tuple[str, str, str]] | None:
    """Name, tier and digest of each workload of a revision's own table; None where it has none that can be
    read."""
    if not (revision.root / SUITE / "pagegate" / "cases" / "workloads.py").is_file():
        return None
    environment = {**os.environ, "PYTHONPATH": str(revision.root / SUITE)}
    done = subprocess.run(
        [sys.executable, "-P", "-c", _LIST],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    try:
        return [(name, tier, digest) for name, tier, digest in json.loads(done.stdout)]
    except (ValueError, TypeError):
        return None


def inside(revision: Revision, plugin: str) -> str:
    """A plugin file of the repository as a commit has it; anything else stays as it is."""
    path = Path(plugin).resolve()
    if path.suffix != ".py" or revision.name == WORKING_TREE or not revision.commit:
        return plugin
    root = repository(path.parent)
    return str(revision.root / path.relative_to(root))
