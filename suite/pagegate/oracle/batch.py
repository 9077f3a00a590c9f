"""Many cases over several workers: one job per case, its kernels in turn on the same reference."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from pagegate.cases.spec import Case

from .isolation import Setup, Worker
from .memory import MemoryGate
from .results import CheckResult


def check_all(
    cases: Sequence[Case],
    kernels: Sequence[str],
    setup: Setup,
    workers: int,
    max_relations: int | None = None,
    on_result: Callable[[int, CheckResult], None] = lambda index, result: None,
) -> list[list[CheckResult]]:
    """Results per case and kernel, in order. `on_result` gets the case's index, from worker threads."""
    local, gate = threading.local(), MemoryGate(setup.memory_bytes)
    opened: list[Worker] = []

    def job(index: int) -> list[CheckResult]:
        if not hasattr(local, "worker"):
            local.worker = Worker(setup)
            opened.append(local.worker)
        results = []
        with gate.hold(cases[index].spec):
            for kernel in kernels:
                result = local.worker.check(kernel, cases[index], max_relations)
                on_result(index, result)
                results.append(result)
        return results

    with ThreadPoolExecutor(max(1, min(workers, len(cases)))) as pool:
        try:
            return list(pool.map(job, range(len(cases))))
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
            for worker in opened:
                worker.stop()


def count_unsupported(results: Iterable[CheckResult]) -> dict[tuple[str, str], int]:
    """How often each kernel said UNSUPPORTED for each reason."""
    counts: dict[tuple[str, str], int] = {}
    for result in results:
        if result.status == "UNSUPPORTED":
            key = (result.kernel, result.reason)
            counts[key] = counts.get(key, 0) + 1
    return counts
