"""Other kernels and other compilers to compile with: a commit's kernels, a Triton version, in folders."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
from pathlib import Path

from pagegate.cases.registry import kernels_root
from pagegate.errors import UsageError


def kernels_at(revision: str, folder: Path) -> Path:
    """Put the kernels of a commit into `folder`; returns the root to put on a path.

    Raises UsageError when git knows no such commit, or the commit has no kernels.
    """
    root = kernels_root()
    done = subprocess.run(
        ["git", "-C", str(root), "archive", "--format=tar", revision, "."], capture_output=True, check=False
    )
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip()[-300:]
        raise UsageError(f"--base {revision}: required a commit that has {root.name}/, found {said!r}")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")
    if not (folder / "paged_kernels").is_dir():
        raise UsageError(f"--base {revision}: required paged_kernels in {root.name}/, found none")
    return folder


def triton_at(version: str, folder: Path) -> Path:
    """Install one Triton, without what it depends on, into `folder`; returns the root to put on a path.

    Raises UsageError when pip cannot.
    """
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += [
        "--no-warn-conflicts",
        "--only-binary",
        ":all:",
        "--target",
        str(folder),
        f"triton=={version}",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode or not (folder / "triton").is_dir():
        said = " | ".join(line for line in (done.stderr or done.stdout).strip().splitlines()[-2:])
        raise UsageError(
            f"--triton {version}: required a version that pip can install, found {said[-400:]!r}"
        )
    return folder
