"""How tests run, the same on every machine: kernels in Triton's interpreter, no GPU in sight, and
Hypothesis with one profile. `pytest -m gpu` is the other way: kernels compiled for the GPU that is here.
"""

import os

import pytest
from hypothesis import HealthCheck, settings

# no clock, no dice, nothing kept; named here, where `CI` in the environment chooses another by itself
settings.register_profile(
    "tests", deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("tests")

NEEDS_GPU = "needs a CUDA or HIP GPU: pytest -m gpu"
NEEDS_TRITON = "needs Triton, which is not installed here"


def pytest_configure(config):
    """Before anything imports a kernel: Triton reads its mode then."""
    if config.option.markexpr != "gpu":
        os.environ.setdefault("TRITON_INTERPRET", "1")
        os.environ.update(CUDA_VISIBLE_DEVICES="", HIP_VISIBLE_DEVICES="")


def pytest_collection_modifyitems(items):
    import torch

    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason=NEEDS_GPU))


@pytest.fixture(autouse=True)
def own_registry(monkeypatch):
    """What a test registers, it registers for itself."""
    from pagegate.cases import registry

    monkeypatch.setattr(registry, "_KERNELS", dict(registry._KERNELS))
    monkeypatch.setattr(registry, "_LOADED", set(registry._LOADED))


@pytest.fixture(autouse=True)
def shrink_by_steps(monkeypatch):
    """Shrinking ends after its steps, however slow the machine is."""
    try:
        from pagegate.oracle import fuzzing
    except ModuleNotFoundError:
        return
    monkeypatch.setattr(fuzzing, "SHRINK_S", float("inf"))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    """Where Triton cannot be, a file that imports it is skipped, not broken."""
    report = yield
    if report.failed and "No module named 'triton" in str(report.longrepr):
        report.outcome, report.longrepr = "skipped", (str(collector.path), 0, f"Skipped: {NEEDS_TRITON}")
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    try:
        return (yield)
    except ModuleNotFoundError as error:
        if error.name and error.name.partition(".")[0] == "triton":
            pytest.skip(NEEDS_TRITON)
        raise
