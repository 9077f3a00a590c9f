"""Is head slower than base? Both in turns on one GPU, a verdict for each workload."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pagegate.cases.registry import kernels, load_plugin
from pagegate.cases.workloads import TIERS
from pagegate.errors import UsageError
from pagegate.measure.samples import QUANTITIES

from . import PASSED, SLOWER, UNDECIDED, USAGE, WRONG, common, selftest

if TYPE_CHECKING:
    from rich.console import Console

    from pagegate.regress.gating import Observer
    from pagegate.regress.outcome import GateResult
    from pagegate.regress.revisions import Revision
    from pagegate.regress.survey import Check

_CODES = {
    "PASSED": PASSED, "WRONG": WRONG, "UNUSABLE": USAGE, "SLOWER": SLOWER, "AMBIGUOUS": UNDECIDED,
    "INCOMPARABLE": UNDECIDED,
}  # fmt: skip


BUDGET_S = 600.0


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--base", metavar="REV", help="a revision, or the path of a folder with kernels/")
    parser.add_argument("--head", metavar="REV", help="the same (the working tree)")
    parser.add_argument("-k", metavar="EXPR", dest="expression", help="workloads by name, as in pytest -k")
    parser.add_argument("--tier", choices=TIERS, help="a tier (pr; any with -k)")
    parser.add_argument("--quantity", choices=QUANTITIES, default="graph")
    parser.add_argument("--budget", type=duration, metavar="TIME", help="of rounds (10m)")
    parser.add_argument("--floor", type=float, metavar="PERCENT", help="slowdown that counts (1; call: 3)")
    parser.add_argument("--allow-ambiguous", action="store_true", help="undecided rows pass")
    parser.add_argument("--allow-missing", action="store_true", help="rows of one side only pass")
    parser.add_argument("--no-check", action="store_true", help="head was checked before; time it at once")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="a short summary for a pull request")
    parser.add_argument("--html", type=Path, metavar="FILE", help="a page with every row and round")
    common.add_kernels(parser, default="unified, or those of the plugins")
    common.add_json(parser)
    selftest.configure(parser)


def duration(text: str) -> float:
    """Seconds of "90", "90s", "10m" or "1h". Raises argparse's error for anything else."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text)
    if not match or float(match[1]) <= 0:
        raise argparse.ArgumentTypeError(f"required a time above 0 such as 90s or 10m, found {text!r}")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]]


@dataclass(frozen=True)
class Machinery:
    """What runs a gate's sides. command: of a worker, given its plugins; device: of its `Setup`."""

    check: Check
    device: str
    workers: int

    def command(self, plugins: Sequence[str]) -> list[str]:
        from pagegate.regress.gating import worker_command

        return worker_command(plugins)


def machinery(options: argparse.Namespace) -> Machinery:
    """This machine's. Raises UsageError without a GPU."""
    from pagegate.regress.survey import oracle_check

    device = common.choose_device("auto")
    if device.kind != "cuda":
        raise UsageError(
            "gate: required a CUDA or HIP GPU, found none; nothing times the interpreter "
            "(`pagegate gate --simulate` needs no GPU)"
        )
    check = oracle_check(common.worker_setup(device, options), device.workers)
    return Machinery(check, device.kind, min(device.workers, 4))


def run(options: argparse.Namespace) -> int:
    if options.simulate:
        return _simulate(options)
    if options.self_test:
        return selftest.run(options)
    selftest.refuse_misuse(options)
    if options.base is None:
        raise UsageError("--base: required a revision to compare with, found none; for example --base main")
    for path in (options.json, options.markdown, options.html):
        common.refuse_unwritable(path)
    common.refuse_not_positive(options, "floor")
    names = kernel_names(options)
    from pagegate.regress.revisions import checked_out
    from pagegate.report import gate, terminal

    out = terminal.console()
    with checked_out(Path.cwd(), options.base, options.head) as (base, head):
        made = machinery(options)
        out.print(f"gate: {head} against {base}")
        if options.head is None and head.dirty:
            out.print("[yellow]head has changes that are not committed; they are measured[/]")
        with gate.live(out) as observe:
            result = run_one(options, names, made, (base, head), observe)
    if options.no_check:
        result = replace(result, notes=("head was not checked (--no-check)", *result.notes))
    outcome = result.outcome(options.allow_ambiguous, options.allow_missing)
    gate.print_gate(out, result, outcome)
    written = _write(options, result, outcome, out)
    code = _CODES[outcome]
    return code if written or code != PASSED else USAGE


def run_one(
    options: argparse.Namespace,
    names: list[str],
    made: Machinery,
    sides: tuple[Revision, Revision],
    observe: Observer,
    plants: Mapping[str, float] = {},
) -> GateResult:
    """One gate. plants: see `regress.rounds.Rounds`; a gate with itself is not checked."""
    from pagegate.regress.baselines import FOLDER
    from pagegate.regress.gating import Gate, Settings, default_noise
    from pagegate.regress.revisions import inside
    from pagegate.regress.survey import select
    from pagegate.regress.verdict import FLOORS, Rules

    floor = options.floor / 100 if options.floor else FLOORS[options.quantity]
    # a self-test's budget is of all its gates
    budget_s = BUDGET_S if options.self_test else options.budget or BUDGET_S
    settings = Settings(Rules(floor=floor), budget_s, workers=made.workers, ahead=options.quantity != "call")
    tier = options.tier or (None if options.expression else "pr")
    base, head = sides
    own = [[inside(side, plugin) for plugin in options.plugin] for side in sides]
    gate = Gate(
        base,
        head,
        commands=(made.command(own[0]), made.command(own[1])),
        check=None if options.no_check or options.self_test else made.check,
        settings=settings,
        noise=default_noise(FOLDER),
        observe=observe,
        device=made.device,
        plants=plants,
    )
    return gate.run(select(base, head, tier, options.expression), names, options.quantity)


def kernel_names(options: argparse.Namespace) -> list[str]:
    before = set(kernels())
    for plugin in options.plugin:
        load_plugin(plugin)
    if options.kernel:
        return [kernel.name for kernel in common.choose_kernels(options)]
    return [name for name in kernels() if name not in before] or ["unified"]


def _write(options: argparse.Namespace, result: GateResult, outcome: str, out: Console) -> bool:
    """Whether all files could be written; the verdict is on the screen already, and stays what it is."""
    from rich.markup import escape

    from pagegate.files import write_json, write_text
    from pagegate.report import gate
    from pagegate.report.page import page

    complete = True
    for path in (options.json, options.markdown, options.html):
        try:
            if path is None:
                continue
            if path is options.json:
                write_json(path, result.to_json() | {"outcome": outcome})
            else:
                text = gate.markdown if path is options.markdown else page
                write_text(path, text(result, outcome))
        except UsageError as error:
            out.print(f"[bold red]not written:[/] {escape(str(error))}")
            complete = False
    return complete


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
