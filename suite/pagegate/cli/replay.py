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
    common.refuse_not_positive(options, "workers", "timeout")
    if not options.paths and not CORPUS.is_dir():
        raise UsageError(f"required files, or a folder {CORPUS} here; found neither")
    from pagegate.oracle.saving import load_saved

    saved = load_saved(options.paths or [CORPUS])
    device = common.choose_device(options.device, options.target)
    kernels = common.choose_kernels(options)
    common.refuse_unwritable(options.json)
    from pagegate.cases.notation import format_case
    from pagegate.files import write_json
    from pagegate.oracle.batch import check_all, count_unsupported, never_checked
    from pagegate.report import terminal

    out = terminal.console()
    names = [kernel.name for kernel in kernels]
    # a failure is for the kernel that it was saved for, unless others are named
    jobs = [
        (e.case, [find_kernel(e.kernel).name] if e.kernel and not options.kernel else names) for e in saved
    ]
    used = sorted({name for _, mine in jobs for name in mine})
    out.print(f"replaying {len(saved)} cases with {', '.join(used)} on {device.name}")
    setup = common.worker_setup(device, options, options.timeout)
    results = check_all(jobs, setup, options.workers or device.workers)
    flat = [result for row in results for result in row]
    for entry, row in zip(saved, results, strict=True):
        for result in row:
            if result.failed:
                words = ["replay", str(entry.path), "--kernel", result.kernel]
                words += common.target_words(device) + common.plugin_words(options)
                note = f"saved as: {entry.why}" if entry.why and entry.why != result.reason else ""
                terminal.print_failure(out, result, common.command_line(*words), note)
            elif len(saved) == 1:
                ratio = terminal.ratio_of(result) or "none"
                out.print(f"{terminal.status(result.status)} {result.kernel}  {format_case(entry.case)}")
                out.print(f"  {result.reason or f'worst error / budget {ratio}'}", markup=False)
    failed = sum(result.failed for result in flat)
    out.print(f"replay: {len(flat) - failed} of {len(flat)} held")
    terminal.print_unsupported(out, count_unsupported(flat))
    if options.json:
        write_json(options.json, {"device": device.name, "results": [r.to_json() for r in flat]})
    if failed:
        return WRONG
    common.refuse_nothing_checked(never_checked(flat))
    return PASSED
