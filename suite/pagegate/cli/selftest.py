"""`pagegate gate --self-test`: how often does the gate err on this machine?"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pagegate.errors import UsageError

from . import PASSED, UNDECIDED, WRONG, common

if TYPE_CHECKING:
    from pagegate.regress.outcome import GateResult
    from pagegate.regress.selftest import Tally

CHANGE_PERCENT, GATES, BUDGET_S = 3.0, 20, 1800.0


def configure(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("the gate's own error rates")
    group.add_argument("--simulate", action="store_true", help="on simulated machines, without a GPU")
    group.add_argument("--seed", type=int, default=0, help="of the simulation (0)")
    words = "on this machine: head against itself, in every second gate a planted slowdown (--budget 30m)"
    group.add_argument("--self-test", action="store_true", help=words)
    group.add_argument("--gates", type=int, help=f"of each kind, as far as the budget goes ({GATES})")
    group.add_argument("--change", type=float, metavar="PERCENT", help=f"planted ({CHANGE_PERCENT:g})")
    words = "accept the A/A noise of the self-test into baselines/<role>/noise.json"
    group.add_argument("--write-noise", action="store_true", help=words)


def refuse_misuse(options: argparse.Namespace) -> None:
    """Raises UsageError for options that need a self-test, and for a self-test that cannot be."""
    if not options.self_test:
        for name in ("gates", "change", "write_noise"):
            if getattr(options, name):
                word = name.replace("_", "-")
                raise UsageError(f"--{word}: required together with --self-test, found alone")
        return
    if options.base is not None:
        raise UsageError("--self-test: required without --base (head is compared with itself), found one")
    if options.quantity != "graph":
        raise UsageError(
            "--self-test: required --quantity graph (what is planted are launches in it), "
            f"found {options.quantity}"
        )
    if options.markdown or options.html:
        raise UsageError("--self-test: required without --markdown and --html, found one; use --json")
    common.refuse_not_positive(options, "gates", "change")


def run(options: argparse.Namespace) -> int:
    from pagegate.files import write_json
    from pagegate.regress.revisions import checked_out
    from pagegate.regress.selftest import Tally, Trial, run_trials
    from pagegate.report import selftest, terminal

    from . import gate as gates

    refuse_misuse(options)
    common.refuse_unwritable(options.json)
    names = gates.kernel_names(options)
    change = (options.change or CHANGE_PERCENT) / 100
    budget_s = options.budget or BUDGET_S
    out = terminal.console()
    trials: list[Trial] = []
    environment: dict[str, object] = {}
    with checked_out(Path.cwd(), options.head, options.head) as sides:
        made = gates.machinery(options)
        out.print(f"gate --self-test: {sides[1]} against itself, {change:+.2%} planted in every second gate")

        def run_gate(plants: Mapping[str, float]) -> GateResult:
            result = gates.run_one(options, names, made, sides, lambda progress: None, plants)
            environment.update(result.environment)
            return result

        for trial in run_trials(run_gate, options.gates or GATES, change, budget_s):
            trials.append(trial)
            out.print(selftest.trial_line(len(trials), trial), highlight=False)
            if options.json:  # all that is known so far: a machine may be taken away
                data = {"environment": environment, "change": change} | Tally(trials).to_json()
                write_json(options.json, data)
    tally = Tally(trials)
    out.print(selftest.noise_table(tally))
    out.print(selftest.rates_table(tally, change))
    if options.write_noise:
        _write_noise(tally, environment, out.print)
    return {True: PASSED, False: WRONG, None: UNDECIDED}[tally.holds]


def _write_noise(tally: Tally, environment: Mapping[str, object], say: Callable[[str], None]) -> None:
    """Raises UsageError for noise that may hold a real difference."""
    from pagegate.regress import noise

    if tally.holds is False:
        raise UsageError("--write-noise: required a self-test that holds, found one that failed")
    path = noise.noise_path(str(environment["role"]))
    noise.save(path, tally.noise(), str(environment["gpu"]), "pagegate gate --self-test")
    say(f"written: {path}")
