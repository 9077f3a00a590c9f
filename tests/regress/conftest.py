"""A scratch repository with two sides, and gates on it without a GPU."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pagegate.cli import gate, main
from pagegate.oracle.results import CheckResult

WORKER = Path(__file__).with_name("simulated_worker.py")


class Scratch:
    """A repository whose kernels/ say how they behave."""

    def __init__(self, folder):
        self.folder = folder
        self.package = folder / "kernels" / "paged_kernels"
        self.package.mkdir(parents=True)
        self.git("init", "-q", "-b", "main")

    def git(self, *words):
        identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
        done = subprocess.run(
            ["git", *identity, *words],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "GIT_CONFIG_GLOBAL": os.devnull},
        )
        return done.stdout.strip()

    def write(self, text):
        (self.package / "__init__.py").write_text(text + "\n")

    def behave(self, **behaviour):
        self.write(f"BEHAVIOUR = {behaviour!r}")

    def commit(self, message="a change"):
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD")

    def worktrees(self):
        return self.git("worktree", "list").splitlines()


class SimulatedMachinery(gate.Machinery):
    def command(self, plugins):
        return [sys.executable, "-P", str(WORKER)]


@pytest.fixture
def scratch(tmp_path, monkeypatch):
    """A repository with one commit, "base", on branch main; gates run in it with the simulated worker."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    made = Scratch(folder)
    made.behave()
    made.commit("base")
    monkeypatch.chdir(folder)
    right = lambda start, rows, on_result: [CheckResult(r.kernel, r.case, "PASSED", "") for r in rows]  # noqa: E731
    monkeypatch.setattr(gate, "machinery", lambda options: SimulatedMachinery(right, "cpu", 1))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return made


@pytest.fixture
def run_gate(capsys):
    def run(*words):
        code = main(["gate", *words])
        said = capsys.readouterr()
        return code, " ".join((said.out + said.err).split())

    return run
