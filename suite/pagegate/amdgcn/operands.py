"""Operands and modifiers of one instruction, parsed from its text.

Register numbering: vector registers v0.. are 0.., accumulation registers a0.. begin at ACCUMULATORS;
scalar registers are numbered as the hardware encodes them (vcc 106, m0 124, exec 126).
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, field

import numpy as np

from .errors import AssemblyError
from .text import Line

ACCUMULATORS = 256
VCC, M0, EXEC = 106, 124, 126
_SPECIAL = {
    "vcc": (VCC, 2), "vcc_lo": (VCC, 1), "vcc_hi": (VCC + 1, 1),
    "exec": (EXEC, 2), "exec_lo": (EXEC, 1), "exec_hi": (EXEC + 1, 1),
    "m0": (M0, 1),
    "flat_scratch": (102, 2), "flat_scratch_lo": (102, 1), "flat_scratch_hi": (103, 1),
}  # fmt: skip
_REGISTER = re.compile(r"^([vsa])(?:(\d+)|\[(\d+)(?::(\d+))?\])$")
_TTMP = re.compile(r"^ttmp(?:(\d+)|\[(\d+):(\d+)\])$")
_MODIFIER = re.compile(r"([a-z_0-9]+)(?::(\[[^\]]*\]|swizzle\([^)]*\)|[^\s,]+)|\(([^)]*)\))?$")
_FLOATS = {"0.15915494": 0x3E22F983, "0.15915494309189532": 0x3E22F983}


@dataclass(frozen=True)
class Operand:
    """A register range ("v" or "s"), a constant ("c") or nothing ("off"), with its source modifiers."""

    kind: str
    index: int = 0
    count: int = 1
    text: str = ""
    negate: bool = False
    absolute: bool = False
    sign_extend: bool = False

    @property
    def end(self) -> int:
        return self.index + self.count


@dataclass
class Parsed:
    """An instruction's operands, and its modifiers until someone consumes them."""

    line: Line
    operands: list[Operand]
    modifiers: dict[str, str] = field(default_factory=dict)

    def take(self, name: str, default: str = "") -> str:
        """Consume a modifier: its value, "1" for a bare word, `default` where it is absent."""
        return self.modifiers.pop(name, default)

    def take_number(self, name: str, default: int = 0) -> int:
        return int(self.take(name, str(default)), 0)

    def take_flags(self, name: str, count: int, default: int) -> list[int]:
        """Consume a list such as op_sel:[0,1]; missing entries hold the default."""
        text = self.take(name).strip("[]")
        flags = [int(part) for part in text.split(",")] if text else []
        return flags + [default] * (count - len(flags))

    def finish(self) -> None:
        """Raises AssemblyError when a modifier was left that nobody consumed."""
        if self.modifiers:
            left = ", ".join(f"{name}:{value}" for name, value in self.modifiers.items())
            raise AssemblyError(
                f"{self.line}: modifier {left} is not modelled; see docs/amdgcn.md, 'A new modifier'"
            )


def parse(line: Line) -> Parsed:
    """Split an instruction's arguments into operands and modifiers."""
    parsed = Parsed(line, [])
    parts = _split(line.arguments)
    for number, part in enumerate(parts):
        words = _words(part)
        # the first word of each comma-separated part is an operand, except in lists of modifiers only
        if words and (number < len(parts) - 1 or parse_operand(words[0]) is not None):
            operand = parse_operand(words.pop(0))
            if operand is None:
                raise AssemblyError(f"{line}: operand {part!r} is not understood")
            parsed.operands.append(operand)
        for word in words:
            match = _MODIFIER.match(word)
            if match is None:
                raise AssemblyError(f"{line}: modifier {word!r} is not understood")
            parsed.modifiers[match[1]] = match[2] or match[3] or "1"
    return parsed


def _split(text: str) -> list[str]:
    """Split at commas outside of brackets."""
    parts, depth, start = [], 0, 0
    for position, char in enumerate(text):
        depth += (char in "[(") - (char in "])")
        if char == "," and depth == 0:
            parts.append(text[start:position].strip())
            start = position + 1
    return [*parts, text[start:].strip()] if text else []


def _words(text: str) -> list[str]:
    return re.findall(r"(?:[^\s\[(]|\[[^\]]*\]|\([^)]*\))+", text)


def parse_operand(text: str) -> Operand | None:
    """An operand, or None if the text is none."""
    if len(text) > 1 and text[0] == "-" and not text[1].isdigit():
        return _with(parse_operand(text[1:]), negate=True)
    for name, flag in (("neg", "negate"), ("abs", "absolute"), ("sext", "sign_extend")):
        if text.startswith(f"{name}(") and text.endswith(")"):
            return _with(parse_operand(text[len(name) + 1 : -1]), **{flag: True})
    if len(text) > 2 and text[0] == text[-1] == "|":
        return _with(parse_operand(text[1:-1]), absolute=True)
    if text in ("off", "null"):
        return Operand("off", text=text)
    if text in _SPECIAL:
        index, count = _SPECIAL[text]
        return Operand("s", index, count, text)
    if (match := _REGISTER.match(text)) is not None:
        first = int(match[2] or match[3])
        last = int(match[4] or first)
        base = ACCUMULATORS if match[1] == "a" else 0
        return Operand("s" if match[1] == "s" else "v", base + first, last - first + 1, text)
    if (match := _TTMP.match(text)) is not None:
        first = int(match[1] or match[2])
        return Operand("s", 108 + first, int(match[3] or first) - first + 1, text)
    if re.match(r"^-?(0x[0-9a-fA-F]+|\d+(\.\d+)?([eE][-+]?\d+)?)$", text):
        return Operand("c", text=text)
    return None


def _with(operand: Operand | None, **flags: bool) -> Operand | None:
    if operand is None:
        return None
    values = {name: getattr(operand, name) for name in ("negate", "absolute", "sign_extend")} | flags
    return Operand(operand.kind, operand.index, operand.count, operand.text, **values)


def constant_bits(text: str, floating: bool, width: int) -> int:
    """The bits that a constant stands for in an operand of `width` bits.

    Text with a point is a float of the operand's width (of 32 bits in an integer operand of 16). Whole
    numbers are integers, also in float operands (ISA: "Inline Constants"). A 32-bit literal in a 64-bit
    float is its upper half.
    """
    mask = (1 << width) - 1
    if "." in text or (("e" in text or "E" in text) and not text.startswith(("0x", "-0x"))):
        if text in _FLOATS and width == 32:
            return _FLOATS[text]
        value = float(text)
        if width == 64:
            return int.from_bytes(struct.pack("<d", value), "little")
        if width == 16:
            return int(np.float16(value).view(np.uint16))
        return int(np.float32(value).view(np.uint32))
    number = int(text, 0)
    if floating and width == 64 and not -16 <= number <= 64:
        return (number << 32) & mask
    return number & mask
