"""Launching for the sampler: spin, flush, events, graphs. CUDA and HIP through torch."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle, islice
from typing import Any

import torch

from .roofline import Ceilings
from .sampler import Launch, Plan, sample

Launcher = Callable[[], object]

_WARM_S = 0.01
_SPIN_CYCLES = 100_000  # about 50 us
_MOST_SPIN_CYCLES = 20_000_000
_LAUNCHES_PER_GRAPH = 24
_REPLAY_S = 0.004


def flush_bytes() -> int:
    """Twice the L2, and 512 MB where a larger cache lies behind it (MI300's Infinity Cache)."""
    if torch.version.hip:
        return 512 << 20
    device = torch.cuda.current_device()
    size: int = torch.cuda.get_device_properties(device).L2_cache_size
    return max(2 * size, 64 << 20)


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def _nothing() -> None:
    """The prelude of what queues behind another launch."""


class _Watch:
    """Warms up by launching for a stretch of time, and hides the host behind a spin on the device."""

    def __init__(self, launch: Launcher):
        self._launch = launch
        self._spin_cycles = _SPIN_CYCLES

    def warm(self) -> None:
        started = time.perf_counter()
        while time.perf_counter() - started < _WARM_S:
            self._launch()
            self._launch()
            torch.cuda.synchronize()

    def slow_down(self) -> None:
        self._spin_cycles = min(2 * self._spin_cycles, _MOST_SPIN_CYCLES)

    def _spin(self) -> None:
        torch.cuda._sleep(self._spin_cycles)  # type: ignore[no-untyped-call]

    def _time(self, preludes: Sequence[Launcher]) -> list[Launch]:
        """Launch once after each prelude, between two events, and wait once at the end.

        A launch is late when the device reached its start before the host had enqueued it whole. The two
        clocks are compared from an event that the device cannot reach before the host read its clock, so
        a launch may be called late that was not, but never the other way round.
        """
        events = [(_event(), _event()) for _ in preludes]
        origin = _event()
        torch.cuda.synchronize()
        host_origin = time.perf_counter()
        origin.record()
        enqueued = []
        for prelude, (start, stop) in zip(preludes, events, strict=True):
            prelude()
            start.record()
            self._launch()
            stop.record()
            enqueued.append(time.perf_counter() - host_origin)
        torch.cuda.synchronize()
        return [
            Launch(start.elapsed_time(stop) / 1e3, late=done > origin.elapsed_time(start) / 1e3)
            for (start, stop), done in zip(events, enqueued, strict=True)
        ]


class KernelWatch(_Watch):
    """Device time of single launches with a cold L2: spin, flush, start, launch, stop."""

    quantity = "kernel"

    def __init__(self, launch: Launcher):
        super().__init__(launch)
        self._flush = torch.empty(flush_bytes(), dtype=torch.uint8, device="cuda")

    def take(self, count: int) -> list[Launch]:
        return self._time([self._cool] * count)

    def _cool(self) -> None:
        self._spin()
        self._flush.zero_()


def graph_repeats(copies: int, launch_s: float) -> int:
    """How often a graph goes through its copies: two dozen launches, fewer of slow ones."""
    wanted = min(_LAUNCHES_PER_GRAPH, int(_REPLAY_S / launch_s))
    return max(1, wanted // copies)


def repeated(launches: Sequence[Launcher], repeats: int, extra: float) -> Iterator[Launcher]:
    """What comes on top of `repeats` times all launches to take a share `extra` longer: at least one more."""
    count = max(1, round(extra * repeats * len(launches))) if extra else 0
    return islice(cycle(launches), count)


class GraphWatch(_Watch):
    """Share of a graph's replay: many launches per graph, over copies of the inputs in turn.

    The spin goes before the first replay of a batch; the others queue behind it. least: launches per graph,
    whatever they cost; extra: a share of them that is done twice and counted once, a slowdown of known size.
    """

    quantity = "graph"

    def __init__(self, launches: Sequence[Launcher], least: int = 0, extra: float = 0.0):
        super().__init__(launches[0])
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for launch in launches:
                launch()
        torch.cuda.current_stream().wait_stream(side)
        (one,) = self._time([self._spin])
        repeats = max(graph_repeats(len(launches), one.seconds), -(-least // len(launches)))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(repeats):
                for launch in launches:
                    launch()
            for launch in repeated(launches, repeats, extra):
                launch()
        self._count = len(launches) * repeats
        # copies of the inputs live as long as the graph that reads them
        self._kept = list(launches)
        self._launch = graph.replay

    def take(self, count: int) -> list[Launch]:
        replays = self._time([self._spin, *[_nothing] * (count - 1)])
        return [Launch(replay.seconds / self._count, replay.late) for replay in replays]


class CallWatch(_Watch):
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


def measure_ceilings() -> Ceilings:
    """A 1 GiB copy and an 8,192 cubed bf16 product of random data, by the same sampler.

    Of two ways to copy, the driver's and an elementwise kernel's, the faster one counts.
    """
    source = torch.randn(1 << 28, device="cuda")
    target = torch.empty_like(source)
    plan = Plan(budget_s=0.3)
    copies = [lambda: target.copy_(source), lambda: torch.neg(source, out=target)]
    copy_s = min(sample(GraphWatch([copy]), plan).median for copy in copies)
    size = 8192
    a, b = (torch.randn(size, size, device="cuda").to(torch.bfloat16) for _ in "ab")
    c = torch.empty_like(a)

    def multiply() -> Any:
        return torch.mm(a, b, out=c)

    product = sample(GraphWatch([multiply]), plan)
    return Ceilings(2 * source.nbytes / copy_s, 2 * size**3 / product.median)
