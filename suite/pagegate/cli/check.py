"""Check kernels on the workload table (or on one case) against the float64 reference and themselves."""

from __future__ import annotations

import argparse
import time

from pagegate.cases.notation import format_case, parse_case
from pagegate.cases.spec import Case
from pagegate.cases.workloads import TIERS, find_workloads
from pagegate.errors import UsageError

from . import PASSED, WRONG, common


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-k", metavar="EXPR", dest="expression", help="workloads by name, as in pytest -k")
    parser.add_argument("--tier", choices=TIERS, help="small without a GPU; with one pr, or all with -k")
    parser.add_argument("--case", metavar="LINE", action="append", help="a case instead of workloads")
    parser.add_argument("--relations", type=int, metavar="N", help="bit-for-bit relations per case (all)")
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
    # without a GPU only the small tier ends soon
    tier = options.tier or ("small" if device.kind == "cpu" else None if options.expression else "pr")
    return {row.name: row.case for row in find_workloads(tier, options.expression)}


def run(options: argparse.Namespace) -> int:
    common.refuse_not_positive(options, "workers", "timeout")
    if options.relations is not None and options.relations < 0:
        raise UsageError(f"--relations: required 0 or more, found {options.relations}")
    device = common.choose_device(options.device, options.target)
    kernels = common.choose_kernels(options)
    cases = _named_cases(options, device)
    common.refuse_unwritable(options.json)
    from pagegate.files import write_json
    from pagegate.oracle.batch import check_all, count_unsupported, never_checked
    from pagegate.oracle.results import CheckResult
    from pagegate.report import terminal

    out = terminal.console()
    out.print(f"checking {len(cases)} cases with {', '.join(k.name for k in kernels)} on {device.name}")
    names, started, failed = list(cases), time.monotonic(), 0
    setup = common.worker_setup(device, options, options.timeout)
    with terminal.progress(out) as bar:
        task = bar.add_task("check", total=len(cases) * len(kernels), note="")

        def on_result(index: int, result: CheckResult) -> None:
            nonlocal failed
            bar.update(task, advance=1, note=names[index])
            if result.failed:
                failed += 1
                words = ["--case" if options.case else "-k", names[index], "--kernel", result.kernel]
                words += common.plugin_words(options)
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
    if options.json:
        write_json(options.json, {"device": device.name, "results": [r.to_json() for r in flat]})
    if failed:
        return WRONG
    common.refuse_nothing_checked(never_checked(flat))
    return PASSED
