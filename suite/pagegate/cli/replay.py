"""Check saved cases again: files, folders, or the corpus in tests/corpus."""

from __future__ import annotations

import argparse
from pathlib import Path

from pagegate.cases.registry import find_kernel
from pagegate.errors import UsageError

from . import PASSED, WRONG, common

CORPUS = Path("tests/corpus")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", nargs="*", type=Path, metavar="FILE", help=f"files or folders ({CORPUS})")
    parser.add_argument("--workers", type=int, help="worker processes")
    parser.add_argument("--timeout", type=float, metavar="S", help="seconds after which a case has hung")
    common.add_kernels(parser)
    common.add_device(parser)
    common.add_json(parser)


def run(options: argparse.Namespace) -> int:
    if not options.paths and not CORPUS.is_dir():
        raise UsageError(f"replay: required files or a folder {CORPUS} here, found neither")
    from pagegate.oracle.saving import load_saved

    saved = load_saved(options.paths or [CORPUS])
    device = common.choose_device(options.device)
    kernels = common.choose_kernels(options)
    common.refuse_unwritable(options.json)
    from pagegate.cases.notation import format_case
    from pagegate.files import write_json
    from pagegate.oracle.batch import check_all, count_unsupported
    from pagegate.report import terminal

    out = terminal.console()
    # one file asks for the kernel that it was saved for; several are for every kernel
    names = [kernel.name for kernel in kernels]
    if len(saved) == 1 and saved[0].kernel and not options.kernel:
        names = [find_kernel(saved[0].kernel).name]
    out.print(f"replaying {len(saved)} cases with {', '.join(names)} on {device.name}")
    setup = common.worker_setup(device, options, options.timeout)
    cases = [entry.case for entry in saved]
    results = check_all(cases, names, setup, options.workers or device.workers)
    flat = [result for row in results for result in row]
    for entry, row in zip(saved, results, strict=True):
        for result in row:
            if result.failed:
                words = ["replay", str(entry.path), "--kernel", result.kernel]
                terminal.print_failure(out, result, common.command_line(*words), entry.why)
            elif len(saved) == 1:
                ratio = terminal.ratio_of(result) or "none"
                out.print(f"{terminal.status(result.status)} {result.kernel}  {format_case(entry.case)}")
                out.print(f"  {result.reason or f'worst error / budget {ratio}'}")
    failed = sum(result.failed for result in flat)
    out.print(f"replay: {len(flat) - failed} of {len(flat)} held")
    terminal.print_unsupported(out, count_unsupported(flat))
    if options.json:
        write_json(options.json, {"device": device.name, "results": [r.to_json() for r in flat]})
    return WRONG if failed else PASSED
