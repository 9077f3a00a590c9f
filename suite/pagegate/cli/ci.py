"""The main job: every gate that this machine can run, in order, and one table at the end."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass

from pagegate.cases.registry import has_triton
from pagegate.compiled.baseline import FOLDER

from . import COMMANDS, PASSED, SLOWER, UNDECIDED, USAGE, WRONG, common, main
from .replay import CORPUS

_VERDICTS = {PASSED: "PASSED", WRONG: "WRONG", USAGE: "ERROR", SLOWER: "SLOWER", UNDECIDED: "UNDECIDED"}


@dataclass(frozen=True)
class Gate:
    """One gate: the question, and its command line on a device, or why it is skipped there."""

    name: str
    question: str
    words: Callable[[common.Device, argparse.Namespace], list[str] | str]


def _corpus(device: common.Device, options: argparse.Namespace) -> list[str] | str:
    return ["replay"] if CORPUS.is_dir() else f"no folder {CORPUS} here"


def _check(device: common.Device, options: argparse.Namespace) -> list[str] | str:
    if device.kind == "cuda":
        return ["check", "--tier", "pr"]
    return ["check", "--tier", "small", "--relations", "2"]


def _fuzz(device: common.Device, options: argparse.Namespace) -> list[str] | str:
    return ["fuzz", *(["--minutes", "2"] if device.kind == "cuda" else ["--examples", "60"])]


def _machine_code(device: common.Device, options: argparse.Namespace) -> list[str] | str:
    if not has_triton():
        return common.NO_TRITON
    rows = "decode_tail or chunk or split_sinks or fp8 or window_prompt or mixed"
    return ["check", "--target", "gfx942", "-k", rows, "--tier", "small", "--relations", "1"]


def _compiled(device: common.Device, options: argparse.Namespace) -> list[str] | str:
    if not has_triton():
        return common.NO_TRITON
    if options.plugin:
        return "figures of plugins are accepted elsewhere: pagegate compiled --plugin FILE --folder FOLDER"
    if not FOLDER.is_dir():
        return f"no folder {FOLDER} here"
    return ["compiled", "--target", "sm_90", "--target", "gfx942"]


GATES = (
    Gate("corpus", "do old failures stay away?", _corpus),
    Gate("check", "is the workload table right?", _check),
    Gate("compiled", "does the compiler make of it what it made before?", _compiled),
    Gate("fuzz", "are new cases right?", _fuzz),
    Gate("gfx942", "is AMD's machine code right, interpreted?", _machine_code),
)


def configure(parser: argparse.ArgumentParser) -> None:
    common.add_kernels(parser)
    common.add_device(parser, targets=False)
    common.add_json(parser)


def run(options: argparse.Namespace) -> int:
    device = common.choose_device(options.device)
    kernels = common.choose_kernels(options)
    common.refuse_unwritable(options.json)
    from pagegate.files import write_json
    from pagegate.report import terminal

    out = terminal.console()
    chosen = ["--device", "gpu" if device.kind == "cuda" else "interpreter"]
    chosen += [word for kernel in kernels for word in ("--kernel", kernel.name)]
    chosen += common.plugin_words(options)
    rows: list[list[str]] = []
    codes: list[int] = []
    data: list[dict[str, object]] = []
    for gate in GATES:
        words = gate.words(device, options)
        if isinstance(words, str):
            rows.append([gate.name, gate.question, terminal.status("SKIPPED"), "", words])
            data.append({"gate": gate.name, "verdict": "SKIPPED", "why": words})
            continue
        out.rule(f"{gate.name}: {COMMANDS[words[0]]}")
        started = time.monotonic()
        code = main([*words, *(chosen if "--target" not in words else chosen[2:])])
        seconds = time.monotonic() - started
        codes.append(code)
        verdict = _VERDICTS.get(code, f"EXIT {code}")
        again = "" if code == PASSED else common.command_line(*words)
        rows.append([gate.name, gate.question, terminal.status(verdict), f"{seconds:.0f}", again])
        data.append({"gate": gate.name, "verdict": verdict, "seconds": seconds, "command": words})
    out.rule()
    columns = ["gate", "question", "verdict", "seconds", "why skipped, or what to run again"]
    out.print(terminal.table(f"pagegate ci on {device.name}", columns, rows, right=(3,)))
    if options.json:
        write_json(options.json, {"device": device.name, "gates": data})
    return worst_code(codes)


def worst_code(codes: list[int]) -> int:
    """Wrong before unusable before slower before undecided."""
    for code in (WRONG, USAGE, SLOWER, UNDECIDED):
        if code in codes:
            return code
    return next((code for code in codes if code != PASSED), PASSED)
