"""A copy of our kernels that does extra work on demand: what a planted slowdown is made of."""

import importlib
import shutil
import sys
import tempfile
from functools import cache
from pathlib import Path

import torch

from pagegate.cases.registry import Kernel, kernels_root

# every program works through a chain of dependent products; `extra` stands behind the query starts
_BEFORE = "    num_query_heads = num_kv_heads * GQA_RATIO\n"
_WORK = """    extra = tl.load(cu_seqlens_q_ptr + num_seqs + 1)
    burnt = softmax_scale
    for _ in range(extra):
        burnt = burnt * 0.999 + 0.001
    # never so, which the compiler cannot know
    high = tl.where(burnt < -1.0, low, high)
"""


@cache
def _copy():
    """The patched package, under another name."""
    folder = Path(tempfile.mkdtemp(prefix="pagegate-slowed-"))
    package = folder / "slowed_paged_kernels"
    shutil.copytree(kernels_root() / "paged_kernels", package, ignore=shutil.ignore_patterns("__pycache__"))
    text = (package / "unified.py").read_text()
    assert text.count(_BEFORE) == 1, "the place for the extra work moved; adapt _BEFORE"
    (package / "unified.py").write_text(text.replace(_BEFORE, _WORK + _BEFORE))
    sys.path.insert(0, str(folder))
    return importlib.import_module("slowed_paged_kernels")


def slowed(extra):
    """`unified` with `extra` more steps of work in each program; 0 is the kernel to compare with."""

    def prepare(inputs):
        starts = inputs.cu_seqlens_q
        longer = torch.cat([starts, torch.tensor([extra], dtype=starts.dtype, device=starts.device)])
        arguments = inputs.keywords() | {"cu_seqlens_q": longer[:-1]}
        config = _copy().plan(
            inputs.q,
            inputs.k_cache,
            inputs.block_table,
            inputs.max_query_len,
            arguments.get("sliding_window"),
        )

        def call(out, return_lse=False):
            return _copy().paged_attention(**arguments, config=config, out=out, return_lse=return_lse)

        return call

    return Kernel(f"slowed_{extra}", "", lambda: _copy().paged_attention, prepare=prepare)
