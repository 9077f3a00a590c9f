"""The kernel that plants slowdowns computes what ours does, whatever extra work it does."""

from importlib import util
from pathlib import Path

import pytest
import torch

from pagegate.cases.notation import parse_case
from pagegate.oracle.checking import check

HERE = Path(__file__).parents[1] / "gpu" / "slowed_kernels.py"


@pytest.mark.parametrize("extra", [0, 3])
def test_extra_work_changes_no_value(extra):
    spec = util.spec_from_file_location("slowed_kernels", HERE)
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    for line in ("q1s33_q1s7 h4/2 d32", "q1s700 h2/1 d32"):
        result = check(module.slowed(extra), parse_case(line), device, max_relations=0)
        assert result.status == "PASSED", result.reason
