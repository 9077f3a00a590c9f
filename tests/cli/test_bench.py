"""`bench` from options to files, with a measurement that is made up: what a GPU adds is in tests/gpu."""

import json

import pytest
import torch

from pagegate.cli import main
from pagegate.errors import UsageError
from pagegate.measure.environment import Environment
from pagegate.measure.roofline import Ceilings
from pagegate.measure.samples import Samples
from pagegate.regress.results import load_results

HERE = Environment("NVIDIA H200", "h200", "580", "CUDA 13.0", "2.11", "3.6.0", "3.12", processes=1)
without_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")


@pytest.fixture
def machine(monkeypatch):
    """A machine whose kernels take what `times` says, or raise it."""
    times = {"naive": 40e-6, "unified": 20e-6, "torch_sdpa": 60e-6}

    def measure(kernel, case, quantity, plan):
        seconds = times[kernel.name]
        if isinstance(seconds, Exception):
            raise seconds
        return Samples(quantity, (seconds, seconds * (1 + plan.target), seconds), "target")

    monkeypatch.setattr("pagegate.measure.environment.current_environment", lambda: HERE)
    monkeypatch.setattr("pagegate.measure.gpu.measure_ceilings", lambda: Ceilings(4e12, 8e14))
    monkeypatch.setattr("pagegate.measure.timing.measure", measure)
    return times


def test_everything_is_in_the_file(machine, tmp_path, capsys):
    out = tmp_path / "a.json"
    words = ["bench", "-k", "gptoss_b16_c4096 or dec_b4_c4096", "--quantity", "kernel", "--target", "0.5"]
    kernels = ["--kernel", "unified", "--kernel", "torch_sdpa"]
    assert main([*words, *kernels, "--against", "torch_sdpa", "--json", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "1 other processes are on this GPU" in printed
    assert "3.00" in printed
    results = load_results(out)
    assert [(row.workload, row.kernel, row.status) for row in results.rows] == [
        ("dec_b4_c4096", "unified", "MEASURED"),
        ("dec_b4_c4096", "torch_sdpa", "MEASURED"),
        ("gptoss_b16_c4096", "unified", "MEASURED"),
        ("gptoss_b16_c4096", "torch_sdpa", "UNSUPPORTED"),
    ]
    assert results.rows[0].samples.seconds == (20e-6, 20e-6 * 1.005, 20e-6)
    assert results.rows[3].reason == "takes no sinks (sinks)"
    assert results.environment == HERE
    assert set(results.subject) == {"paged_kernels", "sources"}
    assert results.command == (
        "pagegate bench -k 'gptoss_b16_c4096 or dec_b4_c4096' --kernel unified --kernel torch_sdpa "
        "--quantity kernel --budget 1 --target 0.5"
    )


@pytest.mark.parametrize(
    "error", [RuntimeError("out of memory\nmore"), UsageError("kernel: required a host that enqueues ahead")]
)
def test_a_kernel_that_fails_is_a_row_and_the_others_go_on(machine, tmp_path, error):
    machine["naive"] = error
    out = tmp_path / "a.json"
    assert main(["bench", "-k", "dec_b1_c512", "--json", str(out)]) == 1
    rows = json.loads(out.read_text())["rows"]
    assert [row["status"] for row in rows] == ["FAILED", "MEASURED"]
    assert rows[0]["reason"] == f"{type(error).__name__}: {str(error).splitlines()[0]}"


def test_what_a_kernel_declines_when_called_is_unsupported(machine, tmp_path):
    machine["naive"] = NotImplementedError("no engine for it")
    out = tmp_path / "a.json"
    assert main(["bench", "-k", "dec_b1_c512", "--json", str(out)]) == 0
    row = json.loads(out.read_text())["rows"][0]
    assert (row["status"], row["reason"]) == ("UNSUPPORTED", "no engine for it")


def test_a_picture(machine, tmp_path):
    path = tmp_path / "a.svg"
    assert main(["bench", "-k", "dec_b1_c512 or dec_b1_c4096", "--plot", str(path), "--over", "context"]) == 0
    assert "keys per sequence" in path.read_text()


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--budget", "0"], "--budget: required more than 0"),
        (["--target", "nan"], "--target: required more than 0"),
        (["--against", "cudnn"], "--against: required one of the measured kernels (naive, unified)"),
        (["--json", "nowhere/a.json"], "required a file in a folder that exists"),
        (["--plot", "a.gif"], "--plot: required a name that ends in .png"),
        (
            ["--plot", "a.png", "--over", "batch", "-k", "ragged"],
            "required workloads that differ in their batch",
        ),
        (["-k", "nothing"], "required an expression that matches"),
        (["--kernel", "fastest"], "found 'fastest'"),
    ],
)
def test_refusals_come_before_the_work(machine, monkeypatch, tmp_path, capsys, words, error):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("pagegate.measure.gpu.measure_ceilings", lambda: pytest.fail("measured"))
    assert main(["bench", *words]) == 2
    assert error in capsys.readouterr().err


@without_gpu
def test_without_a_gpu_nothing_is_measured(capsys):
    assert main(["bench"]) == 2
    assert "required a CUDA or HIP GPU, found none" in capsys.readouterr().err
