"""Timing a kernel on a workload: fresh inputs, the right stopwatch, one list of samples."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from pagegate.cases.content import make_content
from pagegate.cases.inputs import Inputs, Placement, place
from pagegate.cases.registry import Kernel, kernels_root
from pagegate.cases.spec import AttentionSpec, Case

from .gpu import CallWatch, GraphWatch, KernelWatch, flush_bytes, read_machine
from .sampler import Plan, Stopwatch, sample
from .samples import Samples

_MOST_COPIES = 96
_LAUNCHES_PER_GRAPH = 24


@dataclass(frozen=True)
class Prepared:
    """Launches of one kernel on copies of one workload's inputs; they keep their tensors alive."""

    launches: list[Callable[[], object]]


def copies_for(spec: AttentionSpec, cache_bytes: int) -> int:
    """How many copies of the inputs keep each other out of a cache of half of `cache_bytes`."""
    return max(1, min(_MOST_COPIES, -(-cache_bytes // max(spec.kv_bytes, 1))))


def prepare(kernel: Kernel, case: Case, copies: int = 1) -> Prepared:
    """Random inputs on the GPU, placed `copies` times on different pages, and a launch for each."""
    content = make_content(case, torch.device("cuda"))
    launches = []
    for number in range(copies):
        inputs = _clean(place(content, Placement(seed=number, dead="large")))
        launches.append(kernel.bind(inputs, out=torch.empty_like(inputs.q)))
    return Prepared(launches)


def _clean(inputs: Inputs) -> Inputs:
    """Entries that no query reaches point at a page that exists: peers may prefetch them."""
    inputs.block_table.clamp_(0, inputs.k_cache.shape[0] - 1)
    return inputs


def measure(kernel: Kernel, case: Case, quantity: str, plan: Plan) -> Samples:
    """Samples of one quantity ("kernel", "graph" or "call") of a kernel on a case.

    Raises UsageError when kernel times cannot be had (see `sampler.sample`).
    """
    copies = copies_for(case.spec, flush_bytes()) if quantity == "graph" else 1
    prepared = prepare(kernel, case, copies)
    watch: Stopwatch
    if quantity == "graph":
        watch = GraphWatch(prepared.launches, max(1, _LAUNCHES_PER_GRAPH // copies))
    elif quantity == "kernel":
        watch = KernelWatch(prepared.launches[0])
    else:
        watch = CallWatch(prepared.launches[0])
    try:
        return sample(watch, plan, read_machine)
    finally:
        del watch, prepared
        torch.cuda.empty_cache()


def subject() -> dict[str, str]:
    """Which `paged_kernels` ran: its folder's commit, or that it is not under version control."""
    root = kernels_root()
    return {"paged_kernels": _commit(root)}


def _commit(root: Path) -> str:
    def git(*words: str) -> str:
        done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, check=False)
        return done.stdout.strip() if done.returncode == 0 else ""

    commit = git("rev-parse", "HEAD")
    if not commit:
        return "unversioned"
    return commit + ("-dirty" if git("status", "--porcelain", "--", str(root)) else "")
