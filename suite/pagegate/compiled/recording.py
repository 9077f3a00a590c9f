"""What a call would launch: the real public call, on tensors without data, under a driver without a GPU.

Triton's own cache hook sees every variant just before it would be compiled, and declines; so the planner,
the checks and the specialisation of arguments are those of a real launch, and nothing is listed by hand.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime import driver as active_driver

from pagegate.cases.content import emulate_formats_of, make_content
from pagegate.cases.inputs import Placement, place
from pagegate.cases.registry import find_kernel
from pagegate.cases.spec import Case

from .targets import Target

META = torch.device("meta")
# what a reader wants to see of a variant, beside its constexprs
_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg", "waves_per_eu", "matrix_instr_nonkdim")
_DEFAULTS = {"num_ctas": 1, "maxnreg": None, "waves_per_eu": 0, "matrix_instr_nonkdim": 0}
# paths of this machine, which say nothing of the code
_PRIVATE = ("extern_libs", "backend_name")


@dataclass(frozen=True)
class Recorded:
    """One variant: what triton.compile needs, and what identifies it. options: for people."""

    digest: str
    kernel: str
    options: Mapping[str, Any]
    function: Any = field(repr=False)
    signature: Mapping[str, str] = field(repr=False)
    constants: Mapping[Any, Any] = field(repr=False)
    attributes: Mapping[Any, Any] = field(repr=False)
    compile_options: Mapping[str, Any] = field(repr=False)


class _Utilities:
    """The part of a driver that knows the device."""

    def __init__(self, target: Target):
        self._target = target

    def get_device_properties(self, device: object) -> Mapping[str, int]:
        target = self._target
        return {
            "multiprocessor_count": target.multiprocessors,
            "max_shared_mem": target.shared_per_group,
            "warpSize": target.warp_size,
        }


class RecordingDriver:
    """What triton.runtime asks of a driver until a kernel would be compiled."""

    def __init__(self, target: Target):
        self._target = target
        self.utils = _Utilities(target)

    def get_current_target(self) -> GPUTarget:
        target = self._target
        return GPUTarget(target.backend, target.arch, target.warp_size)

    def get_current_device(self) -> object:
        # Triton keeps its caches per device
        return ("recording", self._target.name)

    def set_current_device(self, device: object) -> None:
        pass

    def get_current_stream(self, device: object) -> int:
        return 0

    def get_active_torch_device(self) -> torch.device:
        return META


class Recorder:
    """Records launches on one target while its block lasts."""

    def __init__(self, target: Target):
        self.target = target
        self.seen: dict[str, Recorded] = {}
        self._calls: list[str] = []

    def launches(self, kernel: str, case: Case) -> list[str]:
        """Digests of the variants that one call launches, in order; details are in `seen`.

        Raises NotImplementedError for what the kernel does not support, else whatever the call raises:
        torch's RuntimeError where it reads data, of which there is none.
        """
        entry = find_kernel(kernel)
        if (reason := entry.unsupported_reason(case.spec)) is not None:
            raise NotImplementedError(reason)
        emulate_formats_of(self.target.name)
        inputs = place(make_content(case, META), Placement(seed=case.seed, dead=case.dead))
        self._calls = []
        entry.call(inputs, out=torch.empty_like(inputs.q))
        return self._calls

    def hook(self, *, key: str, fn: Any, compile: Mapping[str, Any], **_: Any) -> bool:
        """Triton's jit_cache_hook; True: do not compile."""
        recorded = recorded_from(self.target, fn.jit_function, compile)
        self.seen.setdefault(recorded.digest, recorded)
        self._calls.append(recorded.digest)
        return True


@contextmanager
def recording(target: Target) -> Iterator[Recorder]:
    """Kernels called inside are recorded, not run. Needs a process without TRITON_INTERPRET."""
    recorder = Recorder(target)
    previous: Any = getattr(active_driver, "_active", None)
    previous_hook: Callable[..., Any] | None = triton.knobs.runtime.jit_cache_hook
    active_driver.set_active(RecordingDriver(target))
    triton.knobs.runtime.jit_cache_hook = recorder.hook
    try:
        yield recorder
    finally:
        triton.knobs.runtime.jit_cache_hook = previous_hook
        active_driver.set_active(previous)


def recorded_from(target: Target, function: Any, compile: Mapping[str, Any]) -> Recorded:
    """A variant, from what Triton's jit_cache_hook gets: the function and its `compile` argument."""
    options = json.loads(compile["specialization_data"])["options"]
    names = [parameter.name for parameter in function.params]
    constants = {
        ".".join([names[path[0]], *map(str, path[1:])]): _plain(value)
        for path, value in compile["constants"].items()
    }
    shown = {name: value for name, value in sorted(constants.items()) if value is not None}
    shown |= {
        name: options[name] for name in _OPTIONS if name in options and options[name] != _DEFAULTS.get(name)
    }
    (attributes,) = compile["configs"]
    public = {name: value for name, value in options.items() if name not in _PRIVATE}
    identity = [
        target.name,
        triton.__version__,
        function.cache_key,
        sorted(compile["signature"].items()),
        sorted(constants.items()),
        sorted((str(path), value) for path, value in attributes.items()),
        sorted(public.items()),
        sorted(_cache_invalidating().items()),
    ]
    digest = hashlib.sha256(json.dumps(identity, default=str).encode()).hexdigest()[:20]
    return Recorded(
        digest,
        function.fn.__name__,
        shown,
        function,
        compile["signature"],
        compile["constants"],
        attributes,
        {name: _tuples(value) for name, value in options.items()},
    )


def _cache_invalidating() -> Mapping[str, str]:
    from triton._C.libtriton import get_cache_invalidating_env_vars

    found: Mapping[str, str] = get_cache_invalidating_env_vars()
    return found


def _plain(value: Any) -> Any:
    """A constant as something that JSON holds."""
    value = getattr(value, "value", value)
    return value if isinstance(value, (bool, int, float, str, type(None))) else str(value)


def _tuples(value: Any) -> Any:
    """JSON made lists of tuples, which Triton hashes."""
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
