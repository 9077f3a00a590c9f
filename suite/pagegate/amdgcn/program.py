"""A decoded kernel: basic blocks of steps, and what it needs to run."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from .decode import Instruction, decode
from .errors import AssemblyError
from .farjump import resolve
from .operands import parse_operand
from .text import Line, Listing, read_listing
from .waits import SCALAR_SHIFT

TARGETS = ("gfx942", "gfx950")
_ENDS = ("s_endpgm", "s_barrier", "s_setpc_b64")


@dataclass(frozen=True)
class Block:
    """Straight-line code. `first`: the index of its first line; `ending`: how it ends.

    ending: "" (falls through), "s_barrier", "s_endpgm" or a branch's mnemonic. target: the block that a
    branch goes to, or the register with the address of a far jump; -1 without either.
    """

    first: int
    code: tuple[Instruction, ...]
    ending: str
    target: int

    @property
    def size(self) -> int:
        return len(self.code) + int(self.ending != "")


@dataclass(frozen=True)
class Program:
    """`entry`: the block that waves start in. local_bytes: LDS, as Triton asks for at launch."""

    listing: Listing
    blocks: tuple[Block, ...]
    entry: int
    local_bytes: int
    target: str
    digest: str

    @property
    def vectors(self) -> int:
        """Rows of the vector register file: v0 .. v255, then a0 .. as far as any is used."""
        named = 0
        for block in self.blocks:
            for instruction in block.code:
                named |= instruction.named
        return max((named & ((1 << SCALAR_SHIFT) - 1)).bit_length(), 1)

    @property
    def has_atomics(self) -> bool:
        """Whether workgroups may talk to each other through global memory."""
        return any("_atomic_" in line.mnemonic for line in self.listing.lines)

    @property
    def private_bytes(self) -> int:
        return self.listing.descriptor.get("private_segment_fixed_size", 0)


def load(text: str, target: str, local_bytes: int = 0) -> Program:
    """Decode assembly text. Raises AssemblyError for anything that is not modelled."""
    if target not in TARGETS:
        raise AssemblyError(f"target: required one of {TARGETS}, found {target!r}")
    listing = read_listing(text)
    starts = _starts(listing)
    block_of = {start: number for number, start in enumerate(starts)}
    blocks = []
    for start, stop in zip(starts, [*starts[1:], len(listing.lines)], strict=True):
        lines = listing.lines[start:stop]
        ending, goal = "", -1
        if _ends_block(lines[-1]):
            ending = lines[-1].mnemonic
            if ending == "s_setpc_b64":
                goal = _register(lines[-1])
            elif ending not in _ENDS:
                goal = block_of[_goal(listing, lines[-1])]
            lines = lines[:-1]
        resolved = (resolve(line, start + at, listing.labels) for at, line in enumerate(lines))
        code = tuple(decode(line, target) for line in resolved)
        blocks.append(Block(start, code, ending, goal))
    size = max(local_bytes, listing.descriptor.get("group_segment_fixed_size", 0))
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    return Program(listing, tuple(blocks), block_of[listing.entry], size, target, digest)


def _starts(listing: Listing) -> list[int]:
    starts = {0, listing.entry, *listing.labels.values()}
    starts |= {number + 1 for number, line in enumerate(listing.lines) if _ends_block(line)}
    return sorted(start for start in starts if start < len(listing.lines))


def _ends_block(line: Line) -> bool:
    return line.mnemonic in _ENDS or line.mnemonic.startswith(("s_branch", "s_cbranch_"))


def _register(line: Line) -> int:
    """The scalar register pair that holds a far jump's address."""
    operand = parse_operand(line.arguments)
    if operand is None or operand.kind != "s" or operand.count != 2:
        raise AssemblyError(f"{line}: required a pair of scalar registers, found {line.arguments!r}")
    return operand.index


def _goal(listing: Listing, line: Line) -> int:
    goal = listing.labels.get(line.arguments)
    if goal is None:
        raise AssemblyError(f"{line}: required a label of this kernel, found {line.arguments!r}")
    return goal
