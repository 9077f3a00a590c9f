"""Two result files of `bench` beside each other; no GPU and no torch needed."""

from __future__ import annotations

import argparse
from pathlib import Path

from . import PASSED, UNDECIDED, common


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("first", type=Path, metavar="A", help="a result of `pagegate bench --json`")
    parser.add_argument("second", type=Path, metavar="B", help="another one")
    common.add_json(parser)


def run(options: argparse.Namespace) -> int:
    from pagegate.files import write_json
    from pagegate.regress.results import compare, load_results
    from pagegate.report import bench, terminal

    common.refuse_unwritable(options.json)
    rows = compare(load_results(options.first), load_results(options.second))
    out = terminal.console()
    out.print(bench.comparison_table(rows))
    incomparable = sum(row.ratio is None for row in rows)
    if incomparable:
        out.print(f"{incomparable} of {len(rows)} rows cannot be compared")
    if options.json:
        write_json(options.json, [{**vars(row), "ratio": row.ratio} for row in rows])
    return UNDECIDED if incomparable else PASSED
