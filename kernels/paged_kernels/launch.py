"""How one call runs: the launch configuration and the rules that choose it.

Everything here is decided from shapes and the machine, never from device memory, so that a captured
graph stays right when lengths and tables change in place.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import torch
import triton

MAX_SPLITS = 64
RUNGS = ("naive", "unified")


@dataclass(frozen=True)
class Machine:
    """What the rules know of the processor. `backend` is "cuda", "hip" or "interpreter"."""

    backend: str
    multiprocessors: int


@dataclass(frozen=True)
class Problem:
    """What the host knows of one call without reading device memory. `capacity`: keys a table row holds."""

    num_tokens: int
    num_seqs: int
    max_query_len: int
    capacity: int
    num_query_heads: int
    num_kv_heads: int
    head_dim: int
    element_size: int
    sliding_window: int | None = None

    @property
    def gqa_ratio(self) -> int:
        return self.num_query_heads // self.num_kv_heads


@dataclass(frozen=True)
class LaunchConfig:
    """Launch parameters of one call.

    rung: which kernel. block_m: rows of a Q-block (query tokens x query heads of one KV head), a power
    of two, at least 16 and at least the GQA ratio. tile: keys per step, a power of two, at least 16.
    num_splits: programs that share one Q-block's keys. num_warps, num_stages: as in Triton.
    """

    rung: Literal["naive", "unified"] = "unified"
    block_m: int = 16
    tile: int = 32
    num_splits: int = 1
    num_warps: int = 4
    num_stages: int = 2

    def __post_init__(self) -> None:
        if self.rung not in RUNGS:
            raise ValueError(f"rung: required one of {RUNGS}, found {self.rung!r}")
        for name in ("block_m", "tile"):
            value = getattr(self, name)
            if value < 16 or value & (value - 1):
                raise ValueError(f"{name}: required a power of two of at least 16, found {value}")
        if not 1 <= self.num_splits <= MAX_SPLITS:
            raise ValueError(f"num_splits: required 1 to {MAX_SPLITS}, found {self.num_splits}")


def driver_device() -> torch.device | None:
    """Where Triton's active driver launches; None if there is none, as in interpreter mode."""
    if triton.knobs.runtime.interpret:
        return None
    try:
        device: torch.device = triton.runtime.driver.active.get_active_torch_device()
    except (RuntimeError, AttributeError):
        return None
    return device


def machine_of(device: torch.device) -> Machine:
    """The processor behind a torch device. CPU tensors run in Triton's interpreter, or on the target of a
    driver that launches on the CPU; meta tensors (shapes without data) only with a driver that takes them."""
    if device.type not in ("cpu", "meta"):
        return _gpu(device)
    if driver_device() != device:
        return Machine("interpreter", 32)
    driver = triton.runtime.driver.active
    properties = driver.utils.get_device_properties(driver.get_current_device())
    return Machine(driver.get_current_target().backend, properties["multiprocessor_count"])


@lru_cache
def _gpu(device: torch.device) -> Machine:
    backend = "hip" if torch.version.hip else "cuda"
    return Machine(backend, torch.cuda.get_device_properties(device).multi_processor_count)


@lru_cache(maxsize=4096)
def choose_config(problem: Problem, machine: Machine, rung: str = "unified") -> LaunchConfig:
    """The launch configuration for a problem on a machine; pure."""
    if rung == "naive":
        return LaunchConfig(rung="naive", tile=32, num_warps=4, num_stages=2)
    block_m = _block_m(problem)
    tile = 64 if problem.head_dim * problem.element_size <= 256 else 32
    if machine.backend == "interpreter":
        tile = 32
    return LaunchConfig(
        block_m=block_m,
        tile=tile,
        num_splits=_num_splits(problem, machine, block_m, tile),
        num_warps=2 if block_m == 16 else 4 if block_m <= 64 else 8,
        num_stages=_num_stages(problem, machine, tile),
    )


def _block_m(problem: Problem) -> int:
    """Enough rows for a decode step or a few draft tokens; more where prompts fill them."""
    rows = min(problem.max_query_len, 8) * problem.gqa_ratio
    if problem.max_query_len > 64:
        rows = 64
    return max(16, _power_of_two(problem.gqa_ratio), _power_of_two(rows))


def _power_of_two(rows: int) -> int:
    """The next one up."""
    return 1 << (rows - 1).bit_length()


def _num_stages(problem: Problem, machine: Machine, tile: int) -> int:
    """Tiles in flight; gfx942 has 64 KiB of LDS for the keys and values of all of them."""
    stages = 3 if problem.head_dim * problem.element_size <= 256 else 2
    stage_bytes = 2 * tile * _power_of_two(problem.head_dim) * problem.element_size
    return 1 if machine.backend == "hip" and stages * stage_bytes > 60 << 10 else stages


def _num_splits(problem: Problem, machine: Machine, block_m: int, tile: int) -> int:
    """As many splits as idle multiprocessors ask for, of at least four tiles each."""
    q_blocks = q_block_bound(problem.num_tokens, problem.num_seqs, block_m // problem.gqa_ratio)
    programs = q_blocks * problem.num_kv_heads
    visible = problem.capacity
    if problem.sliding_window is not None:
        visible = min(visible, problem.sliding_window + problem.max_query_len + tile)
    wanted = 2 * machine.multiprocessors // max(programs, 1)
    return max(1, min(wanted, -(-visible // (4 * tile)), MAX_SPLITS))


def q_block_bound(num_tokens: int, num_seqs: int, block_q: int) -> int:
    """An upper bound on the Q-blocks of a batch, from capacities alone (a static launch grid)."""
    return num_tokens // block_q + num_seqs
