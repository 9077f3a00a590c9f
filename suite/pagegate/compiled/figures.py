"""The figures of one compiled variant, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

LOAD_WIDTHS = (16, 12, 8, 4, 2, 1)


@dataclass(frozen=True)
class Mix:
    """Static counts of instructions. loads: global loads by bytes per lane, asynchronous ones included;
    matrix: by instruction; shared: accesses to shared memory; masks: compares and selects of vectors."""

    instructions: int = 0
    matrix: Mapping[str, int] = field(default_factory=dict)
    loads: Mapping[int, int] = field(default_factory=dict)
    async_loads: int = 0
    stores: int = 0
    shared: int = 0
    barriers: int = 0
    exponentials: int = 0
    masks: int = 0
    branches: int = 0

    @property
    def num_loads(self) -> int:
        return sum(self.loads.values())

    @property
    def load_width(self) -> float:
        """Bytes per lane of the load that the mean byte comes with (so that a few narrow loads of a block
        table weigh little beside those of keys and values); 0 without loads."""
        moved = sum(width * n for width, n in self.loads.items())
        return sum(width**2 * n for width, n in self.loads.items()) / max(moved, 1)

    @property
    def num_matrix(self) -> int:
        return sum(self.matrix.values())

    def to_json(self) -> dict[str, Any]:
        """What is not zero; widths as text."""
        data = {name: value for name, value in asdict(self).items() if value}
        if self.loads:
            data["loads"] = {str(width): n for width, n in sorted(self.loads.items())}
        return data

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Mix:
        loads = {int(width): n for width, n in data.get("loads", {}).items()}
        return Mix(**{**data, "loads": loads})


@dataclass(frozen=True)
class Figures:
    """One compiled variant on one target.

    registers: per lane (AMD: as LLVM allocates them, agprs included); spills: registers that went to
    memory; scratch: bytes of such memory per lane; shared: bytes per group; warps, groups: that a
    multiprocessor holds at once (0: it cannot launch); limit: of what allows no more; code: bytes;
    total: all instructions; loops: those inside of loops, where time goes.
    """

    registers: int
    agprs: int
    sgprs: int
    spills: int
    sgpr_spills: int
    scratch: int
    shared: int
    groups: int
    warps: int
    limit: str
    code: int
    total: Mix
    loops: Mix

    def to_json(self) -> dict[str, Any]:
        data = {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != 0}
        return data | {"total": self.total.to_json(), "loops": self.loops.to_json()}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Figures:
        zeros = {f.name: 0 for f in fields(Figures)}
        mixes = {name: Mix.from_json(data[name]) for name in ("total", "loops")}
        return Figures(**{**zeros, **data, **mixes})


@dataclass(frozen=True)
class Variant:
    """One compiled form of a GPU kernel. options: launch parameters and constexprs by name; problem: why
    it cannot be launched, or was not compiled (figures is None then)."""

    kernel: str
    options: Mapping[str, Any]
    figures: Figures | None
    problem: str = ""

    def to_json(self) -> dict[str, Any]:
        figures = {} if self.figures is None else {"figures": self.figures.to_json()}
        problem = {"problem": self.problem} if self.problem else {}
        return {"kernel": self.kernel, "options": dict(self.options)} | figures | problem

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Variant:
        figures = Figures.from_json(data["figures"]) if "figures" in data else None
        return Variant(data["kernel"], data["options"], figures, data.get("problem", ""))


@dataclass(frozen=True)
class Compiled:
    """All that a table of workloads launches on one target, compiled by one Triton.

    workloads: name -> the case in short notation; launches: "workload kernel" -> names of the variants that
    one call launches, in order; refused: "workload kernel" -> why the call launches nothing.
    """

    target: str
    triton: str
    workloads: Mapping[str, str]
    launches: Mapping[str, tuple[str, ...]]
    variants: Mapping[str, Variant]
    refused: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "target": self.target,
            "triton": self.triton,
            "workloads": dict(self.workloads),
            "launches": {name: list(names) for name, names in self.launches.items()},
            "variants": {name: variant.to_json() for name, variant in self.variants.items()},
            "refused": dict(self.refused),
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Compiled:
        return Compiled(
            data["target"],
            data["triton"],
            data["workloads"],
            {name: tuple(names) for name, names in data["launches"].items()},
            {name: Variant.from_json(entry) for name, entry in data["variants"].items()},
            data["refused"],
        )
