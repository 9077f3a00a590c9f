"""Faults planted into assembly text, one at a time, in lines that were executed."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pagegate.amdgcn import Coverage
from pagegate.amdgcn.text import Line


@dataclass(frozen=True)
class Plant:
    kind: str
    kernel: str
    line: Line
    replacement: str

    def rewrite(self, text: str) -> str:
        """The text with this fault, if it is this kernel's."""
        if f".amdhsa_kernel {self.kernel}\n" not in text:
            return text
        rows = text.splitlines()
        rows[self.line.number - 1] = f"\t{self.replacement}"
        return "\n".join(rows) + "\n"


def plants(coverage: Coverage) -> list[Plant]:
    """A tenth of all possible faults of each kind, at least four; all barriers."""
    lines = [line for line, ran in zip(coverage.lines, coverage.executed, strict=True) if ran]
    found: dict[str, list[Plant]] = {}
    for at, line in enumerate(lines):
        for kind, replacement in _faults(line, lines[at + 1 : at + 8]):
            if replacement != f"{line.mnemonic} {line.arguments}".strip():
                found.setdefault(kind, []).append(Plant(kind, coverage.kernel, line, replacement))
    chosen = []
    for kind, candidates in found.items():
        random.Random(kind).shuffle(candidates)
        chosen += candidates if kind == "barrier" else candidates[: max(4, len(candidates) // 10)]
    return chosen


def _faults(line: Line, following: list[Line]) -> Iterator[tuple[str, str]]:
    name, arguments = line.mnemonic, line.arguments
    if name == "s_barrier":
        yield "barrier", "s_nop 0"
    elif name == "s_waitcnt":
        yield "wait", "s_nop 0"
    elif name.startswith("v_mfma"):
        target, left, right, addend = (part.strip() for part in re.split(r",(?![^\[]*\])", arguments))
        yield "matrix operands swapped", f"{name} {target}, {right}, {left}, {addend}"
    elif name.endswith("_dpp"):
        yield "lane shuffle", f"{name} {_other_control(arguments)}"
    elif name.startswith(("ds_read", "ds_write")):
        yield "LDS offset", f"{name} {_other_offset(name, arguments)}"
    elif name == "s_mov_b32" and "0x7ffffffe" in arguments:
        yield "num_records", f"{name} {arguments.replace('0x7ffffffe', '-1')}"
    elif name.startswith("v_cndmask_b32") and _is_buffer_offset(arguments, following):
        # masked lanes get an offset past num_records: let them through
        mask = re.split(r",\s*", arguments)[-1]
        if "sdwa" not in name:
            full = re.sub(re.escape(mask) + r"$", "exec", arguments)
            yield "dropped mask", f"v_cndmask_b32_e64 {full}"
    elif name == "s_and_saveexec_b64":
        yield "dropped exec", f"s_mov_b64 {arguments.split(',')[0]}, exec"


def _other_control(arguments: str) -> str:
    """Another DPP control of the same kind."""
    changes: list[tuple[str, str | Callable[[re.Match[str]], str]]] = [
        (r"quad_perm:\[1,0,3,2\]", "quad_perm:[0,1,2,3]"),
        (r"quad_perm:\[\d,\d,\d,\d\]", "quad_perm:[1,0,3,2]"),
        (r"(row_sh[lr]|row_ror):(\d+)", lambda m: f"{m[1]}:{int(m[2]) // 2 or 2}"),
        (r"row_half_mirror", "row_mirror"),
        (r"row_mirror", "row_half_mirror"),
    ]
    for pattern, change in changes:
        changed = re.sub(pattern, change, arguments)
        if changed != arguments:
            return changed
    return arguments


def _other_offset(name: str, arguments: str) -> str:
    pair = name.startswith(("ds_read2", "ds_write2"))
    word, step = ("offset0", 1) if pair else ("offset", 16)
    changed = re.sub(rf"{word}:(\d+)", lambda m: f"{word}:{int(m[1]) ^ step}", arguments)
    return changed if changed != arguments else f"{arguments} {word}:{step}"


def _is_buffer_offset(arguments: str, following: list[Line]) -> bool:
    register = arguments.split(",")[0]
    for line in following:
        if line.mnemonic.startswith("buffer_load"):
            return re.split(r",\s*", line.arguments)[1] == register
        if line.mnemonic.startswith("buffer_store"):
            return re.split(r",\s*", line.arguments)[1] == register
    return False
