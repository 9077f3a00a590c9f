"""The command line: `pagegate <command>`. One module per command, imported when it is asked for."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from pagegate.errors import UsageError

PASSED, WRONG, USAGE, SLOWER, UNDECIDED = 0, 1, 2, 3, 4

# the question each command answers; its module in this package has configure(parser) and run(options)
COMMANDS = {
    "doctor": "what can this machine run?",
    "list": "kernels, workloads, features, relations, mutants",
    "ci": "every gate that this machine can run, in order",
    "check": "the table's workloads against the reference",
    "fuzz": "new cases until the budget ends",
    "replay": "saved cases, or the corpus",
    "mutants": "would the checks notice a fault?",
    "bench": "latency, bandwidth, share of the roofline",
    "gate": "is head slower than base?",
    "compare": "two result files beside each other",
    "compiled": "registers, spills, instructions, for GPUs that need not be here",
    "baseline": "accepted numbers: show, or accept new ones with a reason",
}

# a module called `list` would hide the builtin in this package
_MODULES = {"list": "listing"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code (0 passed, 1 wrong, 2 usage, 3 slower, 4 undecided)."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    name = words[0] if words else "--help"
    if name not in COMMANDS:
        return _no_command(name)
    module = importlib.import_module(f"pagegate.cli.{_MODULES.get(name, name)}")
    parser = argparse.ArgumentParser(prog=f"pagegate {name}", description=module.__doc__)
    module.configure(parser)
    options = parser.parse_args(words[1:])
    try:
        code: int = module.run(options)
        return code
    except UsageError as error:
        print(f"pagegate {name}: {error}", file=sys.stderr)  # noqa: T201
        return USAGE
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)  # noqa: T201
        return 130


def _no_command(name: str) -> int:
    lines = [f"  {command:<10} {question}" for command, question in COMMANDS.items()]
    usage = "\n".join(["usage: pagegate <command> [options]", "", *lines, "", "pagegate <command> --help"])
    if name in ("-h", "--help"):
        print(usage)  # noqa: T201
        return PASSED
    if name == "--version":
        from pagegate import __version__

        print(f"pagegate {__version__}")  # noqa: T201
        return PASSED
    print(f"pagegate: required a command, found {name!r}\n\n{usage}", file=sys.stderr)  # noqa: T201
    return USAGE
