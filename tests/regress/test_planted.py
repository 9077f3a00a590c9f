"""The kernels with planted slowdowns compute what ours do, bit for bit, and do work in the inner loop."""

from importlib import util
from pathlib import Path

import torch

from pagegate.cases.content import make_content
from pagegate.cases.inputs import Placement, place
from pagegate.cases.notation import parse_case
from pagegate.cases.registry import find_kernel

HERE = Path(__file__).parents[1] / "gpu" / "planted.py"


def test_planted_work_changes_no_bit(tmp_path):
    spec = util.spec_from_file_location("planted", HERE)
    planted = util.module_from_spec(spec)
    spec.loader.exec_module(planted)
    kernel = planted.planted_kernel(tmp_path, 3)
    source = (tmp_path / "kernels" / "planted_3_kernels" / "unified.py").read_text()
    assert source.count("burnt") == 4
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    # a prompt, whose Q-blocks are large, and decodes
    for line in ("q80 h2/1 d32", "q1s33_q1s7 h4/2 d32"):
        inputs = place(make_content(parse_case(line), device), Placement(dead="large"))
        outs = [torch.zeros_like(inputs.q) for _ in range(2)]
        for one, out in zip((kernel, find_kernel("unified")), outs, strict=True):
            one.call(inputs, out=out)
        assert outs[0].any()
        assert torch.equal(*outs)
    copy = planted.copy_kernels(tmp_path / "plain", 0) / "kernels" / "paged_kernels" / "unified.py"
    assert "burnt" not in copy.read_text()
