"""Latency, bandwidth and share of the roofline of kernels on workloads."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from pagegate.cases.registry import Kernel
from pagegate.cases.workloads import TIERS, Workload, find_workloads
from pagegate.errors import UsageError
from pagegate.measure.samples import QUANTITIES

from . import PASSED, WRONG, common

if TYPE_CHECKING:
    from pagegate.measure.roofline import Ceilings
    from pagegate.measure.sampler import Plan
    from pagegate.regress.results import Row


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-k", metavar="EXPR", dest="expression", help="workloads by name, as in pytest -k")
    parser.add_argument("--tier", choices=TIERS, help="a tier (pr)")
    parser.add_argument("--quantity", choices=QUANTITIES, default="graph")
    parser.add_argument("--against", metavar="KERNEL", help="show ratios to this kernel")
    parser.add_argument("--budget", type=float, default=1.0, metavar="S", help="seconds per row at most (1)")
    parser.add_argument(
        "--target", type=float, default=0.2, metavar="PERCENT", help="half-width of the interval (0.2)"
    )
    parser.add_argument(
        "--plot", type=Path, metavar="FILE", help="draw latency and roofline share (PNG, SVG)"
    )
    common.add_kernels(parser)
    common.add_json(parser)


def run(options: argparse.Namespace) -> int:
    from pagegate.measure.environment import current_environment

    environment = current_environment()
    kernels = common.choose_kernels(options)
    for path in (options.json, options.plot):
        common.refuse_unwritable(path)
    for name in ("budget", "target"):
        if getattr(options, name) <= 0:
            raise UsageError(f"--{name}: required more than 0, found {getattr(options, name)}")
    if options.against and options.against not in [kernel.name for kernel in kernels]:
        raise UsageError(
            f"--against: required one of the measured kernels ({', '.join(k.name for k in kernels)}), "
            f"found {options.against!r}"
        )
    tier = options.tier or (None if options.expression else "pr")
    rows = find_workloads(tier, options.expression)

    from pagegate.files import write_json
    from pagegate.measure.gpu import measure_ceilings
    from pagegate.measure.sampler import Plan
    from pagegate.measure.subject import subject
    from pagegate.regress.results import Results
    from pagegate.report import bench, terminal

    out = terminal.console()
    out.print(
        f"measuring {len(rows)} workloads with {', '.join(k.name for k in kernels)} on {environment.gpu}"
    )
    if environment.processes:
        out.print(f"[yellow]{environment.processes} other processes are on this GPU[/]")
    ceilings = measure_ceilings()
    out.print(f"ceilings: {ceilings.bytes_per_s / 1e12:.2f} TB/s, {ceilings.flops_per_s / 1e12:.0f} TFLOP/s")
    plan = Plan(budget_s=options.budget, target=options.target / 100)
    measured: list[Row] = []
    with terminal.progress(out) as bar:
        task = bar.add_task("bench", total=len(rows) * len(kernels), note="")
        for workload in rows:
            for kernel in kernels:
                bar.update(task, note=f"{workload.name} {kernel.name}")
                measured.append(_measure(workload, kernel, options.quantity, plan, ceilings))
                bar.advance(task)
    results = Results(environment, ceilings, subject(), tuple(measured))
    out.print(bench.bench_table(results, options.against))
    if options.json:
        write_json(options.json, results.to_json())
    if options.plot:
        bench.plot(results, options.plot)
    return WRONG if any(row.status == "FAILED" for row in measured) else PASSED


def _measure(workload: Workload, kernel: Kernel, quantity: str, plan: Plan, ceilings: Ceilings) -> Row:
    """One row; a kernel that cannot run the workload, or fails on it, is a row that says so."""
    from pagegate.measure.roofline import floor_s
    from pagegate.measure.timing import measure
    from pagegate.regress.results import Row

    name = (workload.name, workload.spec.digest(), kernel.name, quantity)
    reason = kernel.unsupported_reason(workload.spec)
    if reason:
        return Row(*name, status="UNSUPPORTED", reason=reason)
    try:
        samples = measure(kernel, workload.case, quantity, plan)
    except NotImplementedError as error:
        return Row(*name, status="UNSUPPORTED", reason=str(error))
    except (RuntimeError, ValueError, UsageError) as error:
        return Row(*name, status="FAILED", reason=f"{type(error).__name__}: {str(error).splitlines()[0]}")
    return Row(*name, samples=samples, floor_s=floor_s(workload.spec, ceilings))
