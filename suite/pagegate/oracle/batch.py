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
    jobs: Sequence[tuple[Case, Sequence[str]]],
    setup: Setup,
    workers: int,
    max_relations: int | None = None,
    on_result: Callable[[int, CheckResult], None] = lambda index, result: None,
) -> list[list[CheckResult]]:
    """Results per case and its kernels, in order. `on_result` gets the case's index, from worker threads."""
    local, gate = threading.local(), MemoryGate(setup.memory_bytes)
    opened: list[Worker] = []

    def job(index: int) -> list[CheckResult]:
        if not hasattr(local, "worker"):
            local.worker = Worker(setup)
            opened.append(local.worker)
        results = []
        case, kernels = jobs[index]
        with gate.hold(case.spec):
            for kernel in kernels:
                result = local.worker.check(kernel, case, max_relations)
                on_result(index, result)
                results.append(result)
        return results

    with ThreadPoolExecutor(max(1, min(workers, len(jobs)))) as pool:
        try:
            return list(pool.map(job, range(len(jobs))))
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
            for worker in opened:
                worker.stop()


def never_checked(results: Iterable[CheckResult]) -> list[str]:
    """Kernels that were asked for and ran nothing: that is no pass."""
    ran: dict[str, bool] = {}
    for result in results:
        ran[result.kernel] = ran.get(result.kernel, False) or result.status != "UNSUPPORTED"
    return [kernel for kernel, once in ran.items() if not once]


def count_unsupported(results: Iterable[CheckResult]) -> dict[tuple[str, str], int]:
    """How often each kernel said UNSUPPORTED for each reason."""
    counts: dict[tuple[str, str], int] = {}
    for result in results:
        if result.status == "UNSUPPORTED":
            key = (result.kernel, result.reason)
            counts[key] = counts.get(key, 0) + 1
    return counts
