"""Would the checks notice? Planted faults, each in its own copy of the kernels, each made to prove itself.

A mutant that no longer applies, or that changes no output, is an error: it would only flatter the score.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from pagegate.cases.registry import kernels_root
from pagegate.cases.workloads import find_workloads
from pagegate.errors import UsageError

from .batch import check_all
from .fuzzing import fuzz
from .isolation import Setup, Worker
from .mutant_table import Mutant
from .tally import FuzzPlan

_FUZZ_EXAMPLES = 60
_RELATIONS = 3


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant. outcome: KILLED, SURVIVED, or ERROR (it proved nothing); by: the status
    and case that killed it, or why not; cases: how many were tried."""

    mutant: Mutant
    outcome: str
    by: str
    cases: int
    seconds: float


def apply(mutant: Mutant, source: Path, target: Path) -> None:
    """Copy the kernels and plant the fault. Raises UsageError when it does not apply exactly once."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    path = target / "paged_kernels" / mutant.file
    text = path.read_text()
    if (count := text.count(mutant.old)) != 1:
        raise UsageError(
            f"mutant {mutant.name}: required its text exactly once in {mutant.file}, found it {count} times; "
            "adapt the mutant to the kernels"
        )
    path.write_text(text.replace(mutant.old, mutant.new))


def run_mutants(
    mutants: Sequence[Mutant],
    setup: Setup,
    workers: int,
    on_verdict: Callable[[Verdict], None] = lambda verdict: None,
) -> list[Verdict]:
    """Try every mutant, several at a time; verdicts in order. `on_verdict` is called from threads."""

    _refuse_broken_kernels({mutant.kernel for mutant in mutants}, setup, workers)

    def job(mutant: Mutant) -> Verdict:
        started = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="pagegate-mutant-") as folder:
            try:
                root = Path(folder) / "kernels"
                apply(mutant, kernels_root(), root)
                outcome, by, cases = _hunt(mutant, setup, root)
            except UsageError as error:
                outcome, by, cases = "ERROR", str(error), 0
        verdict = Verdict(mutant, outcome, by, cases, time.monotonic() - started)
        on_verdict(verdict)
        return verdict

    with ThreadPoolExecutor(max(1, min(workers, len(mutants)))) as pool:
        return list(pool.map(job, mutants))


def _refuse_broken_kernels(names: set[str], setup: Setup, workers: int) -> None:
    """The control: a check that fails without a fault would kill every mutant."""
    rows = find_workloads("small")
    results = check_all([(row.case, sorted(names)) for row in rows], setup, workers, _RELATIONS)
    broken = [(row, r) for row, of_row in zip(rows, results, strict=True) for r in of_row if r.failed]
    if broken:
        row, result = broken[0]
        raise UsageError(
            f"mutants: required kernels that pass the small tier, found {len(broken)} failures, the first "
            f"{result.kernel} {result.status} in {row.name}; see `pagegate check --tier small`"
        )


def _hunt(mutant: Mutant, setup: Setup, root: Path) -> tuple[str, str, int]:
    """First the table's cases, then fuzzing; then whether the mutant does anything at all."""
    mine = replace(setup, kernels_root=root)
    rows = find_workloads("small")
    if setup.device == "cuda":
        rows += find_workloads("pr")  # small cases do not fill a GPU, which the launch configuration minds
    with Worker(mine) as worker:
        for number, row in enumerate(rows, 1):
            result = worker.check(mutant.kernel, row.case, _RELATIONS)
            if result.failed:
                how = f"{result.status} ({result.relation})" if result.relation else result.status
                return "KILLED", f"{how} in {row.name}", number
    plan = FuzzPlan((mutant.kernel,), "small", 1, 1, examples=_FUZZ_EXAMPLES, max_relations=_RELATIONS)
    tally = fuzz(plan, mine, shrink_steps=0)
    if tally.failures:
        failure = next(iter(tally.failures.values()))
        return "KILLED", f"{failure.result.status} in fuzzing", len(rows) + tally.cases
    tried = len(rows) + tally.cases
    with Worker(mine) as mutated, Worker(setup) as original:
        for row in rows:
            if mutated.fingerprint(mutant.kernel, row.case) != original.fingerprint(mutant.kernel, row.case):
                return "SURVIVED", f"it changes the output of {row.name}, and no check minds", tried
    return "ERROR", "it changed no output: not reached, or no fault", tried
