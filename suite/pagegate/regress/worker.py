"""One side of a gate: the process that times one `paged_kernels`. JSON lines in, JSON lines out.

Its path decides which `paged_kernels` that is; everything else is the instrument. Requests, each answered by
{"answer": ...} or, when the kernel at hand failed, {"answer": {"failed": words}}:

begin                                     first; what runs here: {"subject": ..., "environment": ...}
prepare case kernel quantity placement    fresh buffers, compiled and captured: {} or {"unsupported": reason};
                                          least and extra plant a slowdown, see `measure.gpu.GraphWatch`
sample launches                           timed launches of what was prepared: `Samples`
explain                                   what it launches, and what the host pays for it
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable
from typing import Any, Protocol, TextIO

from pagegate.cases.spec import Case


class Side(Protocol):
    """What a worker does; the GPU's is `GpuSide`, tests bring one that needs none."""

    def begin(self) -> dict[str, Any]: ...

    def prepare(
        self, case: Case, kernel: str, quantity: str, placement: int, least: int, extra: float
    ) -> None:
        """Raises NotImplementedError with the reason for what the kernel does not support."""

    def sample(self, launches: int) -> dict[str, Any]:
        """Of `Samples`."""

    def explain(self) -> dict[str, Any]: ...


class GpuSide:
    """Times kernels on the GPU. At most one row's buffers are on it."""

    def __init__(self) -> None:
        self._watch: Any = None
        self._prepared: Any = None

    def begin(self) -> dict[str, Any]:
        from pagegate.cases.registry import kernels
        from pagegate.measure.environment import current_environment
        from pagegate.measure.subject import subject

        for kernel in kernels().values():
            if not kernel.peer:
                kernel.load()
        return {"subject": subject(), "environment": current_environment().to_json()}

    def prepare(
        self, case: Case, kernel: str, quantity: str, placement: int, least: int = 0, extra: float = 0.0
    ) -> None:
        import torch

        from pagegate.cases.registry import find_kernel
        from pagegate.measure.timing import stopwatch

        self._watch = self._prepared = None
        torch.cuda.empty_cache()
        found = find_kernel(kernel)
        reason = found.unsupported_reason(case.spec)
        if reason:
            raise NotImplementedError(reason)
        self._watch = stopwatch(found, case, quantity, placement, least, extra)
        self._prepared = (found, case)

    def sample(self, launches: int) -> dict[str, Any]:
        from pagegate.measure.machine import read_machine
        from pagegate.measure.sampler import Plan, sample

        # one warm-up and one batch
        return sample(self._watch, Plan(warm_s=0, budget_s=0, batch=launches), read_machine).to_json()

    def explain(self) -> dict[str, Any]:
        from .why import explain

        return explain(*self._prepared)


def serve(side: Side, requests: Iterable[str], channel: TextIO) -> None:
    """Answer until there are no more requests."""

    def say(message: dict[str, Any]) -> None:
        channel.write(json.dumps(message) + "\n")
        channel.flush()

    say({"ready": True})
    for line in requests:
        try:
            say({"answer": _answer(side, json.loads(line))})
        except Exception as error:
            say({"answer": {"failed": _words(error)}})


def _answer(side: Side, request: dict[str, Any]) -> dict[str, Any]:
    action = request["action"]
    if action == "begin":
        return side.begin()
    if action == "prepare":
        case = Case.from_json(request["case"])
        try:
            plant = request.get("least", 0), request.get("extra", 0.0)
            side.prepare(case, request["kernel"], request["quantity"], request["placement"], *plant)
        except NotImplementedError as error:
            return {"unsupported": str(error)}
        return {}
    if action == "sample":
        return side.sample(request["launches"])
    if action == "explain":
        return side.explain()
    raise ValueError(f"action: required begin, prepare, sample or explain, found {action!r}")


def _words(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' | '.join(lines[:3])}"[:400]


def private_stdout() -> TextIO:
    """The protocol's own channel; whatever a kernel or a compiler prints goes to stderr."""
    channel = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    return channel


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--plugin", action="append", default=[])
    options = parser.parse_args()
    channel = private_stdout()
    # before the first request: a worker may be started ahead of its turn, and must leave the GPU alone
    import torch
    import triton  # noqa: F401

    from pagegate.cases.registry import load_plugin
    from pagegate.measure import timing  # noqa: F401

    torch.set_num_threads(1)
    for plugin in options.plugin:
        load_plugin(plugin)
    serve(GpuSide(), sys.stdin, channel)


if __name__ == "__main__":
    main()
