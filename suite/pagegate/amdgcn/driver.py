"""A Triton driver without a GPU: inside `emulated`, `kernel[grid](...)` compiles for the target and runs
at once on CPU tensors, in the interpreter of this package.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime import driver as active_driver

from .arguments import Value
from .errors import LaunchError
from .memory import AddressSpace
from .program import load
from .report import Report, report_of
from .run import Outcome, run_launch

# what the compiler and launch heuristics ask of a device: MI300X and MI355X
PROPERTIES: Mapping[str, Mapping[str, int]] = {
    "gfx942": {"max_shared_mem": 65536, "multiprocessor_count": 304, "warpSize": 64},
    "gfx950": {"max_shared_mem": 163840, "multiprocessor_count": 256, "warpSize": 64},
}


@dataclass
class Session:
    """Launches carried out so far.

    rewrite: changes a kernel's assembly text before it is decoded (planted faults).
    """

    target: str
    processes: int = 1
    rewrite: Callable[[str], str] | None = None
    outcomes: list[Outcome] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)

    @property
    def report(self) -> Report:
        return report_of(self.outcomes)


class _Utilities:
    """The part of a driver that loads binaries."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def get_device_properties(self, device: object) -> Mapping[str, int]:
        return PROPERTIES[self._session.target]

    def load_binary(
        self, name: str, kernel: bytes, shared: int, device: object
    ) -> tuple[object, object, int, int, int]:
        session = self._session
        text = session.texts[name] if session.rewrite is None else session.rewrite(session.texts[name])
        program = load(text, session.target, shared)
        return program, program, 0, 0, 1024

    def unload_module(self, module: object) -> None:
        pass


class _Launcher:
    """Called by Triton for each launch, with the grid and all arguments of the kernel."""

    def __init__(self, session: Session, source: Any, metadata: Any) -> None:
        self._session = session
        self._signature: list[tuple[str, str]] = list(source.signature.items())
        self._num_warps: int = metadata.num_warps
        if getattr(metadata, "global_scratch_size", 0) or getattr(metadata, "profile_scratch_size", 0):
            raise LaunchError(f"{metadata.name}: Triton's global scratch memory is not modelled")

    def __call__(self, x: int, y: int, z: int, stream: object, function: Any, *rest: Any) -> None:
        arguments = rest[4:]
        memory, values = AddressSpace(), []
        for (name, kind), argument in zip(self._signature, arguments, strict=True):
            if kind != "constexpr":
                values.append(Value(str(name), kind, _place(memory, str(name), kind, argument)))
        session = self._session
        session.outcomes.append(
            run_launch(function, memory, values, (x, y, z), self._num_warps, session.processes)
        )


def _place(memory: AddressSpace, name: str, kind: str, argument: Any) -> float | int:
    """An argument's value; for a tensor, its emulated address."""
    if not kind.startswith("*"):
        if not isinstance(argument, (bool, int, float)):
            raise LaunchError(f"{name}: required a number for {kind}, found {type(argument).__name__}")
        return argument
    if not isinstance(argument, torch.Tensor) or argument.device.type != "cpu":
        raise LaunchError(f"{name}: required a CPU tensor, found {type(argument).__name__}")
    storage = argument.untyped_storage()
    if not storage.nbytes():
        return 0
    base = memory.add_storage(name, storage.data_ptr(), storage.nbytes()).base
    return base + argument.data_ptr() - storage.data_ptr()


class EmulatedDriver:
    """What triton.runtime asks of a driver."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.utils = _Utilities(session)

    def launcher_cls(self, source: Any, metadata: Any) -> _Launcher:
        return _Launcher(self._session, source, metadata)

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("hip", self._session.target, 64)

    def get_current_device(self) -> object:
        # Triton keeps compiled kernels per device; each session has its own
        return ("emulated", id(self._session))

    def set_current_device(self, device: object) -> None:
        pass

    def get_current_stream(self, device: object) -> int:
        return 0

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")


@contextmanager
def emulated(
    target: str, processes: int = 1, rewrite: Callable[[str], str] | None = None
) -> Iterator[Session]:
    """Make Triton launch on the emulated target until the block ends.

    Raises LaunchError when Triton runs in interpreter mode: its kernels cannot be compiled then.
    """
    if target not in PROPERTIES:
        raise LaunchError(f"target: required one of {tuple(PROPERTIES)}, found {target!r}")
    if triton.knobs.runtime.interpret:
        raise LaunchError("required compiled kernels, found TRITON_INTERPRET=1 in the environment; unset it")
    session = Session(target, processes, rewrite)
    previous = getattr(active_driver, "_active", None)

    def remember(module: object, function: object, name: str, group: Mapping[str, str], key: str) -> None:
        paths = [path for file, path in group.items() if file.endswith(".amdgcn")]
        session.texts[name] = Path(paths[0]).read_text()

    hooks = triton.knobs.runtime.kernel_load_start_hook
    hooks.add(remember)
    active_driver.set_active(EmulatedDriver(session))
    try:
        yield session
    finally:
        active_driver.set_active(previous)
        hooks.remove(remember)
