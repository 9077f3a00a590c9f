"""Launch parameters as data: one small decision tree per path and GPU, read once.

A tree is a leaf (an object, the fields of `Leaf`) or [test, yes, no], where a test reads
"feature <= number" and the features are the fields of `Features`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

from paged_kernels.launch import Machine, Problem


@dataclass(frozen=True)
class Features:
    """What a test may ask; all known on the host.

    programs_per_multiprocessor: one program per sequence and KV head in decode, per 128 rows of one in
    prompts. tokens_per_sequence: the average. row_bytes, cache_row_bytes: of one head's padded query
    and cached key. sliding_window: inf if there is none.
    """

    programs_per_multiprocessor: float
    tokens_per_sequence: float
    visible_keys: float
    row_bytes: float
    cache_row_bytes: float
    sliding_window: float


@dataclass(frozen=True)
class Leaf:
    """What a tree decides; tile, lane_sums and so on as in LaunchConfig.

    block_m: a decode's rows decide where they need more. fill: split keys until this many programs per
    multiprocessor run (decode), or with fewer Q-blocks than that (prompts); 0: never. keys_per_split: at
    least, by the longest sequence that fits. max_splits: at most.
    """

    tile: int
    num_warps: int
    num_stages: int
    block_m: int = 16
    maxnreg: int | None = None
    lane_sums: bool = True
    min_tiles: int = 4
    fill: float = 0.0
    keys_per_split: int = 256
    max_splits: int = 64


@dataclass(frozen=True)
class Node:
    """Which way a feature sends a problem."""

    feature: str
    at_most: float
    yes: Node | Leaf
    no: Node | Leaf


@dataclass(frozen=True)
class Plan:
    """The trees of one GPU. source: where they come from, and whether they were measured."""

    name: str
    source: str
    decode: Node | Leaf
    prompts: Node | Leaf


def read_plan(path: Path) -> Plan:
    """A plan file. Raises ValueError that names what is wrong with it."""
    try:
        data = json.loads(path.read_text())
        trees = {name: _tree(data[name]) for name in ("decode", "prompts")}
        return Plan(path.stem, str(data["source"]), **trees)
    except (KeyError, TypeError, ValueError) as error:
        required = "source, decode and prompts, a tree [test, yes, no] or a leaf"
        raise ValueError(f"{path}: required {required}, found {type(error).__name__}: {error}") from error


def _tree(data: Any) -> Node | Leaf:
    if isinstance(data, dict):
        return Leaf(**data)
    test, yes, no = data
    feature, relation, number = test.split()
    if feature not in {field.name for field in fields(Features)} or relation != "<=":
        raise ValueError(f"the test {test!r}")
    return Node(feature, float(number), _tree(yes), _tree(no))


@lru_cache
def plan_for(machine: Machine) -> Plan:
    """A machine's own plan, or the neutral one."""
    name = "default"
    if machine.backend == "hip":
        name = "gfx942"
    elif machine.backend == "cuda" and machine.capability == 90:
        name = "h200"
    return read_plan(Path(__file__).with_name(f"{name}.json"))


def features_of(problem: Problem, machine: Machine, decode: bool) -> Features:
    """What the trees ask of a problem."""
    padded = 1 << (problem.head_dim - 1).bit_length()
    blocks = problem.num_seqs if decode else problem.num_tokens * problem.gqa_ratio // 128
    return Features(
        programs_per_multiprocessor=blocks * problem.num_kv_heads / machine.multiprocessors,
        tokens_per_sequence=problem.num_tokens / max(problem.num_seqs, 1),
        visible_keys=problem.visible_keys,
        row_bytes=padded * problem.element_size,
        cache_row_bytes=padded * problem.cache_element_size,
        sliding_window=float("inf") if problem.sliding_window is None else problem.sliding_window,
    )


def decide(tree: Node | Leaf, features: Features) -> tuple[Leaf, tuple[str, ...]]:
    """The leaf for these features, and each test on the way with its outcome."""
    way: list[str] = []
    while isinstance(tree, Node):
        value = getattr(features, tree.feature)
        holds = value <= tree.at_most
        way.append(f"{tree.feature} = {value:.6g} {'<=' if holds else '>'} {tree.at_most:g}")
        tree = tree.yes if holds else tree.no
    return tree, tuple(way)
