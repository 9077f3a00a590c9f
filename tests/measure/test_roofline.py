"""Bytes and FLOPs by hand, and which of the two bounds a workload."""

import pytest

from pagegate.cases.notation import parse_spec
from pagegate.cases.workloads import find_workloads
from pagegate.measure.roofline import Ceilings, bound_by, cost, floor_s

H200 = Ceilings(4.3e12, 790e12)


@pytest.mark.parametrize(
    ("line", "bytes_", "flops"),
    [
        # K and V of 1,024 keys on 8 heads of 128 in bf16, one query in and out
        ("q1s1k h32/8 d128", 2 * 1024 * 8 * 128 * 2 + 2 * 32 * 128 * 2, 4 * 1024 * 32 * 128),
        ("q1s1k h32/8 d128 kv=fp8", 2 * 1024 * 8 * 128 + 2 * 32 * 128 * 2, 4 * 1024 * 32 * 128),
        # a window keeps 100 keys
        ("q1s1k h32/8 d128 window=100", 2 * 100 * 8 * 128 * 2 + 2 * 32 * 128 * 2, 4 * 100 * 32 * 128),
        # a causal triangle of 4 x 4, and the whole square
        ("q4 h1/1 d32", 2 * 4 * 32 * 2 + 2 * 4 * 32 * 2, 4 * 10 * 32),
        ("q4 h1/1 d32 noncausal", 2 * 4 * 32 * 2 + 2 * 4 * 32 * 2, 4 * 16 * 32),
        # 32 of 40 keys are shared, page by page: 32 + 3 x 8
        ("3q1s40 h1/1 d32 prefix=40", 2 * (32 + 3 * 8) * 32 * 2 + 2 * 3 * 32 * 2, 4 * 120 * 32),
        ("q3s0 h1/1 d32", 2 * 3 * 32 * 2, 0),
    ],
)
def test_costs(line, bytes_, flops):
    found = cost(parse_spec(line))
    assert (found.bytes, found.flops) == (bytes_, flops)


def test_decode_is_memory_bound_and_prefill_is_not():
    bounds = {row.name: bound_by(row.spec, H200) for row in find_workloads("pr")}
    assert bounds["dec_b64_c4096"] == "memory"
    assert bounds["pre_b1_q2048"] == "compute"
    specs = {row.name: row.spec for row in find_workloads("pr")}
    assert floor_s(specs["dec_b64_c4096"], H200) == pytest.approx(250e-6, rel=0.01)
    assert floor_s(specs["pre_b1_q2048"], H200) == pytest.approx(43.5e-6, rel=0.01)
