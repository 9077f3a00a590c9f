"""Copies of kernels/ that do extra work in the inner loop of large Q-blocks: slowdowns planted in prompts alone.

Each step is one multiply-add per tile and lane. It depends on nothing that the loop waits for, and decides nothing: the
copies compute the same bits.
"""

import importlib
import re
import shutil
import sys
from pathlib import Path

from pagegate.cases.registry import Kernel, kernels_root

LARGE_BLOCK = 64
_PLACE = "        running_max = new_max\n"
_WORK = """        if q.shape[0] >= {block}:
            burnt = tile * scale
            for _ in tl.static_range({steps}):
                burnt = burnt * scale + 0.5
            # never so: which the compiler cannot know
            total = tl.where(burnt == -1.0, 0.0, total)
"""
# rows of the pr tier in which some sequence has so large a Q-block
AFFECTED = ("ragged", "pre_b1_q512", "pre_b1_q2048", "pre_b8_q1024", "mix_60dec_q1024")


def copy_kernels(folder, steps, package="paged_kernels"):
    """kernels/ with `steps` of extra work per tile, in folder/kernels; 0 copies it as it is."""
    target = Path(folder) / "kernels" / package
    shutil.copytree(kernels_root() / "paged_kernels", target, ignore=shutil.ignore_patterns("__pycache__"))
    if steps:
        source = target / "unified.py"
        text = source.read_text()
        start = text.index("def attend(")
        assert text.count(_PLACE, start, text.index("\n@triton.jit", start)) == 1, (
            "the place moved; adapt _PLACE"
        )
        place = text.index(_PLACE, start) + len(_PLACE)
        work = _WORK.format(block=LARGE_BLOCK, steps=steps)
        source.write_text(text[:place] + work + text[place:])
    return Path(folder)


def planted_kernel(folder, steps):
    """The copy as a kernel of its own, beside the real one in one process."""
    package = f"planted_{steps}_kernels"
    copy_kernels(folder, steps, package)
    sys.path.insert(0, str(Path(folder) / "kernels"))
    module = importlib.import_module(package)
    assert (
        re.search(rf"static_range\({steps}\)", Path(module.__file__).with_name("unified.py").read_text())
        or not steps
    )

    def prepare(inputs):
        arguments = inputs.keywords()
        config = module.plan(
            inputs.q,
            inputs.k_cache,
            inputs.block_table,
            inputs.max_query_len,
            arguments.get("sliding_window"),
        )

        def call(out, return_lse=False):
            return module.paged_attention(**arguments, config=config, out=out, return_lse=return_lse)

        return call

    return Kernel(f"planted_{steps}", "", lambda: module.paged_attention, prepare=prepare)
