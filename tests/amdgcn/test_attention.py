"""Our kernels' machine code: the oracle's verdict, no findings, and coverage."""

from __future__ import annotations

import pytest
import torch

from pagegate.amdgcn import LaunchError, Report
from pagegate.amdgcn.driver import emulated
from pagegate.cases.workloads import find_workloads
from pagegate.report.coverage import below

from .attention import check_on

CASES = {
    "split": "q1s700 h2/1 d128 profile=needle",
    "mixed": "q1s90_q18s50_q1s3_q5 h6/2 d64 fp16",
    "window_sinks": "q1s60_q20s60 h8/1 d64 window=33 sinks",
    "soft_cap_alibi": "q6s60 h4/2 d64 softcap=5 alibi",
    "head_dim_256": "q3s70 h2/1 d256 fp16",
    "unwritten_tails": "q1s33_q1s90 h2/1 d64 slack=3 dead=inf",
    "far": "q3s50 h2/1 d64 far_pages",
}


# each on one target, in turn: `pagegate check --target` runs a larger table on both
TURNS = [(("gfx942", "gfx950")[number % 2], name) for number, name in enumerate(CASES)]


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize(("target", "name"), TURNS, ids=[f"{target}-{name}" for target, name in TURNS])
def test_unified(target: str, name: str) -> None:
    result, session = check_on(target, "unified", CASES[name], relations=2)
    assert result.status == "PASSED", result.reason
    assert not session.report.findings, "\n".join(map(str, session.report.findings))


@pytest.mark.parametrize("name", ["mixed", "window_sinks"])
def test_naive(target: str, name: str) -> None:
    result, session = check_on(target, "naive", CASES[name], relations=1)
    assert result.status == "PASSED", result.reason
    assert not session.report.findings, "\n".join(map(str, session.report.findings))


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize(
    ("target", "kernel", "row"),
    [
        ("gfx942", "unified", "asm_mixed_split"),
        ("gfx950", "unified", "asm_window_sinks"),
        ("gfx942", "naive", "asm_dim80"),
    ],
)
def test_coverage(target: str, kernel: str, row: str) -> None:
    """A row of the table lets nearly every instruction of its kernels run."""
    (workload,) = find_workloads("asm", row)
    report = check_on(target, kernel, workload.case)[1].report
    assert below(report, 0.9) == []
    assert Report.from_json(report.to_json()).coverage == report.coverage


def test_processes_agree(target: str) -> None:
    """Workgroups shared out over processes give the same bits and the same coverage."""
    from .test_matrix import product_kernel

    results = []
    for processes in (1, 2):
        torch.manual_seed(0)
        a, b = torch.randn(32, 64).half(), torch.randn(64, 32).half()
        c = torch.full((32, 32), float("nan"))
        with emulated(target, processes) as session:
            product_kernel[(40,)](a, b, c, 32, 32, 64, 64, num_warps=1)
        results.append((c, session.report.instructions))
    assert torch.equal(results[0][0], results[1][0])
    assert results[0][1] == results[1][1]


def test_tensors_must_be_on_the_cpu(target: str) -> None:
    from .test_matrix import product_kernel

    a = torch.zeros(32, 32, device="meta", dtype=torch.float16)
    with emulated(target), pytest.raises((LaunchError, NotImplementedError, RuntimeError, ValueError)):
        product_kernel[(1,)](a, a, a, 32, 32, 32, 32)
