"""Compile the table's kernels for GPUs that need not be here, and compare what came out with the baseline
(or with another commit, or another Triton): registers, spills, shared memory, occupancy, instructions."""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pagegate.cases.workloads import TIERS, find_workloads
from pagegate.compiled import baseline
from pagegate.compiled.table import CACHE
from pagegate.compiled.targets import DEFAULT, TARGETS, find_target
from pagegate.errors import UsageError

from . import PASSED, SLOWER, UNDECIDED, WRONG, common

if TYPE_CHECKING:
    from pagegate.compiled.figures import Compiled
    from pagegate.compiled.rules import Finding
    from pagegate.compiled.table import Toolchain

_CODES = {
    "WRONG": WRONG,
    "SLOWER": SLOWER,
    "INCOMPARABLE": UNDECIDED,
    "AMBIGUOUS": UNDECIDED,
    "FASTER": PASSED,
    "SAME": PASSED,
}


def configure(parser: argparse.ArgumentParser) -> None:
    words = f"a GPU to compile for; may be repeated ({', '.join(DEFAULT)}); one of {', '.join(TARGETS)}"
    parser.add_argument("--target", action="append", metavar="GPU", help=words)
    parser.add_argument("-k", metavar="EXPR", dest="expression", help="workloads by name, as in pytest -k")
    parser.add_argument("--tier", choices=TIERS, default="pr", help="(pr)")
    parser.add_argument("--base", metavar="REV", help="compare with this commit's kernels")
    parser.add_argument(
        "--triton", action="append", default=[], metavar="VERSION",
        help="compile with this version, in an environment that is thrown away; twice or more: compare them",
    )  # fmt: skip
    parser.add_argument("--update", action="store_true", help="accept these figures as the baseline")
    parser.add_argument("--reason", help="with --update: why; kept with the figures")
    parser.add_argument("--folder", type=Path, default=baseline.FOLDER, help=f"({baseline.FOLDER})")
    parser.add_argument("--cache", type=Path, default=CACHE, help=f"figures kept between runs ({CACHE})")
    parser.add_argument("--workers", type=int, help="processes that compile (as many as cores)")
    common.add_kernels(parser)
    common.add_json(parser)


def run(options: argparse.Namespace) -> int:
    _refuse_contradictions(options)
    targets = [find_target(name) for name in dict.fromkeys(options.target or DEFAULT)]
    names = [kernel.name for kernel in common.choose_kernels(options)]
    rows = {row.name: row.case for row in find_workloads(options.tier, options.expression)}
    common.refuse_unwritable(options.json)
    from pagegate.compiled import rules
    from pagegate.files import write_json
    from pagegate.report import compiled as report
    from pagegate.report import terminal

    out, started = terminal.console(), time.monotonic()
    found: dict[str, Any] = {}
    worst: list[Finding] = []
    with tempfile.TemporaryDirectory(prefix="pagegate-compiled-") as folder:
        before, sides = _sides(options, Path(folder))
        for target in targets:

            def compile_side(toolchain: Toolchain, name: str = target.name) -> Compiled:
                return _compile(out, name, rows, names, toolchain)

            tables = [compile_side(side) for side in sides]
            base = compile_side(before) if before else None
            report.print_figures(out, tables[-1], target)
            findings = _judge(options, base, tables)
            report.print_findings(out, target.name, findings)
            if options.update:
                path = baseline.update(tables[-1], options.reason, options.folder)
                out.print(f"{len(tables[-1].variants)} variants accepted into {path}")
                findings = rules.problems(tables[-1])
            word = rules.overall(findings)
            out.print(f"{report.verdict(word)} {target.name}, {time.monotonic() - started:.0f} s\n")
            found[target.name] = {
                "verdict": word,
                "findings": [vars(finding) for finding in findings],
                "compiled": [table.to_json() for table in tables],
            }
            worst += findings
    if options.json:
        write_json(options.json, found)
    return _CODES[rules.overall(worst)]


def _refuse_contradictions(options: argparse.Namespace) -> None:
    common.refuse_not_positive(options, "workers")
    if options.update and not (options.reason or "").strip():
        raise UsageError("--update: required --reason TEXT, which is kept with the figures, found none")
    if options.reason and not options.update:
        raise UsageError("--reason: required with --update, found without it")
    if options.update and (options.expression or options.tier != "pr" or options.kernel or options.plugin):
        raise UsageError(
            "--update: required the whole pr tier with the registered kernels, found a selection; it is "
            "what everyone is compared with"
        )
    if options.update and (options.base or len(options.triton) > 1):
        raise UsageError("--update: required one side to accept, found --base or several --triton")
    if options.base and len(options.triton) > 1:
        raise UsageError(
            "--base: required with at most one --triton, found several; ask one question at a time"
        )


def _sides(options: argparse.Namespace, folder: Path) -> tuple[Toolchain | None, list[Toolchain]]:
    """What to compare with (None: the baseline, or the first side), and what to compile."""
    from importlib.metadata import version as installed

    from pagegate.compiled import sources
    from pagegate.compiled.table import Toolchain

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    common_side = Toolchain(
        plugins=tuple(options.plugin), cache=options.cache, workers=options.workers or cores
    )
    sides = []
    for version in dict.fromkeys(options.triton):
        root = None if version == installed("triton") else sources.triton_at(version, folder / version)
        sides.append(replace(common_side, triton_root=root))
    sides = sides or [common_side]
    if not options.base:
        return None, sides
    return replace(sides[0], kernels_root=sources.kernels_at(options.base, folder / "base")), sides


def _compile(
    out: Any, target: str, rows: dict[str, Any], kernels: Sequence[str], toolchain: Toolchain
) -> Compiled:
    from pagegate.compiled.table import compile_table
    from pagegate.report import compiled as report
    from pagegate.report import terminal

    with terminal.progress(out) as bar:
        task = bar.add_task(f"compile for {target}", total=None, note="")
        table, refused = compile_table(
            target,
            rows,
            kernels,
            toolchain,
            lambda done, total: bar.update(task, completed=done, total=total),
        )
    report.print_refused(out, refused)
    if not table.launches or not table.variants:
        raise UsageError(
            f"compiled: required at least one Triton kernel launched by {', '.join(kernels)}, found none"
        )
    return table


def _judge(options: argparse.Namespace, base: Compiled | None, tables: list[Compiled]) -> list[Finding]:
    from pagegate.compiled import rules

    if len(tables) > 1:
        return [finding for table in tables[1:] for finding in rules.compare(tables[0], table)]
    (table,) = tables
    if base is not None:
        return rules.compare(base, table)
    accepted = baseline.load(table.target, options.folder)
    if table.triton in accepted:
        return rules.compare(accepted[table.triton], table)
    if options.update:
        return rules.problems(table)
    return [*rules.problems(table), rules.no_baseline(table, accepted)]
