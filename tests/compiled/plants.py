"""Slow kernels, planted: patches to copies of the kernels, and neutral edits that must change nothing."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pagegate.cases.registry import kernels_root


@dataclass(frozen=True)
class Plant:
    """A slowdown. edits: (file, pattern, replacement), each of which must apply exactly once (`everywhere`:
    at least once). workloads: where it shows; targets: where `compiled` must say one of `rules`; neither:
    only time shows it."""

    name: str
    stands_for: str
    workloads: str
    edits: tuple[tuple[str, str, str], ...]
    targets: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    everywhere: bool = False


_TILE = r"TILE=config\.tile,"

PLANTS = (
    Plant(
        "doubled_tile",
        "aiter#4137, #5063: a tile that spills",
        "pre_b1_q2048",
        (("attention.py", _TILE, "TILE=2 * config.tile,"),),
        ("sm_90",),
        ("spills",),
    ),
    Plant(
        "runtime_inner_stride",
        "vllm#18161: the inner stride is no longer a constant",
        "dec_b16_c4096 or pre_b1_q2048",
        (
            ("unified.py", r"dims = tl\.arange\(0, q\.shape\[1\]\)",
             "dims = tl.arange(0, q.shape[1]) * tl.where(end > (1 << 30), 2, 1)"),
        ),
        ("sm_90",),
        ("loads",),
    ),
    Plant(
        "constexpr_tokens",
        "vllm#45631, triton#8273: a variant per number of tokens",
        "dec_b16_c4096 or spec_b16_q4_c4096 or pre_b1_q2048 or pre_b8_q1024",
        (
            ("unified.py", r'"num_tokens",\s+(?="num_kv_heads")', ""),
            ("unified.py", r"\n    num_tokens,\n    num_kv_heads,", "\n    num_tokens: tl.constexpr,\n    num_kv_heads,"),
        ),
        ("sm_90",),
        ("variants",),
    ),
    Plant(
        "lds_over_limit",
        "a tile that fits into 160 KiB of LDS, not into 64",
        "pre_b1_q2048",
        (
            ("attention.py", _TILE, "TILE=128,"),
            ("attention.py", r"num_stages=config\.num_stages", "num_stages=3"),
        ),
        ("gfx942",),
        ("launchable",),
    ),
    Plant(
        "masks_everywhere",
        "sglang#34462: masks in tiles that need none",
        "pre_b1_q2048",
        (("unified.py", r"MASKED=False", "MASKED=True"),),
        ("gfx942",),
        ("masks",),
    ),
)  # fmt: skip

# for the table of measured slowdowns: what `compiled` says of these is no promise
TIMED = (
    Plant(
        "one_stage",
        "loads no longer run ahead",
        "dec_b16_c4096 or pre_b1_q2048 or gptoss_b16_c4096",
        (("attention.py", r"num_stages=config\.num_stages", "num_stages=1"),),
    ),
    Plant(
        "eight_warps",
        "triton#11373: the best number of warps is another",
        "dec_b16_c4096 or pre_b1_q2048 or gptoss_b16_c4096",
        (("attention.py", r"num_warps=config\.num_warps", "num_warps=8"),),
    ),
    Plant(
        "halved_tile",
        "smaller steps",
        "dec_b16_c4096 or pre_b1_q2048 or gemma_b16_c4096",
        (("attention.py", _TILE, "TILE=max(16, config.tile // 2),"),),
    ),
    Plant(
        "float32_values",
        "products of weights and values in float32",
        "dec_b16_c4096 or pre_b1_q2048",
        (("unified.py", r"acc = matmul\(weights\.to\(q\.dtype\), v,", "acc = matmul(weights, v.to(tl.float32),"),),
    ),
    Plant(
        "exponentials_twice",
        "more exponentials per key",
        "dec_b16_c4096 or pre_b1_q2048",
        (
            ("unified.py", r"weights = tl\.exp2\(products \* \(scale \* LOG2E\) - subtrahend\[:, None\]\)",
             "half = (products * (scale * LOG2E) - subtrahend[:, None]) * 0.5\n"
             "            weights = tl.exp2(half) * tl.exp2(half - 0.0 * products)"),
        ),
    ),
    Plant(
        "few_splits",
        "vllm#32671: too few splits to fill the GPU",
        "dec_b1_c16384 or dec_b4_c4096",
        (("launch.py", r"min\(MAX_SPLITS, 2 \* machine\.multiprocessors // max\(programs, 1\)\)",
          "max(1, machine.multiprocessors // max(4 * programs, 1))"),),
    ),
    Plant(
        "window_from_the_start",
        "sglang#34462: tiles before the window are walked",
        "gptoss_b16_c4096 or gemma_b16_c4096",
        (("unified.py", r"first_tile = begin // TILE", "first_tile = begin * 0"),),
    ),
)  # fmt: skip

NEUTRAL = (
    Plant("comment", "", "", (("unified.py", r"\A", "# a comment\n\n\n"),)),
    Plant(
        "renamed_variable", "", "", (("unified.py", r"\brunning_max\b", "largest_so_far"),), everywhere=True
    ),
    Plant(
        "renamed_kernel",
        "",
        "",
        (
            ("splits.py", r"\breduce_splits_kernel\b", "merge_splits_kernel"),
            ("attention.py", r"\breduce_splits_kernel\b", "merge_splits_kernel"),
        ),
        everywhere=True,
    ),
)


def copy_with(plant: Plant, folder: Path, root: Path | None = None) -> Path:
    """A copy of the kernels (or of those in `root`) with the plant in it; returns the root to put on a path."""
    shutil.copytree(root or kernels_root(), folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file, pattern, replacement in plant.edits:
        path = folder / "paged_kernels" / file
        text, count = re.subn(pattern, replacement.replace("\\", r"\\"), path.read_text())
        right = count >= 1 if plant.everywhere else count == 1
        assert right, f"{plant.name}: {file} has {count} times what is to be replaced; adapt the plant"
        path.write_text(text)
    return folder


def find_plants(names: Sequence[str]) -> list[Plant]:
    known = {plant.name: plant for plant in (*PLANTS, *TIMED)}
    return [known[name] for name in names] if names else list(known.values())
