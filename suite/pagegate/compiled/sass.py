"""NVIDIA machine code: resources and instruction mix, read with cuobjdump and nvdisasm of Triton's wheel.

Source: NVIDIA's "CUDA Binary Utilities" (instruction sets of Ampere, Hopper and Blackwell).
"""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from pagegate.errors import UsageError

from .figures import Mix
from .flow import Step, in_loops

_CODE = re.compile(r"^\s+/\*[0-9a-f]+\*/\s+(?:@(!?U?P\w+)\s+)?([A-Z][\w.]*)([^;]*);?")
_LABEL = re.compile(r"^([.$\w]+):")
_TARGET = re.compile(r"`\(([.$\w]+)\)")
_MATRIX = re.compile(r"^(H|HG|I|IG|Q|QG|B|D|O|F)MMA\.|^UTC\w*MMA")
_ENDS = ("EXIT", "RET", "BRX", "JMX", "KILL", "BPT")
_RESOURCES = re.compile(r"\b(REG|STACK|LOCAL):(\d+)")


def resources(cubin: Path, tools: Path) -> dict[str, int]:
    """REG: registers per thread; STACK and LOCAL: bytes of local memory per thread."""
    said = _run(tools / "cuobjdump", "-res-usage", str(cubin))
    found: dict[str, int] = {}
    for name, value in _RESOURCES.findall(said):
        found[name] = max(found.get(name, 0), int(value))
    if "REG" not in found:
        raise UsageError(f"cuobjdump: required the resource usage of a kernel, found {said.strip()[-300:]!r}")
    return found


def listing(cubin: Path, tools: Path) -> str:
    return _run(tools / "nvdisasm", "-c", str(cubin))


def _run(tool: Path, *words: str) -> str:
    if not tool.is_file():
        raise UsageError(
            f"{tool}: required in Triton's wheel, found no such file; NVIDIA targets need a wheel that "
            "carries it (those of PyPI for Linux do)"
        )
    done = subprocess.run([tool, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        words_of_it = (done.stderr or done.stdout).strip()[-300:]
        raise UsageError(f"{tool.name}: required to read a cubin, found {words_of_it!r}")
    return done.stdout


def read(text: str) -> tuple[Mix, Mix, int]:
    """Of nvdisasm's text: all instructions, those in loops, and the code's bytes."""
    steps: list[Step] = []
    labels: dict[str, int] = {}
    for row in text.splitlines():
        if (match := _CODE.match(row)) is not None:
            steps.append(_step(match[1] or "", match[2], match[3]))
        elif (match := _LABEL.match(row)) is not None:
            labels[match[1]] = len(steps)
    loops = in_loops(steps, labels)
    useful = [not step.opcode.startswith("NOP") for step in steps]
    return (
        count([s.opcode for s, use in zip(steps, useful, strict=True) if use]),
        count([s.opcode for s, use, loop in zip(steps, useful, loops, strict=True) if use and loop]),
        16 * len(steps),
    )


def _step(guard: str, opcode: str, operands: str) -> Step:
    base = opcode.split(".")[0]
    conditional = bool(guard) or (base == "BRA" and not operands.strip().startswith("`("))
    if base in ("BRA", "JMP", "CALL"):
        target = _TARGET.search(operands)
        return Step(opcode, target[1] if target else "", base == "CALL" or conditional)
    return Step(opcode, falls=conditional or base not in _ENDS)


def _width(opcode: str) -> int:
    """Bytes per thread of a load."""
    for part, width in (("128", 16), ("64", 8), ("U16", 2), ("S16", 2), ("U8", 1), ("S8", 1)):
        if part in opcode.split("."):
            return width
    return 4


def count(opcodes: Sequence[str]) -> Mix:
    kinds: Counter[str] = Counter()
    matrix: Counter[str] = Counter()
    loads: Counter[int] = Counter()
    for opcode in opcodes:
        base = opcode.split(".")[0]
        if _MATRIX.match(opcode) and base != "HFMA2":
            matrix[opcode] += 1
        elif base in ("LDG", "LDGSTS"):
            loads[_width(opcode)] += 1
            kinds["async_loads"] += base == "LDGSTS"
        elif base in ("UTMALDG", "UBLKCP"):
            kinds["async_loads"] += 1
        else:
            kinds[_kind(base, opcode)] += 1
    kinds.pop("", None)
    return Mix(instructions=len(opcodes), matrix=dict(sorted(matrix.items())), loads=dict(loads), **kinds)


def _kind(base: str, opcode: str) -> str:
    if base in ("STG", "UTMASTG"):
        return "stores"
    if base in ("LDS", "LDSM", "STS", "STSM", "ATOMS"):
        return "shared"
    if base in ("BAR", "SYNCS", "WARPSYNC"):
        return "barriers" if base == "BAR" else ""
    if opcode.startswith("MUFU.EX2"):
        return "exponentials"
    if base in ("FSEL", "SEL", "FSETP", "ISETP", "FSET", "HSETP2", "PLOP3"):
        return "masks"
    if base in ("BRA", "BRX", "JMP", "CALL"):
        return "branches"
    return ""
