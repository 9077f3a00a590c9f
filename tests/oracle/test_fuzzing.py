"""Fuzzing: reproducible, finds and shrinks, goes on after a failure, ends when it should."""

import json
import threading
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import settings

from pagegate.cases.spec import load_case
from pagegate.oracle import fuzzing
from pagegate.oracle.fuzzing import fuzz
from pagegate.oracle.isolation import Setup
from pagegate.oracle.results import CheckResult, Worst
from pagegate.oracle.saving import load_saved, save_failure
from pagegate.oracle.tally import FuzzPlan, shards_for

PLUGIN = str(Path(__file__).with_name("misbehaving.py"))
SETUP = Setup("cpu", plugins=(PLUGIN,), timeout_s=120.0)


@pytest.fixture
def scripted(monkeypatch):
    """Workers that answer by a rule, case -> status (or (status, relation)), and remember the cases."""
    seen = []

    def use(rule, ratio=lambda case: 0.5):
        class Scripted:
            def __init__(self, setup):
                pass

            def __enter__(self):
                return self

            def __exit__(self, *error):
                pass

            def check(self, kernel, case, max_relations=None):
                seen.append((kernel, case))
                said = rule(case)
                status, relation = said if isinstance(said, tuple) else (said, None)
                worst = Worst("out", 0, 0, 0, 0, ratio(case), 0.0, 1.0)
                return CheckResult(kernel, case, status, "scripted", worst, relation)

        seen.clear()
        monkeypatch.setattr(fuzzing, "Worker", Scripted)
        return seen

    return use


def plan(kernels=("unified",), seed=3, shards=1, **options):
    return FuzzPlan(kernels, "small", seed, shards, **options)


def test_a_fault_is_found_shrunk_and_counted(tmp_path):
    """End to end: a kernel that is wrong with a window, in a worker process."""
    heard = []
    tally = fuzz(plan(("off_at_window",), examples=40, max_relations=0), SETUP, on_failure=heard.append)
    assert tally.cases == 40 == tally.checks["off_at_window"]
    failures = list(tally.failures.values())
    assert [f.result.status for f in failures] == ["OUT_OF_BUDGET"] == [f.result.status for f in heard]
    failure = failures[0]
    assert failure.repeatable
    assert failure.count > 1  # the run went on and met it again
    smallest = failure.result.case.spec
    assert smallest.sliding_window is not None
    assert (smallest.num_seqs, smallest.num_query_heads, smallest.head_dim) == (1, 1, 32)
    assert (smallest.sinks, smallest.alibi, smallest.kv_dtype) == (False, False, "same")
    path = save_failure(tmp_path, failure.result, {"device": "test"})
    assert load_case(path) == failure.result.case
    assert load_saved([tmp_path])[0].kernel == "off_at_window"
    assert json.loads(path.read_text())["found_on"] == {"device": "test"}
    # the same failure has the same name
    assert save_failure(tmp_path, failure.result, {"device": "other"}) == path


def test_the_same_seed_draws_the_same_cases(scripted):
    def drawn(seed):
        seen = scripted(lambda case: "PASSED")
        tally = fuzz(plan(seed=seed, examples=60), SETUP)
        assert tally.cases == 60 == len(seen) == tally.checks["unified"]
        return list(seen)

    assert drawn(5) == drawn(5)
    assert drawn(5) != drawn(6)


def test_neither_processes_nor_profiles_change_what_is_drawn(scripted):
    """On two cores and on sixteen, under CI and without: the same cases."""

    def drawn(workers):
        seen = scripted(lambda case: "PASSED")
        fuzz(plan(shards=2, examples=60, workers=workers), SETUP)
        return Counter(case for _, case in seen)

    first = drawn(1)
    assert first == drawn(2) == drawn(16)
    try:
        settings.load_profile("ci")
        assert first == drawn(1)
    finally:
        settings.load_profile("tests")


def test_a_budget_decides_how_many_searches():
    assert [shards_for(n) for n in (1, 59, 60, 100, 1 << 20, None)] == [1, 1, 2, 3, 16, 16]


def test_shards_draw_different_cases_and_share_the_budget(scripted):
    seen = scripted(lambda case: "PASSED")
    tally = fuzz(plan(shards=3, examples=50), SETUP)
    assert tally.cases == 50
    assert len({case for _, case in seen}) > 40


def test_every_kernel_sees_every_case(scripted):
    seen = scripted(lambda case: "PASSED")
    fuzz(plan(("naive", "unified"), examples=20), SETUP)
    assert [kernel for kernel, _ in seen] == ["naive", "unified"] * 20
    assert all(seen[i][1] == seen[i + 1][1] for i in range(0, 40, 2))


