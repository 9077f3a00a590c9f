"""How one call runs: the launch configuration, the problem as the host knows it, and the machine."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, get_args

import torch
import triton

MAX_SPLITS = 64
Rung = Literal["naive", "qblock", "split", "tiled", "unified"]
RUNGS: tuple[Rung, ...] = get_args(Rung)


@dataclass(frozen=True)
class Machine:
    """What the rules know of the processor. backend: "cuda", "hip" or "interpreter"; capability: 90 for
    sm_90, 0 elsewhere."""

    backend: str
    multiprocessors: int
    capability: int = 0


@dataclass(frozen=True)
class Problem:
    """What the host knows of one call without reading device memory. capacity: keys a table row holds;
    element_size, cache_element_size: bytes of q's and the cache's elements."""

    num_tokens: int
    num_seqs: int
    max_query_len: int
    capacity: int
    num_query_heads: int
    num_kv_heads: int
    head_dim: int
    element_size: int
    cache_element_size: int
    sliding_window: int | None = None

    @property
    def gqa_ratio(self) -> int:
        return self.num_query_heads // self.num_kv_heads

    @property
    def visible_keys(self) -> int:
        """An upper bound on the keys that one query token's block reads."""
        if self.sliding_window is None:
            return self.capacity
        return min(self.capacity, self.sliding_window + self.max_query_len)


@dataclass(frozen=True)
class LaunchConfig:
    """Launch parameters of one call.

    rung: which step of the ladder; all but "naive" are configurations of one kernel. block_m: rows of a
    Q-block (query tokens x query heads of one KV head), a power of two, at least 16 and at least the GQA
    ratio. tile: keys per step, a power of two, at least 16. num_splits: programs that may share one
    Q-block's keys. split_prompts: also where a sequence has several Q-blocks. min_tiles: tiles that make
    a split worth while. num_warps, num_stages, maxnreg: as in Triton. lane_sums: sum the softmax's weights
    over lanes after the last tile only. overlap: launch the reduction early (programmatic dependent
    launch, sm_90 and later). heads_per_reduction: heads that one program of the reduction merges, a power
    of two; reduction_warps: its warps.
    """

    rung: Rung = "unified"
    block_m: int = 16
    tile: int = 32
    num_splits: int = 1
    split_prompts: bool = False
    min_tiles: int = 4
    num_warps: int = 4
    num_stages: int = 2
    maxnreg: int | None = None
    lane_sums: bool = True
    overlap: bool = False
    heads_per_reduction: int = 1
    reduction_warps: int = 4

    def __post_init__(self) -> None:
        if self.rung not in RUNGS:
            raise ValueError(f"rung: required one of {RUNGS}, found {self.rung!r}")
        for name, least in (("block_m", 16), ("tile", 16), ("heads_per_reduction", 1)):
            value = getattr(self, name)
            if value < least or value & (value - 1):
                raise ValueError(f"{name}: required a power of two of at least {least}, found {value}")
        if not 1 <= self.num_splits <= MAX_SPLITS:
            raise ValueError(f"num_splits: required 1 to {MAX_SPLITS}, found {self.num_splits}")
        if self.min_tiles < 1:
            raise ValueError(f"min_tiles: required at least 1, found {self.min_tiles}")


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
        return Machine("interpreter", 8)
    driver = triton.runtime.driver.active
    properties = driver.utils.get_device_properties(driver.get_current_device())
    target = driver.get_current_target()
    capability = target.arch if target.backend == "cuda" else 0
    return Machine(target.backend, properties["multiprocessor_count"], capability)


@lru_cache
def _gpu(device: torch.device) -> Machine:
    properties = torch.cuda.get_device_properties(device)
    if torch.version.hip:
        return Machine("hip", properties.multi_processor_count)
    return Machine("cuda", properties.multi_processor_count, 10 * properties.major + properties.minor)


def q_block_bound(num_tokens: int, num_seqs: int, block_q: int) -> int:
    """An upper bound on the Q-blocks of a batch, from capacities alone (a static launch grid)."""
    return num_tokens // block_q + num_seqs
