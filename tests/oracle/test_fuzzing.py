"""Fuzzing: reproducible, finds and shrinks, goes on after a failure, ends when it should."""

import json
import time
from pathlib import Path

import pytest

from pagegate.cases.spec import load_case
from pagegate.oracle.fuzzing import FuzzPlan, fuzz
from pagegate.oracle.isolation import Setup
from pagegate.oracle.saving import load_saved, save_failure

PLUGIN = str(Path(__file__).with_name("misbehaving.py"))
SETUP = Setup("cpu", plugins=(PLUGIN,), timeout_s=120.0)


def test_a_fault_is_found_shrunk_and_counted(tmp_path):
    heard = []
    plan = FuzzPlan(("off_at_window",), "small", seed=3, shards=1, examples=40, max_relations=0)
    tally = fuzz(plan, SETUP, on_failure=heard.append)
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


def test_the_same_seed_draws_the_same_cases():
    def seen(seed):
        plan = FuzzPlan(("not_today",), "small", seed=seed, shards=2, examples=30)
        tally = fuzz(plan, SETUP)
        assert tally.unsupported == {("not_today", "not today"): 30}
        assert tally.checks["not_today"] == 0
        return tally.features

    assert seen(5) == seen(5)
    assert seen(5) != seen(6)


def test_a_budget_in_seconds_ends_the_run():
    started = time.monotonic()
    ticks = []
    plan = FuzzPlan(("not_today",), "small", seed=1, shards=1, seconds=4.0)
    tally = fuzz(plan, SETUP, tick=lambda tally: ticks.append(tally.cases))
    assert tally.cases >= 1
    assert time.monotonic() - started < 60
    assert ticks == sorted(ticks)


def test_what_is_no_failure_of_a_kernel_is_raised():
    plan = FuzzPlan(("unified",), "small", seed=1, shards=1, examples=3)
    with pytest.raises(Exception, match="starts"):
        fuzz(plan, Setup("cpu", plugins=("no_such_module",)))
