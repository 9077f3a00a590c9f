"""Is head slower than base? Both in turns on one GPU, a verdict for each workload."""

from __future__ import annotations

import argparse

from . import PASSED, WRONG, common


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--simulate", action="store_true", help="error rates of the verdict, without a GPU")
    parser.add_argument("--seed", type=int, default=0, help="of what is drawn (0)")
    common.add_json(parser)


def run(options: argparse.Namespace) -> int:
    return _simulate(options)


def _simulate(options: argparse.Namespace) -> int:
    from pagegate.files import write_json
    from pagegate.regress.simulation import SCENARIOS, simulate
    from pagegate.report import terminal
    from pagegate.report.simulation import simulation_table

    common.refuse_unwritable(options.json)
    out, outcomes = terminal.console(), []
    with terminal.progress(out) as bar:
        task = bar.add_task("simulate", total=len(SCENARIOS), note="")
        for outcome in simulate(SCENARIOS, options.seed):
            outcomes.append(outcome)
            bar.update(task, advance=1)
    out.print(simulation_table(outcomes))
    if options.json:
        write_json(options.json, {"seed": options.seed, "outcomes": [one.to_json() for one in outcomes]})
    return PASSED if all(outcome.holds for outcome in outcomes) else WRONG
