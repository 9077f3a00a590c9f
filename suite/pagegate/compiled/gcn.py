"""AMD machine code: resources and instruction mix, read from the assembly that Triton keeps.

Source: LLVM's "User Guide for AMDGPU Backend" (code object metadata), and AMD's instruction-set guides.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from pagegate.amdgcn.text import Line, Listing, read_listing

from .figures import Mix
from .flow import Step, in_loops

_LOAD = re.compile(r"^(?:global|buffer|flat)_load_(?:lds_)?(\w+)$")
_WIDTHS = {
    "dwordx4": 16, "b128": 16, "dwordx3": 12, "b96": 12, "dwordx2": 8, "b64": 8, "dword": 4, "b32": 4,
    "ushort": 2, "sshort": 2, "b16": 2, "u16": 2, "i16": 2, "ubyte": 1, "sbyte": 1, "u8": 1, "i8": 1,
}  # fmt: skip
_FAR_TARGET = re.compile(r"\(([.$\w]+)-[.$\w]+\)&4294967295")
_AGPRS = re.compile(r"^\s+- \.agpr_count:\s+(\d+)", re.MULTILINE)
_CODE_BYTES = re.compile(r"^; codeLenInByte = (\d+)", re.MULTILINE)


def read(text: str) -> tuple[Mapping[str, int], Mix, Mix, int]:
    """Of the assembly text: the metadata's numbers, all instructions, those in loops, the code's bytes."""
    listing = read_listing(text)
    loops = in_loops(_steps(listing), listing.labels)
    size, agprs = _CODE_BYTES.search(text), _AGPRS.search(text)
    return (
        # the first entry of a list, which starts unlike the other facts
        {**listing.facts, "agpr_count": int(agprs[1]) if agprs else 0},
        count(listing.lines),
        count([line for line, loop in zip(listing.lines, loops, strict=True) if loop]),
        int(size[1]) if size else 8 * len(listing.lines),
    )


def _steps(listing: Listing) -> list[Step]:
    """Far jumps are branches: their label stands in the addition before them."""
    steps, far = [], ""
    for line in listing.lines:
        name = line.mnemonic
        if (match := _FAR_TARGET.search(line.arguments)) is not None:
            far = match[1]
        if name == "s_setpc_b64":
            steps.append(Step(name, far, falls=False))
        elif name in ("s_branch", "s_endpgm"):
            steps.append(Step(name, line.arguments, falls=False))
        elif name.startswith("s_cbranch"):
            steps.append(Step(name, line.arguments))
        else:
            steps.append(Step(name))
    return steps


def _width(mnemonic: str) -> int | None:
    match = _LOAD.match(mnemonic)
    if match is None:
        return None
    parts = match[1].split("_")
    return next((_WIDTHS[part] for part in parts if part in _WIDTHS), 2 if "short" in parts else 4)


def count(lines: Sequence[Line]) -> Mix:
    kinds: Counter[str] = Counter()
    matrix: Counter[str] = Counter()
    loads: Counter[int] = Counter()
    for line in lines:
        name = line.mnemonic
        width = _width(name)
        if width is not None:
            loads[width] += 1
            # straight into LDS, without registers
            kinds["async_loads"] += "_lds_" in name or line.arguments.split()[-1:] == ["lds"]
        elif re.match(r"v_s?(mfma|wmma|mfmac|wmmac)_", name):
            matrix[re.sub(r"_e(32|64)$", "", name)] += 1
        else:
            kinds[_kind(name)] += 1
    kinds.pop("", None)
    return Mix(instructions=len(lines), matrix=dict(sorted(matrix.items())), loads=dict(loads), **kinds)


def _kind(name: str) -> str:
    if re.match(r"(global|buffer|flat)_store_", name):
        return "stores"
    if re.match(r"ds_(read|write|load|store)", name):
        return "shared"
    if name.startswith("s_barrier") and name != "s_barrier_wait":
        return "barriers"
    if name.startswith(("v_exp_f", "v_s_exp_f")):
        return "exponentials"
    if name.startswith(("v_cmp", "v_cndmask", "v_dual_cndmask")):
        return "masks"
    if name.startswith(("s_branch", "s_cbranch", "s_setpc")):
        return "branches"
    return ""
