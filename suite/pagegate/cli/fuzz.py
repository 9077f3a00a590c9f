"""Fuzz kernels with new cases until the budget ends. A failure is shrunk, saved and printed."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from pagegate.cases.notation import format_case
from pagegate.errors import UsageError

from . import PASSED, WRONG, common

if TYPE_CHECKING:
    from rich.console import Console

    from pagegate.oracle.tally import Failure, FuzzPlan, Tally


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--examples", type=int, metavar="N", help="how many cases (100 if no --minutes)")
    parser.add_argument("--minutes", type=float, metavar="M", help="for how long")
    parser.add_argument("--seed", type=int, default=0, help="the same seed draws the same cases (0)")
    parser.add_argument("--size", choices=("small", "full"), help="small without a GPU, full with one")
    parser.add_argument("--relations", type=int, metavar="N", help="bit-for-bit relations per case")
    parser.add_argument("--workers", type=int, help="worker processes (one per core)")
    parser.add_argument("--timeout", type=float, metavar="S", help="seconds after which a case has hung")
    parser.add_argument(
        "--database",
        type=Path,
        default=Path(".pagegate/examples"),
        help="failures kept between runs, tried first",
    )
    parser.add_argument("--no-database", action="store_true", help="neither read nor keep examples")
    common.add_kernels(parser)
    common.add_device(parser)
    common.add_json(parser)


def _plan(options: argparse.Namespace, device: common.Device, kernels: tuple[str, ...]) -> FuzzPlan:
    from pagegate.oracle.tally import FuzzPlan, shards_for

    common.refuse_not_positive(options, "examples", "minutes", "workers", "timeout")
    if options.relations is not None and options.relations < 0:
        raise UsageError(f"--relations: required 0 or more, found {options.relations}")
    examples = options.examples
    if examples is None and options.minutes is None:
        examples = 100
    gpu = device.kind == "cuda"
    return FuzzPlan(
        kernels,
        options.size or ("full" if gpu else "small"),
        options.seed,
        shards_for(examples),
        examples,
        options.minutes * 60 if options.minutes else None,
        options.relations if options.relations is not None else (4 if gpu else 2),
        None if options.no_database else options.database,
        options.workers or device.workers,
    )


def run(options: argparse.Namespace) -> int:
    device = common.choose_device(options.device, options.target)
    kernels = common.choose_kernels(options)
    common.refuse_unwritable(options.json)
    plan = _plan(options, device, tuple(kernel.name for kernel in kernels))
    from pagegate.files import write_json
    from pagegate.oracle import saving
    from pagegate.oracle.fuzzing import fuzz
    from pagegate.report import terminal

    out = terminal.console()
    searches = f"{plan.shards} search{'es' * (plan.shards > 1)}"
    out.print(
        f"fuzzing {', '.join(plan.kernels)} on {device.name}: seed {plan.seed}, {searches}, {plan.size} cases"
    )
    with terminal.progress(out) as bar:
        total = plan.examples
        task = bar.add_task("fuzz", total=total, note="")

        def draw(tally: Tally) -> None:
            bar.update(task, completed=tally.cases, note=_note(tally))

        def on_failure(failure: Failure) -> None:
            """Saved and printed at once: a run that is cut short has lost nothing."""
            path = saving.save_failure(saving.FAILURES, failure.result, saving.versions(device.name))
            words = ["replay", str(path), *common.target_words(device), *common.plugin_words(options)]
            note = f"shrunk in {failure.steps} steps from {format_case(failure.found)}"
            if not failure.repeatable:
                note += "; it did not fail every time"
            terminal.print_failure(out, failure.result, common.command_line(*words), note)

        setup = common.worker_setup(device, options, options.timeout)
        tally = fuzz(plan, setup, _ticker(out, draw), on_failure)
    _summary(out, plan, tally)
    if tally.stalled:
        out.print("the search found no more new cases in time and was ended early")
    if options.json:
        write_json(options.json, _as_json(plan, tally, device))
    if tally.failures:
        return WRONG
    common.refuse_nothing_checked([name for name in plan.kernels if not tally.checks[name]])
    return PASSED


def _ticker(out: Console, draw: Callable[[Tally], None]) -> Callable[[Tally], None]:
    """On a terminal the bar; in a log a line now and then."""
    last = time.monotonic()

    def tick(tally: Tally) -> None:
        nonlocal last
        draw(tally)
        if not out.is_terminal and time.monotonic() - last > 20:
            last = time.monotonic()
            out.print(f"  {tally.seconds:4.0f} s: {tally.cases} cases, {_note(tally)}{_slowest(tally)}")

    return tick


def _slowest(tally: Tally) -> str:
    """The case that has been running for long, if one has."""
    now = time.monotonic()
    waiting = [(now - since, kernel, case) for kernel, case, since in list(tally.running.values())]
    if not waiting or (longest := max(waiting, key=lambda entry: entry[0]))[0] < 15:
        return ""
    return f"; for {longest[0]:.0f} s: {longest[1]} on {format_case(longest[2])}"


def _note(tally: Tally) -> str:
    with tally.lock:
        worst = max((r.worst.ratio for r in tally.worst.values() if r.worst), default=0.0)
        return f"{len(tally.features)} features, worst {worst:.2f} of budget, {len(tally.failures)} failures"


def _summary(out: Console, plan: FuzzPlan, tally: Tally) -> None:
    from pagegate.report import terminal

    rows = []
    for kernel in plan.kernels:
        kinds = [f for f in tally.failures.values() if f.result.kernel == kernel]
        failures = f"{sum(f.count for f in kinds)} of {len(kinds)} kinds" if kinds else "0"
        ratio = terminal.ratio_of(tally.worst.get(kernel))
        rows.append([kernel, str(tally.checks[kernel]), failures, ratio])
    title = f"fuzz, {tally.cases} cases in {tally.seconds:.0f} s"
    out.print(
        terminal.table(title, ["kernel", "checked", "failures", "worst error / budget"], rows, (1, 2, 3))
    )
    for result in tally.worst.values():
        out.print(f"worst of {result.kernel}: {format_case(result.case)}\n  {result.worst}", markup=False)
    for title, counter in (("seen", tally.features), ("relations held", tally.relations)):
        out.print(f"{title}: " + ", ".join(f"{name} {count}" for name, count in sorted(counter.items())))
    terminal.print_unsupported(out, dict(tally.unsupported))


def _as_json(plan: FuzzPlan, tally: Tally, device: common.Device) -> dict[str, object]:
    return {
        "device": device.name,
        "seed": plan.seed,
        "searches": plan.shards,
        "cases": tally.cases,
        "checks": dict(tally.checks),
        "seconds": tally.seconds,
        "features": dict(tally.features),
        "relations": dict(tally.relations),
        "worst": {name: result.to_json() for name, result in tally.worst.items()},
        "failures": [
            failure.result.to_json() | {"count": failure.count, "steps": failure.steps}
            for failure in tally.failures.values()
        ],
    }
