"""Plant known faults in copies of the kernels and see whether the checks notice."""

from __future__ import annotations

import argparse
import time

from pagegate.cases.matching import matches
from pagegate.errors import UsageError

from . import PASSED, WRONG, common


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-k", metavar="EXPR", dest="expression", help="mutants by name, as in pytest -k")
    parser.add_argument("--workers", type=int, help="mutants at a time")
    common.add_device(parser, targets=False)
    common.add_json(parser)


def run(options: argparse.Namespace) -> int:
    common.refuse_not_positive(options, "workers")
    device = common.choose_device(options.device)
    common.refuse_unwritable(options.json)
    from rich.markup import escape

    from pagegate.files import write_json
    from pagegate.oracle.isolation import Setup
    from pagegate.oracle.mutant_table import MUTANTS
    from pagegate.oracle.mutants import Verdict, run_mutants
    from pagegate.report import terminal

    expression = options.expression
    named = [m for m in MUTANTS if expression is None or matches(expression, m.name)]
    chosen = [m for m in named if device.kind == "cuda" or not m.gpu_only]
    if not named:
        raise UsageError(f"-k: required an expression that matches a mutant, found {expression!r}")
    out = terminal.console()
    skipped = len(named) - len(chosen)
    out.print(
        f"{len(chosen)} mutants on {device.name}"
        + (f"; {skipped} need a GPU and are skipped" if skipped else "")
    )
    started = time.monotonic()
    with terminal.progress(out) as bar:
        task = bar.add_task("mutants", total=len(chosen), note="")

        def on_verdict(verdict: Verdict) -> None:
            bar.update(task, advance=1, note=f"{verdict.mutant.name} {verdict.outcome}")

        setup = Setup(device.kind, timeout_s=60.0, memory_bytes=device.memory_bytes)
        verdicts = run_mutants(chosen, setup, options.workers or device.workers, on_verdict)
    styles = {"KILLED": "green", "SURVIVED": "bold red", "ERROR": "bold red"}
    rows = [
        [
            v.mutant.name,
            v.mutant.stands_for,
            f"[{styles[v.outcome]}]{v.outcome}[/]",
            escape(v.by),
            str(v.cases),
        ]
        for v in verdicts
    ]
    columns = ["mutant", "stands for", "", "by", "cases"]
    out.print(terminal.table(f"mutants, {time.monotonic() - started:.0f} s", columns, rows, right=(4,)))
    killed = sum(v.outcome == "KILLED" for v in verdicts)
    others = [v.mutant.name for v in verdicts if v.outcome != "KILLED"]
    score = f"score: {killed} of {len(verdicts)} killed"
    out.print(score + (f"; not killed: {', '.join(others)}" if others else ""))
    if options.json:
        data = [
            {
                "mutant": v.mutant.name,
                "outcome": v.outcome,
                "by": v.by,
                "cases": v.cases,
                "seconds": v.seconds,
            }
            for v in verdicts
        ]
        write_json(options.json, {"device": device.name, "mutants": data})
    return WRONG if others else PASSED
