"""Workers seen from the parent: ask, wait, replace. A crash or a hang becomes a result, not an end."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from pagegate.cases.spec import Case
from pagegate.errors import UsageError

from .results import CheckResult

_START_S = 180.0


@dataclass(frozen=True)
class Setup:
    """How workers are started. device: "cpu" (Triton's interpreter) or "cuda"; kernels_root: a folder
    put first on their path, to run another copy of `paged_kernels`; timeout_s: for one request;
    memory_bytes: what all workers together may take of the device; cache_dir: Triton's;
    target: an AMD GPU whose machine code is interpreted, on device "cpu"; coverage: report which of its
    instructions ran."""

    device: str
    plugins: tuple[str, ...] = ()
    kernels_root: Path | None = None
    timeout_s: float = 120.0
    memory_bytes: int = 1 << 36
    cache_dir: Path | None = None
    target: str | None = None
    coverage: bool = False


class WorkerLost(Exception):
    """A worker died or did not answer; status says which, the text is its last words."""

    def __init__(self, status: str, reason: str):
        super().__init__(reason)
        self.status = status
        self.reason = reason


class Worker:
    """One process that runs kernels; started on first use and replaced after it is lost.

    command: what is started, the checking worker if None; it answers each line on stdin with one on stdout,
    and says one line more when it is ready. Not for several threads at once; use one worker per thread.
    """

    def __init__(self, setup: Setup, command: Sequence[str] | None = None):
        self.setup = setup
        self._command = list(command) if command else _checking(setup)
        self._ready = False
        self._process: subprocess.Popen[str] | None = None
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._stderr: Any = None

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def check(self, kernel: str, case: Case, max_relations: int | None = None) -> CheckResult:
        """Check one kernel on one case; CRASHED or HUNG when the worker did not survive it."""
        request = {
            "action": "check", "kernel": kernel, "case": case.to_json(), "max_relations": max_relations
        }  # fmt: skip
        try:
            return replace(CheckResult.from_json(self.ask(request)), case=case)
        except WorkerLost as lost:
            return CheckResult(kernel, case, lost.status, lost.reason)

    def fingerprint(self, kernel: str, case: Case) -> str:
        """A hash of what a kernel returns for a case, or how it was lost."""
        request = {"action": "fingerprint", "kernel": kernel, "case": case.to_json()}
        try:
            return str(self.ask(request)["fingerprint"])
        except WorkerLost as lost:
            return lost.status

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Raises WorkerLost; the next request gets a fresh process."""
        self.send(request)
        return self.receive()

    def send(self, request: dict[str, Any]) -> None:
        """The first half of `ask`: two workers may work on requests at the same time."""
        self.start()
        if not self._ready:
            self._await_start()
        assert self._process is not None and self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except OSError:
            raise self._lost("CRASHED", "between two requests") from None

    def receive(self) -> dict[str, Any]:
        reply = self._reply(self.setup.timeout_s)
        if "lost" in reply:
            self.stop()
            raise WorkerLost("CRASHED", reply["lost"])
        answer = reply.get("answer")
        if not isinstance(answer, dict):
            raise self._lost("CRASHED", f"required an answer, found {str(reply)[:80]}")
        return answer

    def stop(self) -> None:
        if self._process is not None:
            # the whole group: what a kernel or a compiler started must not outlive the worker
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            for stream in (self._process.stdin, self._process.stdout, self._stderr):
                if stream is not None:
                    with suppress(OSError):  # a request that the dead process never read
                        stream.close()
            self._process = None
            self._ready = False

    def _reply(self, timeout_s: float) -> dict[str, Any]:
        try:
            line = self._lines.get(timeout=timeout_s)
        except queue.Empty:
            raise self._lost("HUNG", f"no answer within {timeout_s:g} s") from None
        if line is None:
            assert self._process is not None
            code = self._process.wait()
            raise self._lost("CRASHED", f"the process ended with {_exit_words(code)}")
        try:
            reply = json.loads(line)
        except ValueError:
            reply = None
        if not isinstance(reply, dict):
            raise self._lost("CRASHED", f"required an answer in JSON, found {line[:80]!r}")
        return reply

    def _lost(self, status: str, reason: str) -> WorkerLost:
        words = self._last_words()
        self.stop()
        return WorkerLost(status, f"{reason}; its last words: {words}" if words else reason)

    def _last_words(self) -> str:
        self._stderr.flush()
        self._stderr.seek(0)
        lines = [line.strip() for line in self._stderr.read().splitlines() if line.strip()]
        return " | ".join(lines[-3:])[-400:]

    def start(self) -> None:
        """Start the process, if there is none, without waiting for it."""
        if self._process is not None:
            return
        self._stderr = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 (closed by stop)
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            text=True,
            start_new_session=True,
            env=worker_environment(self.setup),
        )
        self._lines = queue.Queue()
        threading.Thread(target=_pump, args=(self._process, self._lines), daemon=True).start()

    def _await_start(self) -> None:
        try:
            self._reply(_START_S)
            self._ready = True
        except WorkerLost as lost:
            raise UsageError(f"worker: required a process that starts, found {lost.reason}") from None


def _checking(setup: Setup) -> list[str]:
    command = [sys.executable, "-P", "-m", "pagegate.oracle.worker", "--device", setup.device]
    if setup.target:
        command += ["--target", setup.target]
    if setup.coverage:
        command.append("--coverage")
    return command + [word for plugin in setup.plugins for word in ("--plugin", plugin)]


def _pump(process: subprocess.Popen[str], lines: queue.Queue[str | None]) -> None:
    assert process.stdout is not None
    try:
        for line in process.stdout:
            lines.put(line)
    except ValueError:
        pass  # closed by stop()
    lines.put(None)


def worker_environment(setup: Setup) -> dict[str, str]:
    """The environment of a worker: the same packages as here, another `paged_kernels` first if asked."""
    suite_root = Path(__file__).resolve().parents[2]
    roots = [str(setup.kernels_root)] if setup.kernels_root else []
    roots += [str(suite_root), *(p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(roots)}
    environment.pop("TRITON_INTERPRET", None)
    if setup.device == "cpu":
        if not setup.target:
            environment["TRITON_INTERPRET"] = "1"
        environment["OMP_NUM_THREADS"] = "1"
    if setup.cache_dir:
        environment["TRITON_CACHE_DIR"] = str(setup.cache_dir)
    return environment


def _exit_words(code: int) -> str:
    if code < 0:
        try:
            return signal.Signals(-code).name
        except ValueError:
            return f"signal {-code}"
    return f"exit code {code}"
