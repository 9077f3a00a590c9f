"""The rules that choose a launch configuration.

Everything is decided from shapes and the machine, never from device memory, so that a captured graph
stays right when lengths and tables change in place.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from .launch import MAX_SPLITS, LaunchConfig, Machine, Problem, Rung, q_block_bound


@lru_cache(maxsize=4096)
def choose_config(problem: Problem, machine: Machine, rung: Rung = "unified") -> LaunchConfig:
    """The launch configuration for a problem on a machine; pure. rung: a step of the ladder."""
    if rung == "naive":
        return LaunchConfig(rung, tile=32, num_warps=4, num_stages=2)
    smallest = max(16, _power_of_two(problem.gqa_ratio))
    rows = _power_of_two(max(problem.max_query_len, 1) * problem.gqa_ratio)
    one_block = rows <= max(32, smallest)
    if rung == "unified":
        by_rows = _decode(problem, machine, max(smallest, rows)) if one_block else _prompts(problem, machine)
        return _fitted(_reduced(by_rows, problem, machine), problem, machine)
    return _fitted(_of_ladder(rung, problem, smallest, one_block), problem, machine)


def _of_ladder(rung: Rung, problem: Problem, smallest: int, one_block: bool) -> LaunchConfig:
    """The steps between `naive` and `unified`, after arXiv 2511.11581, sections 4.3 to 4.5: Q-blocks; the
    keys of a decode step in sixteen parallel segments; tiles whose size is free of the page size."""
    splits = MAX_SPLITS if one_block and rung != "qblock" else 1
    splits = max(1, min(splits, problem.visible_keys // 16))
    if rung != "tiled":
        return LaunchConfig(rung, block_m=smallest, tile=16, num_splits=splits, min_tiles=1)
    block_m = smallest if one_block else max(64, smallest)
    return LaunchConfig(rung, block_m=block_m, tile=64, num_splits=splits, min_tiles=1, num_stages=3)


def _reduced(config: LaunchConfig, problem: Problem, machine: Machine) -> LaunchConfig:
    """How partial results are merged: one head per program while there are few of them."""
    if config.num_splits == 1:
        return config
    merged = problem.num_tokens * problem.num_query_heads
    heads = 1 if merged <= 16 * machine.multiprocessors else _power_of_two(problem.gqa_ratio)
    return replace(config, heads_per_reduction=heads, overlap=machine.capability >= 90)


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


def _prompts(problem: Problem, machine: Machine) -> LaunchConfig:
    """Several Q-blocks per sequence: large ones where they fill the machine twice, else splits for the
    long sequences."""
    smallest = max(16, _power_of_two(problem.gqa_ratio))
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
