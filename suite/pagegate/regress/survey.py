"""Before anything is timed: what can be compared, and is head right?"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from pagegate.cases.matching import matches
from pagegate.cases.workloads import Workload, find_workloads
from pagegate.errors import UsageError
from pagegate.oracle.batch import check_all
from pagegate.oracle.isolation import Setup
from pagegate.oracle.results import CheckResult

from .revisions import Revision, table_of
from .rounds import BEGIN, Row, SideWorker, Start

CHECKED_RELATIONS = 2


@dataclass
class Selection:
    """Workloads that both sides' tables hold with the same spec; incomparable: name -> reason; notes."""

    workloads: list[Workload] = field(default_factory=list)
    incomparable: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def select(base: Revision, head: Revision, tier: str | None, expression: str | None) -> Selection:
    """What a tier and an expression select, in both tables; the instrument's own specs are what is run.

    Raises UsageError when nothing is selected in either.
    """
    found = Selection()
    tables = [
        _selected(found, side, words, tier, expression) for side, words in ((base, "base"), (head, "head"))
    ]
    here = {row.name: row for row in _here(tier, expression)}
    mine, theirs = (_digests(here) if table is None else table for table in tables)
    for name in dict.fromkeys([*here, *mine, *theirs]):
        old, new = mine.get(name), theirs.get(name)
        if old is None or new is None:
            side, other = ("base", "head") if new is None else ("head", "base")
            found.incomparable[name] = f"only in the table of {side}, missing in {other}"
        elif old != new:
            found.incomparable[name] = f"its spec changed: digest {old} in base, {new} in head"
        elif name not in here or here[name].spec.digest() != old:
            found.incomparable[name] = "the instrument that runs here has another table"
        else:
            found.workloads.append(here[name])
    if not found.workloads and not found.incomparable:
        find_workloads(tier, expression)  # says what there is
    return found


def _digests(here: Mapping[str, Workload]) -> dict[str, str]:
    return {name: row.spec.digest() for name, row in here.items()}


def _here(tier: str | None, expression: str | None) -> Sequence[Workload]:
    try:
        return find_workloads(tier, expression)
    except UsageError:
        matches(expression or "x", "")  # an expression that is none
        return ()


def _selected(
    found: Selection, side: Revision, words: str, tier: str | None, expression: str | None
) -> dict[str, str] | None:
    table = table_of(side)
    if table is None:
        found.notes.append(f"{words} has no table of workloads that can be read: the instrument's stands in")
        return None
    rows = [(name, digest) for name, own_tier, digest in table if tier in (None, own_tier)]
    if any(name == expression for name, _ in rows):
        return {name: digest for name, digest in rows if name == expression}
    return {name: digest for name, digest in rows if expression is None or matches(expression, name)}


# of head's rows; calls back with each result
Check = Callable[[Start, Sequence[Row], Callable[[Row, CheckResult], None]], list[CheckResult]]


def oracle_check(setup: Setup, workers: int) -> Check:
    """A `Check` by the oracle, with `setup` but for the kernels."""

    def check(
        start: Start, rows: Sequence[Row], on_result: Callable[[Row, CheckResult], None]
    ) -> list[CheckResult]:
        results = check_all(
            [(row.case, [row.kernel]) for row in rows],
            replace(setup, kernels_root=start.kernels),
            workers,
            CHECKED_RELATIONS,
            lambda index, result: on_result(rows[index], result),
        )
        return [result for job in results for result in job]

    return check


def compile_all(
    starts: Sequence[Start], rows: Sequence[Row], workers: int, on_done: Callable[[Row], None]
) -> tuple[dict[tuple[str, str], str | None], dict[str, Any]]:
    """Prepare each row once on each side, several at a time: fills the compile cache, and finds what a side
    does not support: (side, row name) -> reason, or None. Also returns the environment that workers see.

    Raises SideFailed, and UsageError when a worker finds another `paged_kernels` than that of its side.
    """
    local = threading.local()
    opened: list[SideWorker] = []
    environment: dict[str, Any] = {}

    def worker_of(start: Start) -> SideWorker:
        pool: dict[str, SideWorker] = local.__dict__.setdefault("workers", {})
        if start.side not in pool:
            pool[start.side] = SideWorker(start)
            opened.append(pool[start.side])
            answer = pool[start.side].ask(BEGIN, None)
            _refuse_another_subject(start, answer)
            environment.update(answer["environment"])
        return pool[start.side]

    def job(start: Start, row: Row) -> str | None:
        reason = worker_of(start).ask(row.request(0), row).get("unsupported")
        on_done(row)
        return reason

    jobs = [(start, row) for start in starts for row in rows]
    with ThreadPoolExecutor(max(1, min(workers, len(jobs)))) as threads:
        try:
            reasons = list(threads.map(lambda pair: job(*pair), jobs))
        finally:
            threads.shutdown(wait=True, cancel_futures=True)
            for worker in opened:
                worker.stop()
    named = {(start.side, row.name): reason for (start, row), reason in zip(jobs, reasons, strict=True)}
    return named, environment


def _refuse_another_subject(start: Start, answer: Mapping[str, Any]) -> None:
    found = answer["subject"]["sources"]
    if found != start.sources:
        raise UsageError(
            f"{start.side}: required the paged_kernels with sources {start.sources}, found {found}; another "
            "installation comes first on the worker's path"
        )


def unequal_support(
    rows: Sequence[Row], reasons: Mapping[tuple[str, str], str | None]
) -> tuple[dict[str, str], dict[str, str]]:
    """Row name -> words: of rows that one side supports (not comparable), and of those that neither does."""
    one, neither = {}, {}
    for row in rows:
        base, head = (reasons[side, row.name] for side in ("base", "head"))
        if base and head:
            neither[row.name] = head
        elif head:
            one[row.name] = f"became UNSUPPORTED in head: {head}"
        elif base:
            one[row.name] = f"UNSUPPORTED in base: {base}"
    return one, neither
