"""Sets up a virtual environment: the build of torch that suits this machine, and the locked rest.

    python3 -I suite/pagegate/bootstrap.py .venv [--build cpu|cuda|rocm|macos]

Runs before anything is installed, and under Pythons that are too old, to say so: it imports the standard
library alone and keeps to the syntax of Python 3.7.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

OLDEST = (3, 11)
ROOT = Path(__file__).resolve().parents[2]
LOCK = "requirements-dev.txt"
_UV_INDEXES = ("UV_DEFAULT_INDEX", "UV_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS")
_PIP_INDEXES = ("index-url", "extra-index-url", "find-links")


@dataclass(frozen=True)
class Build:
    """A build of torch. index: where its wheels are, if not on PyPI; triton: what to install beside it,
    where torch does not bring its own; every Triton here has figures under baselines/compiled."""

    what: str
    torch: str
    index: str | None = None
    triton: str | None = None
    own_needs: bool = False

    @property
    def wheels(self) -> str:
        """For people: what is installed, and from where."""
        beside = f" and {self.triton}" if self.triton else ""
        return f"{self.torch}{beside}, {self.what}" + (f", from {self.index}" if self.index else "")


# torch 2.11 comes with Triton 3.6.0; own_needs: GPU builds need libraries that the lock does not list
BUILDS = {
    "cuda": Build("the build for NVIDIA GPUs", "torch==2.11.0", own_needs=True),
    "rocm": Build(
        "the build for AMD GPUs",
        "torch==2.11.0",
        "https://download.pytorch.org/whl/rocm7.2",
        own_needs=True,
    ),
    "macos": Build("the build for macOS, without Triton", "torch==2.13.0"),
    "cpu": Build(
        "the build without a GPU", "torch==2.13.0", "https://download.pytorch.org/whl/cpu", "triton==3.9.0"
    ),
}


class Refused(Exception):
    """What was required, what was found, and what to do."""


def choose_build(system: str, nvidia: bool, amd: bool) -> tuple[str, str]:
    """Which of BUILDS, and why. system: as platform.system() says; nvidia, amd: what was seen here."""
    if system == "Darwin":
        return "macos", "this is macOS, which Triton does not support"
    if system != "Linux":
        raise Refused(f"make setup: required Linux or macOS, found {system}; under Windows use WSL")
    if nvidia:
        return "cuda", "nvidia-smi is here"
    if amd:
        return "rocm", "/dev/kfd is here, AMD's GPU driver"
    return "cpu", "neither nvidia-smi nor /dev/kfd is here"


def gpus_here() -> tuple[bool, bool]:
    """Whether an NVIDIA GPU's and an AMD GPU's driver were seen."""
    return shutil.which("nvidia-smi") is not None, Path("/dev/kfd").exists()


def refuse_old(version: tuple[int, ...], name: str) -> None:
    """Raises Refused for a Python that is too old."""
    if tuple(version[:2]) < OLDEST:
        raise Refused(
            f"make setup: required Python {OLDEST[0]}.{OLDEST[1]} or newer, found "
            f"{'.'.join(map(str, version))} ({name}); name another: make setup PYTHON=python3.12"
        )


def uses_mirror(pip_config: str) -> bool:
    """Whether `pip config list` names a place of its own to look for packages."""
    keys = [line.partition("=")[0].rpartition(".")[2] for line in pip_config.splitlines()]
    return any(key in _PIP_INDEXES for key in keys)


def install_commands(build: Build, install: list[str], mirrored: bool) -> list[tuple[str, list[str]]]:
    """What to run, each with words for people. A mirror that the installer is configured with has torch
    too: asking another index would go around it."""
    index = ["--index-url", build.index] if build.index and not mirrored else []
    needs = ["--constraint", LOCK] if build.own_needs else ["--no-deps"]
    steps = [(f"the packages of {LOCK}", [*install, "--requirement", LOCK])]
    steps.append((build.torch, [*install, *needs, *index, build.torch]))
    if build.triton:
        steps.append((build.triton, [*install, "--no-deps", build.triton]))
    # without its dependencies: they are there, and beside a ROCm build another Triton would do harm
    steps.append(("pagegate", [*install, "--no-deps", "--no-build-isolation", "--editable", "."]))
    return steps


def _output(command: list[str]) -> str:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False, text=True)
    return done.stdout if done.returncode == 0 else ""


def _run(command: list[str]) -> None:
    if subprocess.run(command, cwd=ROOT, check=False).returncode:
        raise Refused(f"make setup: required that this works, found that it does not: {' '.join(command)}")


def _installer(python: str) -> tuple[list[str], bool]:
    """uv where it is, unless pip alone knows a mirror; whether there is a mirror."""
    uv, uv_mirror = shutil.which("uv"), any(os.environ.get(name) for name in _UV_INDEXES)
    pip_mirror = uses_mirror(_output([sys.executable, "-m", "pip", "config", "list"]))
    if uv and (uv_mirror or not pip_mirror):
        return [uv, "pip", "install", "--quiet", "--python", python], uv_mirror
    if not _output([python, "-m", "pip", "--version"]):
        _run([python, "-m", "ensurepip"])  # as in an environment that uv made
    return [python, "-m", "pip", "install", "-qq", "--disable-pip-version-check"], pip_mirror


def set_up(folder: Path, wanted: str | None) -> None:
    """Make the environment, or renew what is in it. Raises Refused."""
    refuse_old(sys.version_info[:3], sys.executable)
    name, why = (wanted, "asked for") if wanted else choose_build(platform.system(), *gpus_here())
    python = folder / "bin" / "python"
    if python.exists():
        found = _output([str(python), "-c", "import sys; print(*sys.version_info[:3])"]).split()
        refuse_old(tuple(map(int, found)), str(python))
    else:
        uv = shutil.which("uv")
        _run([uv, "venv", "--quiet", "--python", sys.executable, str(folder)] if uv else
             [sys.executable, "-m", "venv", str(folder)])  # fmt: skip
    install, mirrored = _installer(str(python))
    print(f"{folder}: {BUILDS[name].wheels if not mirrored else BUILDS[name].torch} ({why})", flush=True)
    for words, command in install_commands(BUILDS[name], install, mirrored):
        began = time.monotonic()
        print(f"  installing {words} ...", end="", flush=True)
        _run(command)
        print(f" {time.monotonic() - began:.0f} s", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--build", choices=sorted(BUILDS))
    options = parser.parse_args()
    try:
        set_up(options.folder.absolute(), options.build)
    except Refused as refusal:
        print(refusal, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
