"""What only a GPU can show: bad kernels do not end a run, offsets past 2^31, graphs, compiled features."""

import json
from pathlib import Path

import pytest
import torch

from pagegate.cases.content import make_content
from pagegate.cases.draws import Draws
from pagegate.cases.notation import parse_case
from pagegate.cases.registry import find_kernel
from pagegate.cli import main
from pagegate.oracle.checking import check
from pagegate.oracle.fuzzing import fuzz
from pagegate.oracle.isolation import Setup, Worker
from pagegate.oracle.tally import FuzzPlan

pytestmark = pytest.mark.gpu
BAD = str(Path(__file__).with_name("bad_kernels.py"))
SMALL = parse_case("q1s33_q5s40 h4/2 d64")


@pytest.mark.parametrize(
    ("kernel", "status"), [("writes_outside", "WROTE_OUTSIDE"), ("loops", "HUNG"), ("faults", "CRASHED")]
)
def test_fuzz_reports_a_bad_kernel_and_goes_on(kernel, status):
    plan = FuzzPlan(("unified", kernel), "small", seed=1, shards=1, examples=2, max_relations=0)
    # a fresh compilation takes a few seconds; a kernel that loops takes for ever
    tally = fuzz(plan, Setup("cuda", plugins=(BAD,), timeout_s=15.0), shrink_steps=0)
    assert {f.result.status for f in tally.failures.values()} == {status}
    assert tally.cases == 2
    assert tally.checks["unified"] == 2
    assert sum(f.count for f in tally.failures.values()) == 2


def test_a_worker_that_lost_its_gpu_context_is_replaced():
    with Worker(Setup("cuda", plugins=(BAD,), timeout_s=60.0)) as worker:
        assert worker.check("unified", SMALL).status == "PASSED"
        assert worker.check("faults", SMALL).status == "CRASHED"
        assert worker.check("unified", SMALL).status == "PASSED"


@pytest.mark.parametrize("kernel", ["naive", "unified"])
@pytest.mark.parametrize(
    "line",
    [
        "q3s50_q1s300 h8/2 d128 far_pages",
        "q3s50_q1s300 h8/2 d128 far_pages layout=interleaved kv=fp8",
        "q3s50_q1s300 h8/2 d128 fp16 tokens=far",
    ],
)
def test_offsets_past_two_to_the_31(kernel, line):
    result = check(find_kernel(kernel), parse_case(line), torch.device("cuda"))
    assert result.status == "PASSED", result.reason
    torch.cuda.empty_cache()


@pytest.mark.parametrize("kernel", ["naive", "unified"])
def test_a_graph_replayed_with_other_lengths_is_among_the_relations(kernel):
    result = check(find_kernel(kernel), parse_case("3q1s700_q5s90_q17 h8/2 d64"), torch.device("cuda"))
    assert result.status == "PASSED", result.reason
    assert "graph_replay" in result.relations


def test_data_is_the_same_on_the_cpu_and_on_the_gpu():
    case = parse_case("q3s40_q1s33 h4/2 d64 profile=needle")
    here, there = (make_content(case, torch.device(name)) for name in ("cpu", "cuda"))
    for name in ("q", "keys", "values"):
        assert torch.equal(getattr(here, name), getattr(there, name).cpu())
    assert torch.equal(
        Draws(3, torch.device("cpu")).normal("x", (1000,)),
        Draws(3, torch.device("cuda")).normal("x", (1000,)).cpu(),
    )


def test_check_on_the_gpu_says_where_it_ran(tmp_path, capsys):
    report = tmp_path / "report.json"
    assert main(["check", "-k", "decode_tail", "--device", "gpu", "--json", str(report)]) == 0
    assert json.loads(report.read_text())["device"] == torch.cuda.get_device_name()
