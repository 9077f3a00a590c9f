"""What a check says: a status, where it is worst, and the case. Plain data that travels as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from pagegate.cases.spec import Case

STATUSES = (
    "PASSED",
    "OUT_OF_BUDGET",
    "NON_FINITE",
    "UNWRITTEN",
    "WROTE_OUTSIDE",
    "MUTATED_INPUT",
    "BROKE_PROPERTY",
    "WRONG_SHAPE",
    "WRONG_DTYPE",
    "RAISED",
    "CRASHED",
    "HUNG",
    "UNSUPPORTED",
)


@dataclass(frozen=True)
class Worst:
    """The worst element: what was compared ("out" or "lse"), where, and by how much."""

    quantity: str
    sequence: int
    token: int
    head: int
    dim: int | None
    found: float
    expected: float
    budget: float

    @property
    def ratio(self) -> float:
        if self.found == self.expected:  # infinities too
            return 0.0
        error = abs(self.found - self.expected)
        return error / self.budget if self.budget > 0 and error == error else float("inf")

    def __str__(self) -> str:
        dim = "" if self.dim is None else f", dim {self.dim}"
        error = abs(self.found - self.expected)
        return (
            f"{self.quantity} at sequence {self.sequence}, token {self.token}, head {self.head}{dim}: "
            f"found {self.found:.6g}, expected {self.expected:.6g}, error {error:.3g}, "
            f"budget {self.budget:.3g}, ratio {self.ratio:.3g}"
        )


@dataclass(frozen=True)
class CheckResult:
    """One kernel on one case. reason: words for people; relation: the broken one, if one broke;
    machine_code: which instructions ran, where they were interpreted (amdgcn.Report as JSON)."""

    kernel: str
    case: Case
    status: str
    reason: str = ""
    worst: Worst | None = None
    relation: str | None = None
    relations: tuple[str, ...] = ()
    seconds: float = 0.0
    machine_code: dict[str, Any] | None = field(default=None, repr=False)

    @property
    def failed(self) -> bool:
        return self.status not in ("PASSED", "UNSUPPORTED")

    @property
    def signature(self) -> tuple[str, str, str | None]:
        """What makes two failures the same kind."""
        return self.kernel, self.status, self.relation

    def to_json(self) -> dict[str, Any]:
        values = asdict(self)
        values["case"] = self.case.to_json()
        return {key: value for key, value in values.items() if value not in (None, "", ())}

    @staticmethod
    def from_json(data: dict[str, Any]) -> CheckResult:
        worst = Worst(**data["worst"]) if data.get("worst") else None
        case = Case.from_json(data["case"])
        relations = tuple(data.get("relations", ()))
        return CheckResult(**{**data, "case": case, "worst": worst, "relations": relations})
