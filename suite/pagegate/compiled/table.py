"""A table of workloads on a target: which variants it launches, compiled in parallel, cached."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagegate.cases.notation import format_case
from pagegate.cases.spec import Case
from pagegate.errors import UsageError
from pagegate.files import write_json

from .figures import Compiled, Variant

CACHE = Path(".pagegate/compiled")


@dataclass(frozen=True)
class Toolchain:
    """What compiles what. kernels_root: a folder with another `paged_kernels`; triton_root: a folder with
    another Triton; both None for those of this process. cache: a folder for figures; workers: processes."""

    kernels_root: Path | None = None
    triton_root: Path | None = None
    plugins: tuple[str, ...] = ()
    cache: Path = CACHE
    workers: int = 2


def compile_table(
    target: str,
    cases: Mapping[str, Case],
    kernels: Sequence[str],
    toolchain: Toolchain = Toolchain(),
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Compiled:
    """Record what `kernels` launch for `cases` (by name) on `target`, and compile each variant once.

    `on_progress` gets (variants done, variants) from several threads. Raises UsageError when a worker dies.
    """
    request = {"cases": {name: case.to_json() for name, case in cases.items()}, "kernels": list(kernels)}
    with (
        tempfile.TemporaryDirectory(prefix="pagegate-triton-") as scratch,
        _started(target, toolchain, scratch) as first,
    ):
        recorded = first.ask(request)
        found = {digest: _cached(toolchain, digest) for digest in recorded["variants"]}
        missing = [digest for digest, variant in found.items() if variant is None]
        total = len(found)
        on_progress(total - len(missing), total)
        lock = threading.Lock()

        def compile_with(worker: _Worker) -> None:
            while True:
                with lock:
                    if not missing:
                        return
                    digest = missing.pop()
                variant = Variant.from_json(worker.ask({"compile": digest}))
                _keep(toolchain, digest, variant)
                with lock:
                    found[digest] = variant
                    on_progress(sum(v is not None for v in found.values()), total)

        def helper() -> None:
            with _started(target, toolchain, scratch) as other:
                if other.ask(request)["variants"] != recorded["variants"]:
                    raise UsageError("compiled: required the same launches in each process, found others")
                compile_with(other)

        helpers = min(toolchain.workers, len(missing)) - 1
        with ThreadPoolExecutor(max(helpers, 1)) as pool:
            others = [pool.submit(helper) for _ in range(helpers)]
            compile_with(first)
            for other in others:
                other.result()
    workloads = {name: format_case(case) for name, case in cases.items()}
    return Compiled(target, first.triton, workloads, *_name(recorded, found), recorded["refused"])


def _name(
    recorded: Mapping[str, Any], found: Mapping[str, Variant | None]
) -> tuple[dict[str, tuple[str, ...]], dict[str, Variant]]:
    """Launches and variants; these are named after the first workload that launches them: stable where
    digests are not."""
    names: dict[str, str] = {}
    for launch, digests in recorded["launches"].items():
        for digest in digests:
            base = f"{recorded['variants'][digest]} {launch.split()[0]}"
            number = sum(name == base or name.startswith(f"{base} #") for name in names.values())
            names.setdefault(digest, f"{base} #{number + 1}" if number else base)
    launches = {name: tuple(names[d] for d in digests) for name, digests in recorded["launches"].items()}
    variants = {names[digest]: variant for digest, variant in found.items() if variant and digest in names}
    return launches, variants


def _tool_digest() -> str:
    """Of this package and what it reads assembly with: other readers, other figures."""
    digest = hashlib.sha256()
    here = Path(__file__).parent
    for path in sorted([*here.glob("*.py"), here.parent / "amdgcn" / "text.py"]):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def _path(toolchain: Toolchain, digest: str) -> Path:
    return toolchain.cache / f"{digest}-{_TOOLS}.json"


_TOOLS = _tool_digest()


def _cached(toolchain: Toolchain, digest: str) -> Variant | None:
    """An unreadable entry counts as none."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        return Variant.from_json(json.loads(_path(toolchain, digest).read_text()))
    return None


def _keep(toolchain: Toolchain, digest: str, variant: Variant) -> None:
    path = _path(toolchain, digest)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, variant.to_json())


class _Worker:
    """One compiling process."""

    def __init__(self, process: subprocess.Popen[str], stderr: Any):
        self._process = process
        self._stderr = stderr
        self.triton: str = self._reply()["triton"]

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        with suppress(OSError):  # its last words say more
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        return self._reply()

    def _reply(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            self._stderr.seek(0)
            words = " | ".join(line.strip() for line in self._stderr.read().splitlines() if line.strip())
            raise UsageError(
                f"compiled: required a process that compiles, found that it ended with {code}: {words[-400:]}"
            )
        reply: dict[str, Any] = json.loads(line)
        return reply


@contextmanager
def _started(target: str, toolchain: Toolchain, scratch: str) -> Iterator[_Worker]:
    command = [sys.executable, "-P", "-m", "pagegate.compiled.worker", "--target", target]
    command += [word for plugin in toolchain.plugins for word in ("--plugin", plugin)]
    with tempfile.TemporaryFile("w+", errors="replace") as stderr:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            env=_environment(toolchain, scratch),
        )
        try:
            yield _Worker(process, stderr)
        finally:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    with suppress(OSError):
                        stream.close()


def _environment(toolchain: Toolchain, scratch: str) -> dict[str, str]:
    """The same packages as here, but for what the toolchain names. Triton's own cache is thrown away:
    figures are what is kept."""
    roots = [str(root) for root in (toolchain.triton_root, toolchain.kernels_root) if root]
    roots += [str(Path(__file__).resolve().parents[2])]
    roots += [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(roots), "TRITON_CACHE_DIR": scratch}
    environment |= {"OMP_NUM_THREADS": "1"}
    environment.pop("TRITON_INTERPRET", None)
    return environment
