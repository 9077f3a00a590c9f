"""A pytest plugin for anyone's kernels: the oracle in three lines, and device times in pytest-benchmark.

Fixtures: `check_kernel` (a kernel against reference and relations), `paged_case` (inputs, and a judge for
what a kernel made of them), `gpu_benchmark` (pytest-benchmark fed with device samples), `gpu_sampler`
(how `gpu_benchmark` samples; override it to sample otherwise).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from pagegate.errors import UsageError

if TYPE_CHECKING:
    import torch

    from pagegate.cases.content import Content
    from pagegate.cases.inputs import Inputs
    from pagegate.cases.spec import Case
    from pagegate.measure.samples import Samples
    from pagegate.oracle.results import CheckResult

Sampler = Callable[..., "Samples"]


def _device() -> torch.device:
    import torch

    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def _case(case: str | Case) -> Case:
    from pagegate.cases.notation import parse_case

    return parse_case(case) if isinstance(case, str) else case


@pytest.fixture
def check_kernel() -> Callable[..., CheckResult]:
    """check_kernel(kernel, case): a function, a registered name or a `Kernel` on a case or its line.

    Fails the test unless the kernel passes; returns the result. A case that the kernel does not support
    skips the test, with the reason.
    """

    def check(kernel: Any, case: str | Case) -> CheckResult:
        from pagegate.cases.notation import format_case
        from pagegate.cases.registry import Kernel, find_kernel
        from pagegate.oracle import checking

        if isinstance(kernel, str):
            kernel = find_kernel(kernel)
        elif not isinstance(kernel, Kernel):
            function = kernel
            kernel = Kernel(getattr(function, "__name__", "kernel"), "", lambda: function)
        result = checking.check(kernel, _case(case), _device())
        if result.status == "UNSUPPORTED":
            pytest.skip(f"{result.kernel} {result.reason}")
        if result.failed:
            pytest.fail(f"{result.status} {result.kernel}  {format_case(result.case)}\n  {result.reason}")
        return result

    return check


@dataclass(frozen=True)
class PagedCase:
    """A case in memory. inputs: its tensors (`inputs.keywords()` are a kernel's arguments)."""

    case: Case
    content: Content
    inputs: Inputs

    def check(self, out: torch.Tensor, lse: torch.Tensor | None = None) -> None:
        """Fail the test unless out [num_tokens, num_query_heads, head_dim] (and lse) are within budget."""
        from pagegate.oracle.checking import judge
        from pagegate.oracle.reference import reference
        from pagegate.oracle.running import Run

        status, worst = judge(self.case.spec, Run("PASSED", out=out, lse=lse), reference(self.content))
        if status != "PASSED":
            pytest.fail(f"{status}: {worst}")


@pytest.fixture
def paged_case() -> Callable[[str | Case], PagedCase]:
    """paged_case(line): inputs on the GPU if there is one, with everything dead poisoned."""

    def make(case: str | Case) -> PagedCase:
        from pagegate.cases.content import make_content
        from pagegate.cases.inputs import Placement, place

        made = _case(case)
        content = make_content(made, _device())
        return PagedCase(made, content, place(content, Placement(seed=made.seed, dead=made.dead)))

    return make


class Replay:
    """A timer for pytest-benchmark that plays back samples: each pair of calls is one sample apart."""

    __name__ = "pagegate_device_samples"

    def __init__(self) -> None:
        self._times: Iterator[float] = iter(())

    def load(self, seconds: Sequence[float]) -> None:
        self._times = (time for sample in seconds for time in (0.0, sample))

    def __call__(self) -> float:
        return next(self._times)


@pytest.fixture
def gpu_sampler() -> Sampler:
    """gpu_sampler(launch, quantity, budget_s, target) -> Samples; skips the test without a GPU."""
    import torch

    if not torch.cuda.is_available():
        pytest.skip("gpu_benchmark needs a CUDA or HIP GPU: Triton's interpreter is never timed")

    def take(launch: Callable[[], object], quantity: str, budget_s: float, target: float) -> Samples:
        from pagegate.measure.gpu import CallWatch, GraphWatch, KernelWatch
        from pagegate.measure.machine import read_machine
        from pagegate.measure.sampler import Plan, Stopwatch, sample

        watches: dict[str, Callable[[], Stopwatch]] = {
            "kernel": lambda: KernelWatch(launch),
            "graph": lambda: GraphWatch([launch]),
            "call": lambda: CallWatch(launch),
        }
        return sample(watches[quantity](), Plan(budget_s=budget_s, target=target), read_machine)

    return take


@pytest.fixture
def device_samples_timer(request: pytest.FixtureRequest) -> Replay:
    """The timer of this test's `benchmark`; it has to be marked before that fixture is made."""
    replay = Replay()
    request.node.add_marker(pytest.mark.benchmark(timer=replay))
    return replay


@pytest.fixture
def gpu_benchmark(
    request: pytest.FixtureRequest, device_samples_timer: Replay, benchmark: Any
) -> Callable[..., Samples | None]:
    """gpu_benchmark(launch, quantity="kernel"): device samples into pytest-benchmark's tables and JSON.

    quantity: "kernel" (cold L2), "graph" or "call"; see `measure.samples`. Returns the samples, or None
    when benchmarks are disabled (then the launch ran once). Needs pytest-benchmark, whose `benchmark`
    fixture it asks for by name so that --benchmark-only finds it.
    """
    from pagegate.measure.samples import QUANTITIES

    def run(
        launch: Callable[[], object], quantity: str = "kernel", budget_s: float = 1.0, target: float = 0.002
    ) -> Samples | None:
        if quantity not in QUANTITIES:
            raise UsageError(f"quantity: required one of {', '.join(QUANTITIES)}, found {quantity!r}")
        if benchmark.disabled:
            launch()
            return None
        samples: Samples = request.getfixturevalue("gpu_sampler")(launch, quantity, budget_s, target)
        device_samples_timer.load(samples.seconds)
        benchmark.extra_info.update(
            quantity=quantity, stopped=samples.stopped, throttled=samples.throttled, refused=samples.refused
        )
        benchmark.pedantic(lambda: None, rounds=len(samples.seconds), iterations=1)
        return samples

    return run


def _gpu_facts() -> dict[str, str]:
    """GPU and driver, if this session has used torch on a GPU."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return {}
    from pagegate.measure.environment import current_environment

    environment = current_environment()
    return {"gpu": environment.gpu, "gpu_driver": environment.driver, "gpu_key": environment.key()}


@pytest.hookimpl(optionalhook=True)
def pytest_benchmark_update_machine_info(config: pytest.Config, machine_info: dict[str, Any]) -> None:
    """The GPU belongs to the machine that was measured."""
    machine_info.update(_gpu_facts())


@pytest.hookimpl(optionalhook=True)
def pytest_benchmark_compare_machine_info(
    config: pytest.Config, benchmarksession: Any, machine_info: dict[str, Any], compared_benchmark: Any
) -> None:
    """Numbers of two GPUs are not compared: raises pytest.UsageError."""
    before = compared_benchmark.get("machine_info", {})
    for name in ("gpu", "gpu_driver"):
        if before.get(name) != machine_info.get(name):
            raise pytest.UsageError(
                f"benchmark comparison: required the same {name}, found {before.get(name)!r} in the saved "
                f"run and {machine_info.get(name)!r} now; save a run on this machine first"
            )
