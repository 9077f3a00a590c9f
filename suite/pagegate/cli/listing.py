"""What is there: kernels, workloads, features, relations, mutants."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from pagegate.cases.features import FEATURES
from pagegate.cases.matching import matches
from pagegate.cases.notation import format_case, format_spec
from pagegate.cases.registry import kernels
from pagegate.cases.workloads import TIERS, Workload, find_workloads, workloads
from pagegate.errors import UsageError

from . import PASSED, common

Rows = list[list[str]]


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what", nargs="?", choices=tuple(_LISTS), help="one kind only (kernels, features and a summary)"
    )
    parser.add_argument("-k", metavar="EXPR", dest="expression", help="names, as in pytest -k")
    parser.add_argument("--tier", choices=TIERS)
    common.add_kernels(parser)
    common.add_json(parser)


def _kernels(options: argparse.Namespace) -> Rows:
    ours = common.choose_kernels(options)
    peers = [] if options.kernel else [kernel for kernel in kernels().values() if kernel.peer]
    return [[kernel.name, kernel.summary] for kernel in [*ours, *peers]]


def _workloads(options: argparse.Namespace) -> Rows:
    rows = find_workloads(options.tier, options.expression)
    return [[row.name, row.tier, _line(row), row.why] for row in rows]


def _line(row: Workload) -> str:
    # timed tiers have one kind of data; what the others vary is part of the case
    return format_case(row.case) if row.tier in ("small", "asm") else format_spec(row.spec)


def _features(options: argparse.Namespace) -> Rows:
    return [[feature.name, ", ".join(feature.keywords), feature.summary] for feature in FEATURES]


def _relations(options: argparse.Namespace) -> Rows:
    from pagegate.oracle.relations import RELATIONS

    return [[relation.name, relation.summary] for relation in RELATIONS]


def _mutants(options: argparse.Namespace) -> Rows:
    from pagegate.oracle.mutant_table import MUTANTS

    return [[mutant.name, mutant.kernel, mutant.file, mutant.stands_for] for mutant in MUTANTS]


_LISTS: dict[str, tuple[Callable[[argparse.Namespace], Rows], list[str]]] = {
    "kernels": (_kernels, ["kernel", ""]),
    "workloads": (_workloads, ["workload", "tier", "case", "why"]),
    "features": (_features, ["feature", "keywords a kernel takes", ""]),
    "relations": (_relations, ["relation", "must not move a bit"]),
    "mutants": (_mutants, ["mutant", "kernel", "file", "stands for"]),
}


def run(options: argparse.Namespace) -> int:
    common.refuse_unwritable(options.json)
    from rich.markup import escape

    from pagegate.files import write_json
    from pagegate.report import terminal

    out = terminal.console()
    if options.what is None and (options.tier or options.expression):
        options.what = "workloads"
    if options.tier and options.what != "workloads":
        raise UsageError(
            f"--tier: required with workloads only, found `list {options.what} --tier {options.tier}`"
        )
    wanted = [options.what] if options.what else ["kernels", "features"]
    data: dict[str, Rows] = {}
    for name in wanted:
        rows, columns = _LISTS[name]
        data[name] = rows(options)
        if options.expression and name != "workloads":
            data[name] = [row for row in data[name] if matches(options.expression, row[0])]
            if not data[name]:
                raise UsageError(
                    f"-k: required an expression that matches one of the {name}, found {options.expression!r}"
                )
        cells = [[escape(cell) for cell in row] for row in data[name]]
        out.print(terminal.table(name, columns, cells))
    if options.what is None:
        counts = ", ".join(f"{sum(row.tier == tier for row in workloads())} {tier}" for tier in TIERS)
        out.print(f"{len(workloads())} workloads ({counts}); see `pagegate list workloads|relations|mutants`")
    if options.json:
        write_json(options.json, data)
    return PASSED