def test_kinds_of_failures_are_told_apart_and_each_is_shrunk_once(scripted):
    def rule(case):
        if case.spec.sinks:
            return "BROKE_PROPERTY", "padded"
        return "NON_FINITE" if case.dead == "inf" else "PASSED"

    scripted(rule)
    heard = []
    tally = fuzz(plan(examples=200), SETUP, on_failure=heard.append)
    assert tally.cases == 200
    kinds = {signature[1:]: failure for signature, failure in tally.failures.items()}
    assert kinds.keys() == {("BROKE_PROPERTY", "padded"), ("NON_FINITE", None)}
    assert len(heard) == 2
    assert all(failure.count > 5 for failure in kinds.values())
    sinks = kinds["BROKE_PROPERTY", "padded"].result.case
    assert (sinks.spec.sinks, sinks.spec.num_seqs, sinks.dead) == (True, 1, "nan")
    assert kinds["NON_FINITE", None].result.case.dead == "inf"
    # what was found is kept beside what it was shrunk to
    assert all(rule(failure.found) == rule(failure.result.case) for failure in kinds.values())


def test_shrinking_does_not_slip_into_another_failure(scripted):
    """Smaller cases fail in another way: they are not this failure."""
    scripted(lambda case: "OUT_OF_BUDGET" if case.spec.max_seq_len > 40 else "CRASHED")
    tally = fuzz(plan(examples=60), SETUP)
    shrunk = {signature[1]: failure.result.case for signature, failure in tally.failures.items()}
    assert shrunk["OUT_OF_BUDGET"].spec.max_seq_len in (41, 63, 64, 65)
    assert shrunk["CRASHED"].spec.max_seq_len <= 1


def test_shrinking_ends_after_its_steps(scripted):
    seen = scripted(lambda case: "NON_FINITE" if case.spec.max_seq_len > 70 else "PASSED")
    tally = fuzz(plan(examples=100), SETUP, shrink_steps=5)
    assert [failure.steps for failure in tally.failures.values()] == [6]  # the sixth is not run
    assert len(seen) == 100 + 5


def test_a_failure_that_comes_and_goes_says_so(scripted):
    calls = iter(range(1 << 20))
    scripted(lambda case: "OUT_OF_BUDGET" if next(calls) == 7 else "PASSED")
    heard = []
    tally = fuzz(plan(examples=30), SETUP, on_failure=heard.append)
    assert [failure.repeatable for failure in heard] == [False]
    assert tally.cases == 30


def test_unsupported_is_counted_by_its_reason(scripted):
    scripted(lambda case: "UNSUPPORTED" if case.spec.alibi else "PASSED")
    tally = fuzz(plan(examples=60), SETUP)
    assert tally.unsupported.keys() == {("unified", "scripted")}
    assert tally.unsupported["unified", "scripted"] + tally.checks["unified"] == 60
    assert not tally.failures


def test_the_worst_passing_case_is_kept(scripted):
    seen = scripted(lambda case: "PASSED", ratio=lambda case: case.seed / (1 << 16))
    tally = fuzz(plan(examples=50), SETUP)
    assert tally.worst["unified"].case.seed == max(case.seed for _, case in seen)


def test_a_long_run_climbs_towards_high_ratios(scripted):
    """Hypothesis's target at work: the second half of a run lives far above what is drawn by chance."""
    seen = scripted(lambda case: "PASSED", ratio=lambda case: sum(case.spec.seq_lens) / 1000)
    fuzz(plan(examples=300), SETUP)
    totals = [sum(case.spec.seq_lens) for _, case in seen]
    assert sum(totals[150:]) / 150 > 2 * sum(totals[:100]) / 100


def test_examples_are_kept_between_runs(scripted, tmp_path):
    """The first thing that a second run tries is what failed before."""

    def rule(case):
        return "NON_FINITE" if case.spec.sinks and case.spec.alibi else "PASSED"

    scripted(rule)
    first = fuzz(plan(examples=120, database=tmp_path), SETUP)
    (failure,) = first.failures.values()
    seen = scripted(rule)
    second = fuzz(plan(seed=4, examples=5, database=tmp_path), SETUP)
    assert seen[0][1] == failure.result.case
    assert len(second.failures) == 1


def test_a_budget_in_seconds_ends_the_run(scripted, monkeypatch):
    """By a clock that each check moves on by a quarter of a second."""
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(fuzzing, "time", SimpleNamespace(monotonic=lambda: clock.now, sleep=time.sleep))

    def check(case):
        clock.now += 0.25
        return "PASSED"

    scripted(check)
    ticks = []
    tally = fuzz(plan(seconds=10.0), SETUP, tick=lambda tally: ticks.append(tally.cases))
    assert tally.cases == 41  # the last one begins when ten seconds are just over
    assert ticks and ticks == sorted(ticks)


def test_a_search_that_stalls_is_ended(scripted, monkeypatch):
    monkeypatch.setattr(fuzzing, "_STALL_S", 0.3)
    over = threading.Event()
    monkeypatch.setattr(fuzzing._Shard, "run", lambda self: over.wait())
    scripted(lambda case: "PASSED")
    try:
        assert fuzz(plan(examples=5), SETUP).stalled
    finally:
        over.set()


def test_what_is_no_failure_of_a_kernel_is_raised(scripted):
    def rule(case):
        raise KeyError("the rule itself")

    scripted(rule)
    for examples in (1, 30):
        with pytest.raises(KeyError, match="the rule itself"):
            fuzz(plan(examples=examples, shards=2), SETUP)


def test_a_worker_that_does_not_start_ends_the_run():
    with pytest.raises(Exception, match="starts"):
        fuzz(plan(examples=3), Setup("cpu", plugins=("no_such_module",)))
