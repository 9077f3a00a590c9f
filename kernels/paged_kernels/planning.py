"""From a problem and a machine's plan (plans/*.json) to a launch configuration.

Everything is decided from shapes and the machine, never from device memory, so that a captured graph
stays right when lengths and tables change in place.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from .launch import LaunchConfig, Machine, Problem, Rung, q_block_bound
from .plans import Leaf, decide, features_of, plan_for

SEGMENTS = 16  # of the ladder's parallel softmax, arXiv 2511.11581


@lru_cache(maxsize=4096)
def choose_config(problem: Problem, machine: Machine, rung: Rung = "unified") -> LaunchConfig:
    """The launch configuration for a problem on a machine; pure. rung: a step of the ladder."""
    if rung == "naive":
        return LaunchConfig(rung, tile=32, num_warps=4, num_stages=2)
    if rung == "unified":
        decode = _one_block(problem)
        leaf, _ = decide_path(problem, machine)
        by_plan = _decode(leaf, problem, machine) if decode else _prompts(leaf, problem, machine)
        return _fitted(_reduced(by_plan, problem, machine), problem, machine)
    return _fitted(_of_ladder(rung, problem), problem, machine)


def decide_path(problem: Problem, machine: Machine) -> tuple[Leaf, tuple[str, ...]]:
    """The leaf that the machine's plan has for a problem, and the tests that led there."""
    plan, decode = plan_for(machine), _one_block(problem)
    return decide(plan.decode if decode else plan.prompts, features_of(problem, machine, decode))


def _smallest_block(problem: Problem) -> int:
    return max(16, _power_of_two(problem.gqa_ratio))


def _decode_rows(problem: Problem) -> int:
    return _power_of_two(max(problem.max_query_len, 1) * problem.gqa_ratio)


def _one_block(problem: Problem) -> bool:
    """Whether a sequence's queries fit one small Q-block: decode, speculative or not."""
    return _decode_rows(problem) <= max(32, _smallest_block(problem))


def _of_ladder(rung: Rung, problem: Problem) -> LaunchConfig:
    """The steps between `naive` and `unified`, after arXiv 2511.11581, sections 4.3 to 4.5: Q-blocks; the
    keys of a decode step in sixteen parallel segments; tiles whose size is free of the page size."""
    one_block, smallest = _one_block(problem), _smallest_block(problem)
    splits = SEGMENTS if one_block and rung != "qblock" else 1
    splits = max(1, min(splits, problem.visible_keys // 16))
    if rung != "tiled":
        return LaunchConfig(rung, block_m=smallest, tile=16, num_splits=splits, min_tiles=1, lane_sums=False)
    block_m = smallest if one_block else max(64, smallest)
    return LaunchConfig(
        rung, block_m=block_m, tile=64, num_splits=splits, min_tiles=1, num_stages=3, lane_sums=False
    )


def _of_leaf(leaf: Leaf, block_m: int, num_splits: int, split_prompts: bool = False) -> LaunchConfig:
    return LaunchConfig(
        block_m=block_m,
        tile=leaf.tile,
        num_splits=num_splits,
        split_prompts=split_prompts,
        min_tiles=leaf.min_tiles,
        num_warps=leaf.num_warps,
        num_stages=leaf.num_stages,
        maxnreg=leaf.maxnreg,
        lane_sums=leaf.lane_sums,
    )


def _decode(leaf: Leaf, problem: Problem, machine: Machine) -> LaunchConfig:
    """One Q-block per sequence: memory-bound, so what counts is bytes in flight on every multiprocessor."""
    programs = max(problem.num_seqs * problem.num_kv_heads, 1)
    wanted = int(leaf.fill * machine.multiprocessors) // programs
    splits = max(1, min(leaf.max_splits, wanted, problem.visible_keys // leaf.keys_per_split))
    return _of_leaf(leaf, max(_smallest_block(problem), _decode_rows(problem)), splits)


def _prompts(leaf: Leaf, problem: Problem, machine: Machine) -> LaunchConfig:
    """Several Q-blocks per sequence: large ones where they fill the machine, else splits for the sequences
    of few rows, and for all of them where Q-blocks are few."""
    block_m = max(leaf.block_m, _smallest_block(problem))
    blocks = q_block_bound(problem.num_tokens, problem.num_seqs, block_m // problem.gqa_ratio)
    programs = blocks * problem.num_kv_heads
    splits = 1
    if programs < leaf.fill * machine.multiprocessors:
        splits = max(1, min(leaf.max_splits, problem.visible_keys // leaf.keys_per_split))
    return _of_leaf(leaf, block_m, splits, split_prompts=programs < machine.multiprocessors)


def _reduced(config: LaunchConfig, problem: Problem, machine: Machine) -> LaunchConfig:
    """How partial results are merged: one head per program while there are few of them."""
    if config.num_splits == 1:
        return config
    merged = problem.num_tokens * problem.num_query_heads
    heads = 1 if merged <= 16 * machine.multiprocessors else _power_of_two(problem.gqa_ratio)
    warps = 4 if merged <= 64 else 1
    overlap = machine.capability >= 90
    return replace(config, heads_per_reduction=heads, reduction_warps=warps, overlap=overlap)


def _fitted(config: LaunchConfig, problem: Problem, machine: Machine) -> LaunchConfig:
    """Smaller where the element size or the backend ask for it."""
    if machine.backend == "interpreter":
        return replace(config, tile=min(config.tile, 32))
    row_bytes = _power_of_two(problem.head_dim) * problem.element_size
    if problem.element_size == 4:
        # products of float32 are unrolled multiply-adds: large blocks take minutes to compile
        block_m = max(_smallest_block(problem), min(config.block_m, 32))
        warps = 8 if block_m >= 32 else 4
        config = replace(config, block_m=block_m, tile=16, num_warps=warps, num_stages=1, maxnreg=None)
    elif row_bytes > 256 and config.tile > 32:
        warps = 8 if config.block_m >= 64 else config.num_warps
        config = replace(config, tile=32, num_warps=warps, num_stages=min(config.num_stages, 2))
    if machine.backend == "hip":
        # 64 KiB of LDS hold the keys and values of all stages
        stages = 1 if config.num_stages * 2 * config.tile * row_bytes > 60 << 10 else config.num_stages
        config = replace(config, num_stages=stages, maxnreg=None)
    return config


def _power_of_two(rows: int) -> int:
    """The next one up."""
    return 1 << (rows - 1).bit_length()
