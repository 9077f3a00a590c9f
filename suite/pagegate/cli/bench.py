"""Latency, bandwidth and share of the roofline of kernels on workloads."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pagegate.cases.registry import Kernel
from pagegate.cases.workloads import TIERS, Workload, find_workloads
from pagegate.errors import UsageError
from pagegate.measure.samples import QUANTITIES
from pagegate.report import plot

from . import PASSED, WRONG, common

if TYPE_CHECKING:
    from pagegate.measure.roofline import Ceilings
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
    parser.add_argument(
        "--over", choices=plot.AXES, help="the picture's axis (the first that has two workloads)"
    )
    common.add_kernels(parser)
    common.add_json(parser)


def run(options: argparse.Namespace) -> int:
    from pagegate.measure.environment import current_environment

    environment = current_environment()
    kernels = common.choose_kernels(options)
    rows = find_workloads(options.tier or (None if options.expression else "pr"), options.expression)
    _refuse(options, kernels, rows)

    from pagegate.files import write_json
    from pagegate.measure.gpu import measure_ceilings
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
    results = Results(environment, ceilings, subject(), (), _command(options))
    with bench.live(out, len(rows) * len(kernels), options.against) as show:
        for workload in rows:
            for kernel in kernels:
                show(results, f"{workload.name} {kernel.name}")
                row = _measure(workload, kernel, options, ceilings)
                results = replace(results, rows=(*results.rows, row))
    out.print(bench.bench_table(results, options.against))
    if options.json:
        write_json(options.json, results.to_json())
    if options.plot and any(row.samples for row in results.rows):
        plot.plot(results, options.plot, options.over)
    return WRONG if any(row.status == "FAILED" for row in results.rows) else PASSED


def _refuse(options: argparse.Namespace, kernels: list[Kernel], rows: tuple[Workload, ...]) -> None:
    """Everything that would only show after minutes of measuring. Raises UsageError."""
    for path in (options.json, options.plot):
        common.refuse_unwritable(path)
    common.refuse_not_positive(options, "budget", "target")
    names = [kernel.name for kernel in kernels]
    if options.against and options.against not in names:
        raise UsageError(
            f"--against: required one of the measured kernels ({', '.join(names)}), found {options.against!r}"
        )
    if options.plot is None:
        return
    plot.refuse_no_matplotlib()
    if options.plot.suffix not in plot.SUFFIXES:
        raise UsageError(
            f"--plot: required a name that ends in {', '.join(plot.SUFFIXES)}, found {options.plot}"
        )
    if options.over and not plot.panels({row.name: row.spec for row in rows}, options.over):
        raise UsageError(
            f"--over: required workloads that differ in their {options.over} only, found no two; "
            "leave it out, or measure more of them"
        )


def _command(options: argparse.Namespace) -> str:
    """What repeats this run, wherever its files go."""
    words = ["bench", *(["-k", options.expression] if options.expression else [])]
    words += ["--tier", options.tier] if options.tier else []
    words += [word for name in options.kernel or () for word in ("--kernel", name)]
    words += [*common.plugin_words(options), "--quantity", options.quantity]
    return common.command_line(*words, "--budget", f"{options.budget:g}", "--target", f"{options.target:g}")


def _measure(workload: Workload, kernel: Kernel, options: argparse.Namespace, ceilings: Ceilings) -> Row:
    """One row; a kernel that cannot run the workload, or fails on it, is a row that says so."""
    from pagegate.measure.roofline import floor_s
    from pagegate.measure.sampler import Plan
    from pagegate.measure.timing import measure
    from pagegate.regress.results import Row

    name = (workload.name, workload.spec.digest(), kernel.name, options.quantity)
    plan = Plan(budget_s=options.budget, target=options.target / 100)
    reason = kernel.unsupported_reason(workload.spec)
    if reason:
        return Row(*name, status="UNSUPPORTED", reason=reason)
    try:
        samples = measure(kernel, workload.case, options.quantity, plan)
    except NotImplementedError as error:
        return Row(*name, status="UNSUPPORTED", reason=str(error))
    except (RuntimeError, ValueError, UsageError) as error:
        return Row(*name, status="FAILED", reason=f"{type(error).__name__}: {str(error).splitlines()[0]}")
    return Row(*name, samples=samples, floor_s=floor_s(workload.spec, ceilings))
