"""Check kernels on the workload table (or on one case) against the float64 reference and themselves."""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from pagegate.cases.notation import format_case, parse_case
from pagegate.cases.spec import Case
from pagegate.cases.workloads import TIERS, find_workloads
from pagegate.errors import UsageError

from . import PASSED, WRONG, common

if TYPE_CHECKING:
    from rich.console import Console

    from pagegate.oracle.results import CheckResult

_LEAST_EXECUTED = 0.9


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-k", metavar="EXPR", dest="expression", help="workloads by name, as in pytest -k")
    words = "small without a GPU; asm with --target; with a GPU pr, or all with -k"
    parser.add_argument("--tier", choices=TIERS, help=words)
    parser.add_argument("--case", metavar="LINE", action="append", help="a case instead of workloads")
    parser.add_argument("--relations", type=int, metavar="N", help="bit-for-bit relations per case (all)")
    words = (
        "with --target: fail if less of any compiled variant's instructions was executed "
        f"({100 * _LEAST_EXECUTED:.0f} for the whole asm tier, else 0)"
    )
    parser.add_argument("--coverage", type=float, metavar="PERCENT", help=words)
    parser.add_argument("--workers", type=int, help="worker processes")
    parser.add_argument("--timeout", type=float, metavar="S", help="seconds after which a case has hung")
    common.add_kernels(parser)
    common.add_device(parser)
    common.add_json(parser)


def _named_cases(options: argparse.Namespace, device: common.Device) -> dict[str, Case]:
    if options.case:
        if options.expression or options.tier:
            raise UsageError("--case: required without -k and --tier, found both")
        return {format_case(case): case for case in map(parse_case, options.case)}
    return {row.name: row.case for row in find_workloads(_tier(options, device), options.expression)}


def _tier(options: argparse.Namespace, device: common.Device) -> str | None:
    if options.tier:
        return str(options.tier)
    if device.target:
        return "asm"
    # without a GPU only the small tier ends soon
    return "small" if device.kind == "cpu" else None if options.expression else "pr"


def _required_coverage(options: argparse.Namespace, device: common.Device) -> float:
    if options.coverage is not None:
        if not device.target or not 0 <= options.coverage <= 100:
            raise UsageError(
                f"--coverage: required 0 to 100 with --target, found {options.coverage:g} "
                f"{'with' if device.target else 'without'} it"
            )
        return float(options.coverage) / 100
    whole = not options.case and not options.expression and _tier(options, device) == "asm"
    return _LEAST_EXECUTED if device.target and whole else 0.0


def run(options: argparse.Namespace) -> int:
    common.refuse_not_positive(options, "workers", "timeout")
    if options.relations is not None and options.relations < 0:
        raise UsageError(f"--relations: required 0 or more, found {options.relations}")
    device = common.choose_device(options.device, options.target)
    kernels = common.choose_kernels(options)
    cases = _named_cases(options, device)
    required = _required_coverage(options, device)
    common.refuse_unwritable(options.json)
    from pagegate.files import write_json
    from pagegate.oracle.batch import check_all, count_unsupported, never_checked
    from pagegate.report import terminal

    out = terminal.console()
    out.print(f"checking {len(cases)} cases with {', '.join(k.name for k in kernels)} on {device.name}")
    names, started, failed = list(cases), time.monotonic(), 0
    setup = replace(common.worker_setup(device, options, options.timeout), coverage=bool(device.target))
    with terminal.progress(out) as bar:
        task = bar.add_task("check", total=len(cases) * len(kernels), note="")

        def on_result(index: int, result: CheckResult) -> None:
            nonlocal failed
            bar.update(task, advance=1, note=names[index])
            if result.failed:
                failed += 1
                words = ["--case" if options.case else "-k", names[index], "--kernel", result.kernel]
                words += ["--tier", options.tier] if options.tier else []
                words += common.target_words(device) + common.plugin_words(options)
                terminal.print_failure(out, result, common.command_line("check", *words))

        workers = options.workers or device.workers
        results = check_all(
            [(case, [k.name for k in kernels]) for case in cases.values()],
            setup,
            workers,
            options.relations,
            on_result,
        )
    rows = []
    for number, kernel in enumerate(kernels):
        mine = [row[number] for row in results]
        worst = max((r for r in mine if r.worst), key=lambda r: r.worst.ratio if r.worst else 0, default=None)
        counts = [sum(r.status == "PASSED" for r in mine), sum(r.failed for r in mine)]
        unsupported = len(mine) - sum(counts)
        rows.append([kernel.name, *map(str, counts), str(unsupported), terminal.ratio_of(worst)])
    columns = ["kernel", "passed", "failed", "unsupported", "worst error / budget"]
    out.print(terminal.table(f"check, {time.monotonic() - started:.0f} s", columns, rows, right=range(1, 5)))
    flat = [result for row in results for result in row]
    terminal.print_unsupported(out, count_unsupported(flat))
    data: dict[str, object] = {
        "device": device.name,
        "results": [replace(r, machine_code=None).to_json() for r in flat],
    }
    covered = True
    if device.target:
        covered, data["coverage"] = _coverage(out, names, results, required)
    if options.json:
        write_json(options.json, data)
    if failed or not covered:
        return WRONG
    common.refuse_nothing_checked(never_checked(flat))
    return PASSED


def _coverage(
    out: Console, names: list[str], results: list[list[CheckResult]], required: float
) -> tuple[bool, object]:
    """Print which instructions ran; whether enough of every compiled variant did, and all of it as data."""
    from pagegate.amdgcn import Report, merged
    from pagegate.report import coverage

    reports, rows_of = [], defaultdict[str, list[str]](list)
    for name, row in zip(names, results, strict=True):
        for result in row:
            if result.machine_code is None:
                continue
            report = Report.from_json(result.machine_code)
            reports.append(report)
            for digest in report.coverage:
                rows_of[digest].append(name)
    whole = merged(reports)
    coverage.print_coverage(out, whole, required, rows_of)
    lacking = coverage.below(whole, required)
    if lacking:
        out.print(
            f"coverage: required {100 * required:.0f} % of each compiled variant, found {len(lacking)} of "
            f"{len(whole.coverage)} below; lengthen a row's sequences, or see --json for all lines",
            markup=False,
        )
    return not lacking, coverage.as_json(whole, rows_of)
