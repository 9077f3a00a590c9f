"""Branches beyond 16 bits: s_getpc_b64, label differences added to it, s_setpc_b64.

Lines get addresses of their own, four bytes apart, so that the arithmetic that LLVM emits is executed as
it stands. Real instructions have other sizes; only differences of labels are ever used.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from .errors import AssemblyError
from .text import Line

CODE = 0x7D00_0000_0000
_SIZE = 4
_DIFFERENCE = re.compile(r"\(([.\w$]+)-([.\w$]+)\)(&4294967295|>>32)")


def address(index: int) -> int:
    return CODE + _SIZE * index


def index_of(target: int) -> int:
    """The line at an address; may lie outside of the code when arithmetic went wrong."""
    return (target - CODE) // _SIZE


def resolve(line: Line, index: int, labels: Mapping[str, int]) -> Line:
    """The line with addresses as numbers; most lines stay as they are."""
    if line.mnemonic == "s_getpc_b64":
        return Line(line.number, "s_mov_b64", f"{line.arguments}, {address(index + 1):#x}", line.source)
    if "(." not in line.arguments:
        return line

    def number(match: re.Match[str]) -> str:
        for name in (match[1], match[2]):
            if name not in labels:
                raise AssemblyError(f"{line}: required a label of this kernel, found {name!r}")
        difference = _SIZE * (labels[match[1]] - labels[match[2]])
        return hex((difference if match[3].startswith("&") else difference >> 32) & 0xFFFFFFFF)

    return Line(line.number, line.mnemonic, _DIFFERENCE.sub(number, line.arguments), line.source)
