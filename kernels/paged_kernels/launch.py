"""How one call runs: the launch configuration and the rules that choose it.

Everything here is decided from shapes and the machine, never from device memory, so that a captured
graph stays right when lengths and tables change in place.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

import torch
import triton

MAX_SPLITS = 16
RUNGS = ("naive", "unified")


@dataclass(frozen=True)
class Machine:
    """What the rules know of the processor. backend: "cuda", "hip" or "interpreter"; capability: 90 for
    sm_90, 0 elsewhere."""

    backend: str
    multiprocessors: int
    capability: int = 0


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

    @property
    def visible_keys(self) -> int:
        """An upper bound on the keys that one query token's block reads."""
        if self.sliding_window is None:
            return self.capacity
        return min(self.capacity, self.sliding_window + self.max_query_len)


@dataclass(frozen=True)
class LaunchConfig:
    """Launch parameters of one call.

    rung: which kernel. block_m: rows of a Q-block (query tokens x query heads of one KV head), a power
    of two, at least 16 and at least the GQA ratio. tile: keys per step, a power of two, at least 16.
    num_splits: programs that may share one Q-block's keys. split_prompts: also where a sequence has
    several Q-blocks. min_tiles: tiles that make a split worth while. num_warps, num_stages, maxnreg: as
    in Triton. overlap: launch the reduction early (programmatic dependent launch, sm_90 and later).
    heads_per_reduction: heads that one program of the reduction merges, a power of two.
    """

    rung: Literal["naive", "unified"] = "unified"
    block_m: int = 16
    tile: int = 32
    num_splits: int = 1
    split_prompts: bool = False
    min_tiles: int = 4
    num_warps: int = 4
    num_stages: int = 2
    maxnreg: int | None = None
    overlap: bool = False
    heads_per_reduction: int = 1

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
        return Machine("interpreter", 32)
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


@lru_cache(maxsize=4096)
def choose_config(problem: Problem, machine: Machine, rung: str = "unified") -> LaunchConfig:
    """The launch configuration for a problem on a machine; pure."""
    if rung == "naive":
        return LaunchConfig(rung="naive", tile=32, num_warps=4, num_stages=2)
    smallest = max(16, _power_of_two(problem.gqa_ratio))
    rows = _power_of_two(max(problem.max_query_len, 1) * problem.gqa_ratio)
    one_block = rows <= max(32, smallest)
    config = (
        _decode(problem, machine, max(smallest, rows)) if one_block else _prompts(problem, machine, smallest)
    )
    if config.num_splits > 1:
        merged = problem.num_tokens * problem.num_query_heads
        heads = 1 if merged <= 16 * machine.multiprocessors else _power_of_two(problem.gqa_ratio)
        config = replace(config, heads_per_reduction=heads, overlap=machine.capability >= 90)
    return _fitted(config, problem, machine)


def _decode(problem: Problem, machine: Machine, block_m: int) -> LaunchConfig:
    """One Q-block per sequence: memory-bound, so what counts is bytes in flight on every multiprocessor.

    Measured on an H200 (docs/measured.md): few programs want deep pipelines, many want small ones.
    """
    programs = problem.num_seqs * problem.num_kv_heads
    splits = 1
    if programs < machine.multiprocessors * 7 // 8:
        splits = min(MAX_SPLITS, 2 * machine.multiprocessors // max(programs, 1))
    visible = problem.visible_keys
    if visible <= 1024 and programs <= machine.multiprocessors // 2:
        splits = max(1, min(splits, -(-visible // 64)))
        return LaunchConfig(
            block_m=block_m, tile=32, num_splits=splits, min_tiles=2, num_warps=2, num_stages=4
        )
    splits = max(1, min(splits, visible // 256))
    running = programs * splits
    if running > 5 * machine.multiprocessors // 2:
        num_warps, num_stages = 2, 2
    else:
        num_warps, num_stages = 4, 4 if running <= machine.multiprocessors and visible > 1024 else 3
    return LaunchConfig(
        block_m=block_m, tile=64, num_splits=splits, num_warps=num_warps, num_stages=num_stages
    )


def _prompts(problem: Problem, machine: Machine, smallest: int) -> LaunchConfig:
    """Several Q-blocks per sequence: large ones where they fill the machine twice, else splits for the
    long sequences."""
    programs = problem.num_tokens * problem.gqa_ratio // 128 * problem.num_kv_heads
    average = problem.num_tokens // max(problem.num_seqs, 1)
    if programs >= 2 * machine.multiprocessors and average >= 256:
        return LaunchConfig(block_m=max(128, smallest), tile=32, num_warps=8, num_stages=3, maxnreg=128)
    block_m = max(64, smallest)
    blocks = q_block_bound(problem.num_tokens, problem.num_seqs, block_m // problem.gqa_ratio)
    programs = blocks * problem.num_kv_heads
    splits = 1
    if programs < 4 * machine.multiprocessors:
        splits = max(1, min(8, problem.visible_keys // 512))
    return LaunchConfig(
        block_m=block_m,
        tile=64,
        num_splits=splits,
        split_prompts=programs < machine.multiprocessors,
        num_warps=4,
        num_stages=3,
    )


def _fitted(config: LaunchConfig, problem: Problem, machine: Machine) -> LaunchConfig:
    """Smaller where head_dim, the element size or the backend ask for it."""
    if machine.backend == "interpreter":
        return replace(config, tile=min(config.tile, 32))
    row_bytes = _power_of_two(problem.head_dim) * problem.element_size
    if problem.element_size == 4:
        # products of float32 are unrolled multiply-adds: large blocks take minutes to compile
        block_m = max(16, _power_of_two(problem.gqa_ratio), min(config.block_m, 32))
        warps = 8 if block_m >= 32 else 4
        config = replace(config, block_m=block_m, tile=16, num_warps=warps, num_stages=1, maxnreg=None)
    elif row_bytes > 256:
        warps = 8 if config.block_m >= 64 else config.num_warps
        config = replace(config, tile=32, num_warps=warps, num_stages=2, maxnreg=None)
    if machine.backend == "hip":
        # 64 KiB of LDS hold the keys and values of all stages
        stages = 1 if config.num_stages * 2 * config.tile * row_bytes > 60 << 10 else config.num_stages
        config = replace(config, num_stages=stages, maxnreg=None)
    return config


def _power_of_two(rows: int) -> int:
    """The next one up."""
    return 1 << (rows - 1).bit_length()


def q_block_bound(num_tokens: int, num_seqs: int, block_q: int) -> int:
    """An upper bound on the Q-blocks of a batch, from capacities alone (a static launch grid)."""
    return num_tokens // block_q + num_seqs
