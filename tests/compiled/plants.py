"""Slow kernels, planted: patches to copies of the kernels, and neutral edits that must change nothing.

The tests fix the launch configuration, so that no tuning of the planner moves what a plant does.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pagegate.cases.registry import kernels_root
from pagegate.compiled.figures import Compiled


@dataclass(frozen=True)
class Plant:
    """A slowdown. edits: (file, pattern, replacement), each of which must apply exactly once (`everywhere`:
    at least once). workloads: where it shows; targets: where `compiled` must say one of `rules`; neither:
    only time shows it. timed: where it is timed, and it says whatever it says."""

    name: str
    stands_for: str
    edits: tuple[tuple[str, str, str], ...]
    workloads: str = ""
    targets: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    everywhere: bool = False
    timed: str = ""


_TILE = r"TILE=config\.tile,"

PLANTS = (
    Plant(
        "doubled_tile",
        "aiter#4137, #5063: a tile that spills",
        (("attention.py", _TILE, "TILE=2 * config.tile,"),),
        workloads="dec_b1_c512",
        targets=("sm_90",),
        rules=("spills",),
        timed="dec_b16_c4096 or pre_b1_q2048",
    ),
    Plant(
        "runtime_inner_stride",
        "vllm#18161: the inner stride is no longer a constant",
        (
            ("unified.py", r"dims = tl\.arange\(0, q\.shape\[1\]\)",
             "dims = tl.arange(0, q.shape[1]) * tl.where(end > (1 << 30), 2, 1)"),
        ),
        workloads="dec_b1_c512",
        targets=("sm_90",),
        rules=("loads",),
        timed="dec_b16_c4096 or pre_b1_q2048",
    ),
    Plant(
        "constexpr_tokens",
        "vllm#45631, triton#8273: a variant per number of tokens",
        (
            ("unified.py", r'"num_tokens",\s+(?="num_kv_heads")', ""),
            ("unified.py", r"\n    num_tokens,\n    num_kv_heads,", "\n    num_tokens: tl.constexpr,\n    num_kv_heads,"),
        ),
        workloads="dec_b1_c512 or dec_b16_c512",
        targets=("sm_90",),
        rules=("variants",),
    ),
    Plant(
        "lds_over_limit",
        "a tile for 160 KiB of LDS, not for 64",
        (
            ("attention.py", _TILE, "TILE=4 * config.tile,"),
            ("attention.py", r"num_stages=config\.num_stages", "num_stages=3"),
        ),
        workloads="dec_b1_c512",
        targets=("gfx942",),
        rules=("launchable",),
    ),
    Plant(
        "masks_everywhere",
        "sglang#34462: masks in tiles that need none",
        (("unified.py", r"MASKED=False", "MASKED=True"),),
        workloads="dec_b1_c512",
        targets=("gfx942",),
        rules=("masks",),
        timed="dec_b16_c4096 or pre_b1_q2048",
    ),
)  # fmt: skip

# for the table of measured slowdowns, beside some of the above: what `compiled` says of these is no promise
TIMED = (
    Plant(
        "one_stage",
        "loads no longer run ahead",
        (("attention.py", r"config\.num_stages", "1"),),
        everywhere=True,
        timed="dec_b16_c4096 or pre_b1_q2048 or gptoss_b16_c4096",
    ),
    Plant(
        "eight_warps",
        "triton#11373: the best number of warps is another",
        (("attention.py", r"num_warps=config\.num_warps", "num_warps=8"),),
        timed="dec_b16_c4096 or dec_b64_c512 or gptoss_b16_c4096",
    ),
    Plant(
        "halved_tile",
        "smaller steps",
        (("attention.py", _TILE, "TILE=max(16, config.tile // 2),"),),
        timed="dec_b16_c4096 or pre_b1_q2048 or gemma_b16_c4096",
    ),
    Plant(
        "float32_values",
        "products of weights and values in TF32",
        (
            ("unified.py", r"acc = matmul\(weights\.to\(q\.dtype\), v, acc \* shrink\[:, None\]\)",
             'acc = tl.dot(weights, v.to(tl.float32), acc * shrink[:, None], input_precision="tf32")'),
        ),
        timed="dec_b16_c4096 or pre_b1_q2048",
    ),
    Plant(
        "exponentials_twice",
        "more exponentials per key",
        (
            ("unified.py", r"weights = tl\.exp2\(products \* \(scale \* LOG2E\) - subtrahend\[:, None\]\)",
             "half = (products * (scale * LOG2E) - subtrahend[:, None]) * 0.5\n"
             "            weights = tl.exp2(half) * tl.exp2(half - 0.0 * products)"),
        ),
        timed="dec_b16_c4096 or pre_b1_q2048",
    ),
    Plant(
        "late_page_ids",
        "page ids are loaded in the step that needs them",
        (
            ("unified.py", r" +pages = load_page_ids\(table_ptr, \(tile \+ 1\) \* TILE, begin, end, PAGE_SIZE, TILE\)\n", ""),
            ("unified.py", r"(        )(k_slots = slot_offsets\(pages,)",
             r"\1pages = load_page_ids(table_ptr, tile * TILE, begin, end, PAGE_SIZE, TILE)\n\1\2"),
        ),
        timed="dec_b16_c4096 or dec_b1_c16384 or pre_b1_q2048",
    ),
    Plant(
        "strides_apart",
        "addresses of keys and values are computed twice",
        (("attention.py", r"SAME_STRIDES=common", "SAME_STRIDES=common is None and common"),),
        timed="dec_b64_c512 or pre_b1_q2048",
    ),
    Plant(
        "late_reduction",
        "the reduction is launched when the splits have ended",
        (("attention.py", r"config\.overlap", "False"),),
        everywhere=True,
        timed="dec_b1_c512 or dec_b1_c4096",
    ),
    Plant(
        "few_splits",
        "vllm#32671: too few splits to fill the GPU",
        (("attention.py", r"config\.num_splits", "max(1, config.num_splits // 4)"),),
        timed="dec_b1_c16384 or dec_b4_c4096",
    ),
    Plant(
        "window_from_the_start",
        "sglang#34462: tiles before the window are walked",
        (("unified.py", r"first_tile = begin // TILE", "first_tile = begin * 0"),),
        timed="gptoss_b16_c4096 or gemma_b16_c4096",
    ),
)  # fmt: skip

UNPLANTED = Plant("unplanted", "", ())

NEUTRAL = (
    Plant("comment", "", (("unified.py", r"\A", "# a comment\n\n\n"),)),
    Plant("renamed_variable", "", (("unified.py", r"\brunning_max\b", "largest_so_far"),), everywhere=True),
    Plant(
        "renamed_kernel",
        "",
        (
            ("splits.py", r"\breduce_splits_kernel\b", "merge_splits_kernel"),
            ("attention.py", r"\breduce_splits_kernel\b", "merge_splits_kernel"),
        ),
        everywhere=True,
    ),
)


def copy_with(plant: Plant, package: Path) -> None:
    """Copy our kernels to `package` with the plant in them."""
    shutil.copytree(kernels_root() / "paged_kernels", package, ignore=shutil.ignore_patterns("__pycache__"))
    for file, pattern, replacement in plant.edits:
        path = package / file
        text, count = re.subn(pattern, replacement, path.read_text())
        right = count >= 1 if plant.everywhere else count == 1
        assert right, f"{plant.name}: {file} has {count} times what is to be replaced; adapt the plant"
        path.write_text(text)


_PLUGIN = """
import importlib, sys

