"""Compile the table's kernels for GPUs that need not be here, and compare what came out with the baseline
(or with another commit, or another Triton): registers, spills, shared memory, occupancy, instructions.
docs/compiled.md says what that tells of time, and what not."""

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
    from pagegate.compiled.comparing import Finding
    from pagegate.compiled.figures import Compiled
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
        help="compile with this version, in an environment that is thrown away; twice or more: the first is "
        "compared with the others (--update accepts each)",
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
    from pagegate.compiled import comparing
    from pagegate.files import write_json
    from pagegate.report import compiled as report
    from pagegate.report import terminal

    out, started = terminal.console(), time.monotonic()
    found: dict[str, Any] = {}
    worst: list[Finding] = []
    with tempfile.TemporaryDirectory(prefix="pagegate-compiled-") as folder:
        base, sides = _sides(options, Path(folder))
        for target in targets:
            tables = [_compile(out, target.name, rows, names, side) for side in sides]
            before = _compile(out, target.name, rows, names, base) if base else None
            report.print_figures(out, tables[-1], target)
            findings = _judge(options, before, tables)
            report.print_findings(out, target.name, findings)
            if options.update:
                findings = [finding for table in tables for finding in _accept(out, options, table)]
            word = comparing.overall(findings)
            out.print(f"{report.verdict(word)} {target.name}, {time.monotonic() - started:.0f} s\n")
            found[target.name] = {
                "verdict": word,
                "findings": [vars(finding) for finding in findings],
                "compiled": [table.to_json() for table in tables],
            }
            worst += findings
    if options.json:
        write_json(options.json, found)
    return _CODES[comparing.overall(worst)]


def _refuse_contradictions(options: argparse.Namespace) -> None:
    common.refuse_not_positive(options, "workers")
    if options.update and not (options.reason or "").strip():
        raise UsageError("--update: required --reason TEXT, which is kept with the figures, found none")
    if options.reason and not options.update:
        raise UsageError("--reason: required with --update, found without it")
    selection = options.expression or options.tier != "pr" or options.kernel or options.plugin
    if options.update and selection and options.folder == baseline.FOLDER:
        raise UsageError(
            "--update: required the whole pr tier with the registered kernels, found a selection; accept one "
            f"into a --folder of its own, since everyone is compared with {baseline.FOLDER}"
        )
    if options.update and options.base:
        raise UsageError(
            "--update: required without --base, found both; what was accepted is in git's history"
        )
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
        table = compile_table(
            target,
            rows,
            kernels,
            toolchain,
            lambda done, total: bar.update(task, completed=done, total=total),
        )
    report.print_refused(out, table.refused)
    if not table.launches or not table.variants:
        raise UsageError(
            f"compiled: required at least one Triton kernel launched by {', '.join(kernels)}, found none"
        )
    return table


def _judge(options: argparse.Namespace, before: Compiled | None, tables: list[Compiled]) -> list[Finding]:
    """Against --base; or the later --triton against the first; or each against what is accepted."""
    from pagegate.compiled import comparing

    if before is not None:
        return comparing.compare(before, tables[0])
    if len(tables) > 1 and not options.update:
        return [finding for table in tables[1:] for finding in comparing.compare(tables[0], table)]
    return [finding for table in tables for finding in _against_accepted(options, table)]


def _against_accepted(options: argparse.Namespace, table: Compiled) -> list[Finding]:
    from pagegate.compiled import comparing

    accepted = baseline.load(table.target, options.folder)
    if table.triton in accepted:
        return comparing.compare(accepted[table.triton], table)
    missing = [] if options.update else [comparing.no_baseline(table, accepted)]
    return [*comparing.problems(table), *missing]


def _accept(out: Any, options: argparse.Namespace, table: Compiled) -> list[Finding]:
    """Write the baseline; what cannot be launched is still wrong."""
    from pagegate.compiled import comparing

    path = baseline.update(table, options.reason, options.folder)
    out.print(
        f"{len(table.variants)} variants of triton {table.triton} accepted into {path}", highlight=False
    )
    return comparing.problems(table)
