"""Our kernels' machine code on both targets: the oracle's verdict, no findings, and coverage."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from pagegate.amdgcn import LaunchError, emulated, merged
from pagegate.cases.registry import Kernel

from .attention import check_on

CASES = {
    "decode": "q1s33_q1s100 h4/2 d64 fp16",
    "split": "q1s700 h2/1 d128 profile=needle",
    "prefill": "q70_q9s90 h4/2 d64",
    "mixed": "q1s90_q18s50_q1s3_q5 h6/2 d64 fp16",
    "window_sinks": "q1s60_q20s60 h8/1 d64 window=33 sinks",
    "window_forbidden": "q24s60 h2/1 d64 window=9 profile=forbidden",
    "soft_cap_alibi": "q6s60 h4/2 d64 softcap=5 alibi",
    "head_dim_80": "q3s35_q1s70 h2/1 d80 p64 dead=large",
    "head_dim_256": "q3s70 h2/1 d256 fp16",
    "float8": "q1s40_q9s40 h4/2 d64 kv=fp8",
    "float32": "q7s50 h2/1 d64 fp32",
    "unwritten_tails": "q1s33_q1s90 h2/1 d64 slack=3 dead=inf",
    "far": "q3s50 h2/1 d64 far_pages",
}


@pytest.mark.parametrize("kernel", ["naive", "unified"])
@pytest.mark.parametrize("line", list(CASES.values()), ids=list(CASES))
def test_oracle(target: str, kernel: str, line: str) -> None:
    result, session = check_on(target, kernel, line, relations=2)
    assert result.status == "PASSED", result.reason
    assert not session.report.findings, "\n".join(map(str, session.report.findings))


# contexts long enough for every loop, next to short ones
COVERING = {
    "naive": ["q1s90_q6s70 h4/2 d64 fp16", "q1s90_q6s70 h4/2 d64 fp16 window=20"],
    "unified": ["q1s700_q18s700 h4/2 d64 fp16", "q1s5_q18s300 h4/2 d64 fp16", "q1s200_q1s3 h4/2 d64 fp16"],
}


@pytest.mark.parametrize("kernel", list(COVERING))
def test_coverage(target: str, kernel: str) -> None:
    reports = [check_on(target, kernel, line)[1].report for line in COVERING[kernel]]
    best = max(merged(reports).coverage.values(), key=lambda entry: entry.share)
    assert best.share >= 0.9, "never executed:\n" + "\n".join(map(str, best.missed[:40]))


@pytest.mark.usefixtures("compiled")
def test_the_targets_differ_in_float8() -> None:
    """A launch that takes OCP bytes for the target's own format is right on gfx950 only."""
    from paged_kernels import paged_attention

    own = {"gfx942": torch.float8_e4m3fnuz, "gfx950": torch.float8_e4m3fn}
    verdicts = {}
    for target, dtype in own.items():

        def call(q: Any, k_cache: Any, v_cache: Any, dtype: torch.dtype = dtype, **arguments: Any) -> Any:
            return paged_attention(q, k_cache.view(dtype), v_cache.view(dtype), **arguments)

        kernel = Kernel("bytes", "assumes the target's own float8", lambda call=call: call)
        verdicts[target] = check_on(target, kernel, "q1s40_q9s40 h4/2 d64 kv=fp8")[0].status
    assert verdicts["gfx950"] == "PASSED"
    assert verdicts["gfx942"] in ("OUT_OF_BUDGET", "NON_FINITE")


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
