"""The plugin in a project of someone else's: fixtures, tables, JSON, refusals."""

import json
import re
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

SAMPLER = """
import pytest
from pagegate.measure.samples import Samples

@pytest.fixture
def gpu_sampler():
    def take(launch, quantity, budget_s, target):
        launch()
        return Samples(quantity, SECONDS, "target", throttled=1)
    return take
"""
BENCHMARK = """
def test_mine(gpu_benchmark):
    samples = gpu_benchmark(lambda: None, quantity="kernel")
    assert samples is None or samples.median == MEDIAN
"""


@pytest.fixture(autouse=True)
def _no_xdist(monkeypatch):
    """pytest-benchmark switches itself off in a worker of xdist."""
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    monkeypatch.delenv("PYTEST_XDIST_TESTRUNUID", raising=False)


@pytest.fixture
def project(pytester):
    """Another project's test run, in this process, with the plugin and pytest-benchmark."""

    def run_tests(*words, seconds="(3e-5, 4e-5, 5e-5)", test=BENCHMARK, inprocess=False):
        median = sorted(eval(seconds))[1]
        pytester.makeconftest(SAMPLER.replace("SECONDS", seconds))
        pytester.makepyfile(test.replace("MEDIAN", str(median)))
        run = pytester.runpytest_inprocess if inprocess else pytester.runpytest_subprocess
        return run("-p", "no:cacheprovider", "-W", "ignore", *words)

    return run_tests


def test_device_samples_are_what_pytest_benchmark_reports(project, pytester):
    done = project("--benchmark-json=out.json", "--benchmark-only")
    done.assert_outcomes(passed=1)
    entry = json.loads((pytester.path / "out.json").read_text())["benchmarks"][0]
    assert entry["stats"]["median"] == pytest.approx(4e-5)
    assert entry["stats"]["data"] == pytest.approx([3e-5, 4e-5, 5e-5])
    assert entry["extra_info"] == {"quantity": "kernel", "stopped": "target", "throttled": 1, "refused": 0}


def test_a_slowdown_fails_the_comparison(project):
    save = ["--benchmark-autosave"]
    project(*save).assert_outcomes(passed=1)
    compare = ["--benchmark-compare=0001", "--benchmark-compare-fail=median:10%"]
    assert project(*compare).ret == 0
    slower = project(*compare, seconds="(6e-5, 7e-5, 8e-5)")
    assert slower.ret != 0


def test_numbers_of_another_gpu_are_not_compared(project, monkeypatch):
    monkeypatch.setattr("pagegate.pytest_plugin._gpu_facts", lambda: {"gpu": "A", "gpu_driver": "1"})
    project("--benchmark-autosave", inprocess=True).assert_outcomes(passed=1)
    monkeypatch.setattr("pagegate.pytest_plugin._gpu_facts", lambda: {"gpu": "B", "gpu_driver": "1"})
    done = project("--benchmark-compare=0001", inprocess=True)
    assert done.ret != 0
    assert "required the same gpu, found 'A' in the saved run and 'B' now" in str(done.stdout) + str(
        done.stderr
    )


def test_disabled_benchmarks_run_once(project):
    project("--benchmark-disable").assert_outcomes(passed=1)


def test_an_unknown_quantity(project):
    done = project(test='def test_x(gpu_benchmark):\n    gpu_benchmark(lambda: None, quantity="speed")\n')
    done.stdout.fnmatch_lines(["*required one of kernel, graph, call, found 'speed'*"])


def test_without_a_gpu_nothing_is_timed(pytester, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    pytester.makepyfile("def test_x(gpu_benchmark):\n    gpu_benchmark(lambda: None)\n")
    pytester.runpytest_inprocess("-p", "no:cacheprovider", "-W", "ignore").assert_outcomes(skipped=1)


def test_the_documented_example(pytester):
    """The example of docs/pytest.md, as it stands."""
    text = (Path(__file__).parents[1] / "docs" / "pytest.md").read_text()
    example = re.search(r"```python\n# test_mine.py\n(.*?)```", text, re.DOTALL)
    assert example
    pytester.makepyfile(test_mine=example[1])
    done = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-W", "ignore")
    done.assert_outcomes(passed=2, skipped=2)


def test_a_wrong_kernel_fails_with_the_place(pytester):
    pytester.makepyfile(
        """
        import torch

        def zeros(q, k_cache, v_cache, block_table, seq_lens, cu_seqlens_q, max_query_len, out):
            return out.zero_()

        def test_relations(check_kernel):
            check_kernel(zeros, "q3s40 h2/1 d32")

        def test_values(paged_case):
            case = paged_case("q3s40 h2/1 d32")
            case.check(torch.zeros_like(case.inputs.q))
        """
    )
    done = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-W", "ignore")
    done.assert_outcomes(failed=2)
    done.stdout.fnmatch_lines(["*OUT_OF_BUDGET zeros*q3s40 h2/1 d32*", "*OUT_OF_BUDGET: out at sequence 0*"])
