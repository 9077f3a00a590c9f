"""Launching for the sampler: spin, flush, events, graphs. CUDA and HIP through torch."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from .roofline import Ceilings
from .sampler import Launch, Plan, sample
from .samples import Reading

Launcher = Callable[[], object]

# NVML clock event reasons that distort a measurement; a software power cap is normal under load
_REASONS = {
    0x08: "hardware slowdown",
    0x20: "software thermal",
    0x40: "hardware thermal",
    0x80: "power brake",
}
_WARM_S = 0.02


def flush_bytes() -> int:
    """Twice the L2, and 512 MB where a larger cache lies behind it (MI300's Infinity Cache)."""
    if torch.version.hip:
        return 512 << 20
    size: int = torch.cuda.get_device_properties(0).L2_cache_size
    return max(2 * size, 64 << 20)


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


class _Warming:
    """Launches for a stretch of time, then waits."""

    def __init__(self, launch: Launcher):
        self._launch = launch

    def warm(self) -> None:
        started = time.perf_counter()
        while time.perf_counter() - started < _WARM_S:
            self._launch()
            self._launch()
            torch.cuda.synchronize()

    def slow_down(self) -> None:
        """Only kernel times depend on the host's lead."""


class KernelWatch(_Warming):
    """Device time of single launches with a cold L2: spin, flush, start, launch, stop; one wait per batch.

    The spin keeps the device busy while the host enqueues the rest; a launch whose start the device
    reached before the host was done is late.
    """

    quantity = "kernel"

    def __init__(self, launch: Launcher):
        super().__init__(launch)
        self._flush = torch.empty(flush_bytes(), dtype=torch.uint8, device="cuda")
        self._spin_cycles = 100_000

    def slow_down(self) -> None:
        self._spin_cycles = min(2 * self._spin_cycles, 20_000_000)

    def take(self, count: int) -> list[Launch]:
        events = [(_event(), _event()) for _ in range(count)]
        origin = _event()
        torch.cuda.synchronize()
        origin.record()
        host_origin = time.perf_counter()
        enqueued = []
        for start, stop in events:
            torch.cuda._sleep(self._spin_cycles)  # type: ignore[no-untyped-call]
            self._flush.zero_()
            start.record()
            self._launch()
            stop.record()
            enqueued.append(time.perf_counter() - host_origin)
        torch.cuda.synchronize()
        return [
            Launch(start.elapsed_time(stop) / 1e3, late=done > origin.elapsed_time(start) / 1e3)
            for (start, stop), done in zip(events, enqueued, strict=True)
        ]


class GraphWatch(_Warming):
    """Share of a graph's replay: many launches per graph, over copies of the inputs in turn."""

    quantity = "graph"

    def __init__(self, launches: list[Launcher], repeats: int):
        self._count = len(launches) * repeats
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for launch in launches:
                launch()
        torch.cuda.current_stream().wait_stream(side)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            for _ in range(repeats):
                for launch in launches:
                    launch()
        super().__init__(self._graph.replay)

    def take(self, count: int) -> list[Launch]:
        events = [(_event(), _event()) for _ in range(count)]
        for start, stop in events:
            start.record()
            self._graph.replay()
            stop.record()
        torch.cuda.synchronize()
        return [Launch(start.elapsed_time(stop) / 1e3 / self._count) for start, stop in events]


class CallWatch(_Warming):
    """What the host pays: from the call to completion, warm."""

    quantity = "call"

    def take(self, count: int) -> list[Launch]:
        launches = []
        torch.cuda.synchronize()
        for _ in range(count):
            started = time.perf_counter()
            self._launch()
            torch.cuda.synchronize()
            launches.append(Launch(time.perf_counter() - started))
        return launches


def read_machine() -> Reading:
    """Clocks and throttling now: NVML, or amdsmi where it is there."""
    if torch.version.hip:
        return _read_amd()
    try:
        import pynvml as nvml
    except ImportError:
        return Reading()
    nvml.nvmlInit()
    handle = nvml.nvmlDeviceGetHandleByIndex(torch.cuda.current_device())
    try:
        mask = nvml.nvmlDeviceGetCurrentClocksEventReasons(handle)
        sm = nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)
        memory = nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM)
    except nvml.NVMLError:
        return Reading()
    return Reading(sm, memory, tuple(words for bit, words in _REASONS.items() if mask & bit))


def _read_amd() -> Reading:
    try:
        import amdsmi

        amdsmi.amdsmi_init()
        handle = amdsmi.amdsmi_get_processor_handles()[torch.cuda.current_device()]
        status = amdsmi.amdsmi_get_violation_status(handle)
        clock = amdsmi.amdsmi_get_clock_info(handle, amdsmi.AmdSmiClkType.GFX)["clk"]
    except Exception:
        return Reading()
    active = [name for name, value in status.items() if name.startswith("active_") and value is True]
    return Reading(int(clock), None, tuple(sorted(active)))


def measure_ceilings() -> Ceilings:
    """A 1 GiB copy and an 8,192 cubed bf16 product of random data, by the same sampler.

    Of two ways to copy, the driver's and an elementwise kernel's, the faster one counts.
    """
    source = torch.randn(1 << 28, device="cuda")
    target = torch.empty_like(source)
    plan = Plan(budget_s=0.3)
    copies = [lambda: target.copy_(source), lambda: torch.neg(source, out=target)]
    copy_s = min(sample(GraphWatch([copy], 4), plan).median for copy in copies)
    size = 8192
    a, b = (torch.randn(size, size, device="cuda").to(torch.bfloat16) for _ in "ab")
    c = torch.empty_like(a)

    def multiply() -> Any:
        return torch.mm(a, b, out=c)

    product = sample(GraphWatch([multiply], 4), plan)
    return Ceilings(2 * source.nbytes / copy_s, 2 * size**3 / product.median)
