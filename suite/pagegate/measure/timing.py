"""Timing a kernel on a workload: fresh inputs, the right stopwatch, one list of samples.

Who samples once calls `measure`. Who compares two kernels in turns keeps one `stopwatch` each, and calls
`sampler.sample(watch, plan, read_machine)` as often as there are rounds: inputs and graphs stay.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from pagegate.cases.content import make_content
from pagegate.cases.inputs import Inputs, Placement, place
from pagegate.cases.registry import Kernel
from pagegate.cases.spec import AttentionSpec, Case
from pagegate.errors import UsageError

from .gpu import CallWatch, GraphWatch, KernelWatch, flush_bytes
from .machine import read_machine
from .roofline import cost
from .sampler import Plan, Stopwatch, sample
from .samples import QUANTITIES, Samples

_MOST_COPIES = 96


def copies_for(spec: AttentionSpec, cache_bytes: int) -> int:
    """How many copies of the inputs are read in turn until `cache_bytes` have passed, so that none is
    still in a cache of half that size. Counts what is read: a window reads little of its keys."""
    return max(1, min(_MOST_COPIES, -(-cache_bytes // max(cost(spec).bytes, 1))))


def stopwatch(
    kernel: Kernel, case: Case, quantity: str, placement_seed: int = 0, least: int = 0, extra: float = 0.0
) -> Stopwatch:
    """A watch ("kernel", "graph" or "call") over launches of a kernel on a case's random inputs.

    It holds the inputs on the GPU as long as it lives. placement_seed: which physical pages they get; least,
    extra: see `gpu.GraphWatch`. Raises UsageError for another quantity, and without a GPU.
    """
    if quantity not in QUANTITIES:
        raise UsageError(f"quantity: required one of {', '.join(QUANTITIES)}, found {quantity!r}")
    if not torch.cuda.is_available():
        raise UsageError("measuring: required a CUDA or HIP GPU, found none; nothing times the interpreter")
    copies = copies_for(case.spec, flush_bytes()) if quantity == "graph" else 1
    launches = _launches(kernel, case, copies, placement_seed)
    if quantity == "graph":
        return GraphWatch(launches, least, extra)
    return KernelWatch(launches[0]) if quantity == "kernel" else CallWatch(launches[0])


def _launches(kernel: Kernel, case: Case, copies: int, placement_seed: int) -> list[Callable[[], object]]:
    """A launch for each copy of the inputs, on pages of its own."""
    content = make_content(case, torch.device("cuda"))
    launches = []
    for number in range(copies):
        inputs = _clean(place(content, Placement(seed=placement_seed + number, dead="large")))
        launches.append(kernel.bind(inputs, out=torch.empty_like(inputs.q)))
    return launches


def _clean(inputs: Inputs) -> Inputs:
    """Entries that no query reaches point at a page that exists: peers may prefetch them."""
    inputs.block_table.clamp_(0, inputs.k_cache.shape[0] - 1)
    return inputs


def measure(kernel: Kernel, case: Case, quantity: str, plan: Plan) -> Samples:
    """Samples of one quantity of a kernel on a case; nothing of it stays on the GPU.

    Raises UsageError when device times cannot be had (see `sampler.sample`) or as `stopwatch` does.
    """
    watch = stopwatch(kernel, case, quantity)
    try:
        return sample(watch, plan, read_machine)
    finally:
        del watch
        torch.cuda.empty_cache()
