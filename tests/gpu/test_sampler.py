"""The sampler on a GPU: what it must notice, and what its quantities have in common."""

import time
from importlib import util
from pathlib import Path

import pytest
import torch

from pagegate.cases.notation import parse_case
from pagegate.cases.registry import find_kernel
from pagegate.errors import UsageError
from pagegate.measure.gpu import GraphWatch, KernelWatch
from pagegate.measure.machine import read_machine
from pagegate.measure.sampler import Plan, sample
from pagegate.measure.timing import measure

pytestmark = pytest.mark.gpu
DECODE = parse_case("64q1s4k h32/8 d128")
QUICK = Plan(budget_s=0.5)


def _load(name):
    spec = util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_host_that_lags_within_a_launch_is_noticed():
    """Two kernels with a pause of the host between them: events alone would count the pause."""
    tensor = torch.zeros(1 << 10, device="cuda")

    def launch():
        tensor.add_(1)
        time.sleep(0.002)
        tensor.add_(1)

    watch = KernelWatch(launch)
    assert all(one.late for one in watch.take(5))
    # 20 million cycles of spin give the host more than two milliseconds
    samples = sample(watch, Plan(budget_s=2.0, target=0.05))
    assert samples.refused > 0
    assert samples.median < 50e-6


def test_a_host_that_never_catches_up_gets_no_kernel_time():
    def launch():
        time.sleep(0.1)

    with pytest.raises(UsageError, match="required a host that enqueues ahead"):
        sample(KernelWatch(launch), Plan(warm_s=0.01, budget_s=1.0, batch=4))


def test_a_late_replay_is_noticed():
    tensor = torch.zeros(1 << 10, device="cuda")
    watch = GraphWatch([lambda: tensor.add_(1)])
    replay = watch._launch

    def slowly():
        time.sleep(0.005)
        replay()

    watch._launch = slowly
    assert all(one.late for one in watch.take(3))


def test_graph_and_kernel_times_agree_where_no_cache_helps():
    unified = find_kernel("unified")
    graph, kernel = (measure(unified, DECODE, quantity, QUICK) for quantity in ("graph", "kernel"))
    # the flush leaves dirty lines, which are written back while the kernel runs
    assert graph.median == pytest.approx(kernel.median, rel=0.1)
    call = measure(unified, DECODE, "call", QUICK)
    assert call.median > kernel.median


def test_a_planted_slowdown_is_measured_as_such():
    slowed, measuring = _load("slowed_kernels").slowed, _load("measuring")
    extra, truth = measuring.calibrate(slowed, DECODE, 0.05)
    base, slower = (measure(slowed(e), DECODE, "graph", QUICK).median for e in (0, extra))
    assert slower / base - 1 == pytest.approx(truth, abs=0.01)
    assert truth == pytest.approx(0.05, abs=0.01)


def test_the_machine_tells_its_clocks():
    reading = read_machine()
    assert reading.sm_mhz is None or reading.sm_mhz > 100
