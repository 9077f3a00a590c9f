"""Workers: a crash or a hang is a result, and the next request gets a fresh process."""

import os
import signal
import time
from pathlib import Path

import pytest

from pagegate.cases.notation import parse_case
from pagegate.errors import UsageError
from pagegate.oracle.batch import check_all, count_unsupported, never_checked
from pagegate.oracle.isolation import Setup, Worker
from pagegate.oracle.memory import MemoryGate, footprint

PLUGIN = str(Path(__file__).with_name("misbehaving.py"))
CASE = parse_case("q1s20 h1/1 d32")


def test_a_crash_a_hang_and_a_printing_kernel():
    with Worker(Setup("cpu", plugins=(PLUGIN,), timeout_s=6.0)) as worker:
        assert worker.check("talks", CASE).status == "PASSED"
        crashed = worker.check("aborts", CASE)
        assert (crashed.status, "SIGABRT" in crashed.reason) == ("CRASHED", True)
        assert worker.check("unified", CASE, 0).status == "PASSED"
        hung = worker.check("sleeps", CASE)
        assert (hung.status, "within 6 s" in hung.reason) == ("HUNG", True)
        assert worker._process is None  # killed, not left behind
        raised = worker.check("raises", CASE)
        assert (raised.status, "ZeroDivisionError" in raised.reason) == ("RAISED", True)
        process = worker._process
        ended = worker.check("exits", CASE)
        assert (ended.status, "exit code 0" in ended.reason) == ("CRASHED", True)
        assert process.poll() is not None
        assert worker.check("unified", CASE, 0).status == "PASSED"
        process = worker._process
    assert process.poll() is not None


def _is_running(pid):
    """Whether a process runs; what nobody has waited for yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
def test_a_lost_kernel_takes_its_children_along(tmp_path, monkeypatch):
    note = tmp_path / "child"
    monkeypatch.setenv("PAGEGATE_TEST_CHILD", str(note))
    with Worker(Setup("cpu", plugins=(PLUGIN,), timeout_s=4.0)) as worker:
        assert worker.check("leaves_a_child", CASE).status == "HUNG"
        child = int(note.read_text())
        ended = time.monotonic() + 10
        while _is_running(child) and time.monotonic() < ended:
            time.sleep(0.05)
        assert not _is_running(child)


def test_a_worker_killed_between_two_requests():
    with Worker(Setup("cpu", timeout_s=60.0)) as worker:
        assert worker.check("unified", CASE, 0).status == "PASSED"
        os.kill(worker._process.pid, signal.SIGKILL)
        worker._process.wait()
        assert worker.check("unified", CASE, 0).status == "CRASHED"
        assert worker.check("unified", CASE, 0).status == "PASSED"


def test_a_worker_that_does_not_start():
    with (
        Worker(Setup("cpu", plugins=("no_such_module",))) as worker,
        pytest.raises(UsageError, match="starts"),
    ):
        worker.check("unified", CASE)


def test_fingerprints_tell_outputs_apart():
    with Worker(Setup("cpu", plugins=(PLUGIN,))) as worker:
        window = parse_case("q1s20 h1/1 d32 window=3")
        same = worker.fingerprint("unified", CASE)
        assert same == worker.fingerprint("unified", CASE) == worker.fingerprint("off_at_window", CASE)
        assert worker.fingerprint("unified", window) != worker.fingerprint("off_at_window", window)


def test_check_all_keeps_order_and_counts_what_is_unsupported():
    cases = [CASE, parse_case("q1s20 h1/1 d32 window=3"), parse_case("q2s9 h2/1 d32")]
    setup = Setup("cpu", plugins=(PLUGIN,))
    jobs = [(case, ["unified", "off_at_window", "not_today"]) for case in cases]
    results = check_all(jobs, setup, workers=2, max_relations=0)
    assert [[r.status for r in row] for row in results] == [
        ["PASSED", "PASSED", "UNSUPPORTED"],
        ["PASSED", "OUT_OF_BUDGET", "UNSUPPORTED"],
        ["PASSED", "PASSED", "UNSUPPORTED"],
    ]
    flat = [r for row in results for r in row]
    assert count_unsupported(flat) == {("not_today", "not today"): 3}
    assert never_checked(flat) == ["not_today"]


def test_the_memory_gate_counts_and_lets_giants_in_alone():
    spec = parse_case("q3s40 h1/1 d32 far_pages").spec
    assert footprint(spec) > 1 << 34
    gate = MemoryGate(capacity=1000)
    with gate.hold(spec):
        assert gate._used == 1000
    assert gate._used == 0
