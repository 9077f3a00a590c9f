"""Reading assembly text: code lines with their labels and source positions, directives, metadata.

Sources: the text itself, and LLVM's "User Guide for AMDGPU Backend" (code object V5 metadata, kernel
descriptor directives).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePath

from .errors import AssemblyError

_CODE = re.compile(r"^\s+([a-z][a-z0-9_]*)(?:\s+(.*))?$")
_LABEL = re.compile(r"^([A-Za-z_.$][\w.$]*):")
_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+(?:"([^"]*)"\s+)?"([^"]*)"')
_LOC = re.compile(r"^\s*\.loc\s+(\d+)\s+(\d+)")
_DESCRIPTOR = re.compile(r"^\s*\.amdhsa_(\w+)\s+(\S+)")


@dataclass(frozen=True)
class Line:
    """One instruction: where it stands in the text, what it says, and the Python line it came from."""

    number: int
    mnemonic: str
    arguments: str
    source: str = ""

    def __str__(self) -> str:
        origin = f" ({self.source})" if self.source else ""
        return f"line {self.number}: {self.mnemonic} {self.arguments}".rstrip() + origin


@dataclass(frozen=True)
class Argument:
    """One entry of the kernel's argument block."""

    offset: int
    size: int
    kind: str


@dataclass(frozen=True)
class Listing:
    """A kernel's text, taken apart. `entry`: the index of the first line that the processor executes."""

    name: str
    lines: tuple[Line, ...]
    labels: Mapping[str, int]
    entry: int
    descriptor: Mapping[str, int]
    arguments: tuple[Argument, ...] = ()
    facts: Mapping[str, int] = field(default_factory=dict)


def read_listing(text: str) -> Listing:
    """Take assembly text with exactly one kernel apart.

    Raises AssemblyError when the text holds no kernel, or more than one.
    """
    rows = text.splitlines()
    names = [row.split()[1] for row in rows if row.strip().startswith(".amdhsa_kernel")]
    if len(names) != 1:
        raise AssemblyError(f"assembly text: required exactly one .amdhsa_kernel, found {names or 'none'}")
    lines, labels, second_start = _read_code(rows, names[0])
    descriptor = {m[1]: int(m[2], 0) for m in map(_DESCRIPTOR.match, rows) if m and m[1] != "kernel"}
    # with preloaded arguments, capable firmware enters 256 bytes further on, behind the loads that
    # older firmware needs (LLVM: "Preloaded Kernel Arguments")
    preloads = descriptor.get("user_sgpr_kernarg_preload_length", 0) > 0
    return Listing(
        name=names[0],
        lines=tuple(lines),
        labels=labels,
        entry=second_start if preloads else 0,
        descriptor=descriptor,
        arguments=_read_arguments(text),
        facts=_read_facts(text),
    )


def _read_code(rows: list[str], name: str) -> tuple[list[Line], dict[str, int], int]:
    """The kernel's instructions, label -> index, and the index behind the second `.p2align 8`."""
    lines: list[Line] = []
    labels: dict[str, int] = {}
    files: dict[str, str] = {}
    inside, source, second_start = False, "", 0
    for number, row in enumerate(rows, 1):
        if (match := _FILE.match(row)) is not None:
            files[match[1]] = PurePath(match[3]).name
        if not inside:
            inside = row.startswith(f"{name}:")
            continue
        if row.strip().startswith(".section") or row.strip().startswith(".end_amdhsa_kernel"):
            break
        code = row.split(";", 1)[0].rstrip()
        if (match := _LOC.match(row)) is not None:
            source = f"{files.get(match[1], '?')}:{match[2]}" if match[2] != "0" else source
        elif (match := _LABEL.match(code)) is not None:
            labels[match[1]] = len(lines)
        elif code.strip().startswith(".p2align\t8") and not second_start:
            second_start = len(lines)
        elif (match := _CODE.match(code)) is not None:
            lines.append(Line(number, match[1], (match[2] or "").strip(), source))
    if not lines:
        raise AssemblyError(f"assembly text: required instructions behind the label {name}, found none")
    return lines, labels, second_start


def _read_arguments(text: str) -> tuple[Argument, ...]:
    """The `.args` list of the metadata."""
    block = re.search(r"^ +(?:- )?\.args:\s*\n((?: {6,}.*\n)*)", text, re.MULTILINE)
    if block is None:
        return ()
    found = []
    for entry in re.split(r"^ +- ", block[1], flags=re.MULTILINE)[1:]:
        pairs = dict(re.findall(r"\.(\w+):\s+(\S+)", entry))
        found.append(Argument(int(pairs["offset"]), int(pairs["size"]), pairs["value_kind"]))
    return tuple(found)


def _read_facts(text: str) -> dict[str, int]:
    """Whole numbers of the kernel's metadata: sizes and register counts."""
    _, _, metadata = text.partition(".amdgpu_metadata")
    return {
        name: int(value) for name, value in re.findall(r"^ {4}\.(\w+):\s+(\d+)\s*$", metadata, re.MULTILINE)
    }
