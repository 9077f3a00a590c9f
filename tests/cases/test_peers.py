"""Peers go through the same checks as our own kernels."""

import pytest
import torch

from pagegate.cases.registry import find_kernel
from pagegate.cases.workloads import find_workloads
from pagegate.oracle.checking import check


@pytest.mark.parametrize("row", find_workloads("small"), ids=lambda row: row.name)
def test_torch_sdpa(row):
    kernel = find_kernel("torch_sdpa")
    result = check(kernel, row.case, torch.device("cpu"))
    assert result.status in ("PASSED", "UNSUPPORTED"), result.reason
    assert (result.status == "UNSUPPORTED") == (kernel.unsupported_reason(row.spec) is not None)


def test_what_torch_sdpa_does_not_take():
    kernel = find_kernel("torch_sdpa")
    reasons = [kernel.unsupported_reason(row.spec) for row in find_workloads("small")]
    assert sum(reason is not None for reason in reasons) == 9