from pagegate.cases.registry import register

sys.path.insert(0, {folder!r})


def add(name):
    package = importlib.import_module(name + "_kernels")
    config = package.LaunchConfig(**{config!r}) if {config!r} else None

    def kernel(q, k_cache, v_cache, **arguments):
        return package.paged_attention(q, k_cache, v_cache, config=config, **arguments)

    register(name)(kernel)


for name in {names!r}:
    add(name)
"""


def plugin_of(plants: Sequence[Plant], folder: Path, config: Mapping[str, Any] | None = None) -> Path:
    """A plugin that registers each plant's kernels, and ours as they are (`unplanted`), by name. config:
    LaunchConfig's fields, for a launch that no tuning changes; else what the planner chooses."""
    for plant in (UNPLANTED, *plants):
        copy_with(plant, folder / f"{plant.name}_kernels")
    path = folder / "planted.py"
    names = [plant.name for plant in (UNPLANTED, *plants)]
    path.write_text(_PLUGIN.format(folder=str(folder), names=names, config=config))
    return path


def side_of(compiled: Compiled, name: str, workloads: Collection[str]) -> Compiled:
    """What one plant's kernels launch, under a name that all sides share."""
    launches = {f"{row} kernel": compiled.launches[f"{row} {name}"] for row in workloads}
    return replace(compiled, launches=launches)
