"""Accepted numbers: show them, or accept new ones with a reason."""

from __future__ import annotations

import argparse
from pathlib import Path

from pagegate.errors import UsageError

from . import PASSED, UNDECIDED, common


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True)
    update = actions.add_parser("update", help="accept the numbers of result files")
    update.add_argument("results", nargs="+", type=Path, help="results of `bench --json`, fresh processes")
    update.add_argument("--reason", required=True, help="why; kept with the numbers")
    show = actions.add_parser("show", help="what is accepted, beside a result if one is given")
    show.add_argument("results", nargs="?", type=Path, help="a result of `bench --json`")
    show.add_argument("--role", help="the machine role (that of the result, or the only one)")
    for action in (update, show):
        action.add_argument("--folder", type=Path, default=Path("baselines"), help="(baselines)")
        common.add_json(action)


def run(options: argparse.Namespace) -> int:
    common.refuse_unwritable(options.json)
    return _update(options) if options.action == "update" else _show(options)


def _update(options: argparse.Namespace) -> int:
    from pagegate.regress import baselines
    from pagegate.regress.results import load_results
    from pagegate.report import terminal

    runs = [load_results(path) for path in options.results]
    accepted = baselines.accept(runs, options.reason, _commit_of(runs[0].subject))
    path = baselines.baseline_path(runs[0].environment.role, options.folder)
    baselines.update(path, accepted)
    terminal.console().print(f"{len(accepted)} numbers accepted into {path}")
    return PASSED


def _commit_of(measured: dict[str, str]) -> str:
    """The commit here, for results from a copy without git whose sources are those here."""
    from pagegate.measure.subject import UNVERSIONED, subject

    if measured.get("paged_kernels") != UNVERSIONED:
        return ""
    here = subject()
    return here["paged_kernels"] if here["sources"] == measured.get("sources") else ""


def _show(options: argparse.Namespace) -> int:
    from pagegate.files import write_json
    from pagegate.regress import baselines
    from pagegate.regress.results import load_results
    from pagegate.report import terminal

    results = load_results(options.results) if options.results else None
    role = options.role or (results.environment.role if results else _only_role(options.folder))
    entries = baselines.load(baselines.baseline_path(role, options.folder))
    measured = {row.name: row for row in baselines.against(entries, results)} if results else {}
    lines = []
    for name, entry in sorted(entries.items()):
        row = measured.get(name)
        ratio = "" if row is None else f"{row.ratio:.3f}" if row.ratio else f"INCOMPARABLE: {row.reason}"
        share = f"{100 * entry.roofline:.0f} %" if entry.roofline else ""
        median, spread = f"{entry.median_s * 1e6:,.1f}", f"{100 * entry.spread:.2f} % of {entry.processes}"
        lines.append([entry.workload, entry.kernel, entry.quantity, median, spread, share, ratio])
    columns = [
        "workload",
        "kernel",
        "quantity",
        "median us",
        "between processes",
        "of roofline",
        "now / accepted",
    ]
    out = terminal.console()
    out.print(terminal.table(f"baseline {role}", columns, lines, right=range(3, 7)))
    if options.json:
        write_json(
            options.json, [vars(e) | {"environment": e.environment.to_json()} for e in entries.values()]
        )
    return UNDECIDED if any(row.ratio is None for row in measured.values()) else PASSED


def _only_role(folder: Path) -> str:
    roles = sorted(path.parent.name for path in folder.glob("*/latency.json"))
    if len(roles) != 1:
        raise UsageError(
            f"--role: required one of {', '.join(roles) or 'none yet'} in {folder}, found no choice"
        )
    return roles[0]
