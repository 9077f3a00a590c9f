"""What the machine's answers mean, copies of inputs, and which kernels were measured."""

import shutil
import subprocess

import pytest
import torch

from pagegate.cases.notation import parse_case
from pagegate.cases.registry import find_kernel, kernels_root
from pagegate.errors import UsageError
from pagegate.measure.gpu import graph_repeats
from pagegate.measure.machine import reasons_in, violations_in
from pagegate.measure.samples import Samples
from pagegate.measure.subject import subject
from pagegate.measure.timing import copies_for, stopwatch

without_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")


def test_a_power_cap_is_normal_and_heat_is_not():
    assert reasons_in(0x4 | 0x1) == ()
    assert reasons_in(0x4 | 0x40 | 0x8) == ("hardware slowdown", "hardware thermal")
    status = {"active_ppt_pwr": True, "active_hbm_thrm": True, "active_vr_thrm": False, "acc_hbm_thrm": 12}
    assert violations_in(status | {"active_socket_thrm": "N/A"}) == ("hbm_thrm",)


@pytest.mark.parametrize(
    ("line", "copies"),
    [
        ("q1s128k h32/8 d128", 1),  # 512 MB of keys and values
        ("16q1s4k h32/8 d128", 1),
        ("q1s4k h32/8 d128", 8),  # 16.8 MB
        ("16q1s4k h64/8 d64 window=128 sinks", 29),  # a window reads 4.5 MB of 134
        ("q1s16 h1/1 d32", 96),
    ],
)
def test_copies_drive_each_other_out_of_the_cache(line, copies):
    assert copies_for(parse_case(line).spec, 120 << 20) == copies


def test_a_graph_holds_two_dozen_launches_but_no_long_wait():
    assert graph_repeats(1, 30e-6) == 24
    assert graph_repeats(8, 30e-6) == 3
    assert graph_repeats(96, 5e-6) == 1
    assert graph_repeats(1, 400e-6) == 10
    assert graph_repeats(1, 0.05) == 1


def test_an_unknown_quantity():
    with pytest.raises(UsageError, match="required one of kernel, graph, call, found 'speed'"):
        stopwatch(find_kernel("naive"), parse_case("q1s16 h1/1 d32"), "speed")


@without_gpu
def test_nothing_times_the_interpreter():
    with pytest.raises(UsageError, match="required a CUDA or HIP GPU, found none"):
        stopwatch(find_kernel("naive"), parse_case("q1s16 h1/1 d32"), "graph")


@pytest.mark.parametrize("seconds", [(), (1e-5, 0.0), (float("nan"),)])
def test_no_samples_are_no_result(seconds):
    with pytest.raises(ValueError, match="at least one, all above 0"):
        Samples("graph", seconds, "target")


def test_the_subject_is_told_by_its_sources(tmp_path):
    copy = tmp_path / "kernels"
    shutil.copytree(kernels_root(), copy, ignore=shutil.ignore_patterns("__pycache__"))
    here, there = subject(), subject(copy)
    assert there == {"paged_kernels": "unversioned", "sources": here["sources"]}
    (copy / "paged_kernels" / "naive.py").write_text("# changed\n")
    assert subject(copy)["sources"] != here["sources"]


def test_the_subject_of_a_repository_is_its_commit(tmp_path):
    copy = tmp_path / "kernels"
    shutil.copytree(kernels_root(), copy, ignore=shutil.ignore_patterns("__pycache__"))

    def git(*words):
        who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        done = subprocess.run(
            ["git", "-C", str(tmp_path), *who, *words], capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    git("init", "-q")
    git("add", "kernels")
    git("commit", "-qm", "first")
    assert subject(copy)["paged_kernels"] == git("rev-parse", "HEAD")
    (copy / "paged_kernels" / "naive.py").write_text("# changed\n")
    assert subject(copy)["paged_kernels"] == git("rev-parse", "HEAD") + "-dirty"
