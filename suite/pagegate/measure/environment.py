"""What a measurement was made on, and the part of it that makes two measurements comparable."""

from __future__ import annotations

import hashlib
import json
import platform
from dataclasses import asdict, dataclass, fields
from typing import Any

from pagegate.errors import UsageError

# GPU names, in order: the first part that occurs names the role
ROLES = (("GH200", "gh200"), ("H200", "h200"), ("H100", "h100"), ("B200", "b200"), ("A100", "a100"),
         ("MI300X", "mi300x"), ("MI300A", "mi300a"), ("MI325X", "mi325x"), ("MI355X", "mi355x"))  # fmt: skip
# what may differ without making two results incomparable
_INCIDENTAL = {"python", "processes", "clock_policy"}


@dataclass(frozen=True)
class Environment:
    """GPU, software and policy of a machine. processes: other processes on the GPU when measured."""

    gpu: str
    role: str
    driver: str
    runtime: str
    torch: str
    triton: str
    python: str
    clock_policy: str = "unknown"
    partition: str = "none"
    ecc: str = "unknown"
    processes: int = 0

    def key(self) -> str:
        """Twelve hex digits over everything that has to agree for two results to be compared."""
        comparable = {k: v for k, v in asdict(self).items() if k not in _INCIDENTAL}
        return hashlib.sha256(json.dumps(comparable, sort_keys=True).encode()).hexdigest()[:12]

    def differences(self, other: Environment) -> list[str]:
        """The comparable fields that differ, in words."""
        names = [f.name for f in fields(self) if f.name not in _INCIDENTAL]
        pairs = [(name, getattr(self, name), getattr(other, name)) for name in names]
        return [f"{name}: {mine} against {theirs}" for name, mine, theirs in pairs if mine != theirs]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: Any, where: str = "environment") -> Environment:
        try:
            return Environment(**data)
        except TypeError as error:
            raise UsageError(
                f"{where}: required the fields of an environment, found others: {error}"
            ) from None


def role_of(gpu: str) -> str:
    """The machine role of a GPU's name: the folder of its baselines."""
    for part, role in ROLES:
        if part.lower() in gpu.lower():
            return role
    return "".join(c if c.isalnum() else "-" for c in gpu.lower()).strip("-")


def current_environment() -> Environment:
    """This machine. Raises UsageError without a GPU: nothing times the interpreter."""
    import torch
    import triton

    from .machine import gpu_facts

    if not torch.cuda.is_available():
        raise UsageError(
            "measuring: required a CUDA or HIP GPU, found none; Triton's interpreter is never timed"
        )
    gpu = torch.cuda.get_device_name()
    runtime = f"HIP {torch.version.hip}" if torch.version.hip else f"CUDA {torch.version.cuda}"
    return Environment(
        gpu=gpu,
        role=role_of(gpu),
        runtime=runtime,
        torch=torch.__version__,
        triton=triton.__version__,
        python=platform.python_version(),
        **gpu_facts(),
    )
