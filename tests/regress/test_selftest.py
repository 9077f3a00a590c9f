"""The gate's test of itself: what holds, false alarms, slowdowns that are missed, the budget, the noise it accepts."""

import json
import re

import pytest

from pagegate.errors import UsageError
from pagegate.regress.selftest import Tally, Trial, run_trials

TWO = ("-k", "dec_b1_c512 or pre_b1_q512")


def test_a_gate_that_works(scratch, run_gate, tmp_path, monkeypatch):
    path = tmp_path / "selftest.json"
    code, said = run_gate("--self-test", "--gates", "1", *TWO, "--json", str(path), "--write-noise")
    assert code == 0, said
    assert "builds red without a cause │ 0 │ 2 │ 0.00 % │ 0.00 to 84.19 % │ at most 0.1 %" in said
    assert "planted +3 % found │ 1 │ 1 │ 100.00 % │ 2.50 to 100.00 %" in said
    assert re.search(r"gate 2, \d+ s: dec_b1_c512 unified graph: SLOWER \(\+(2\.[6-9]|3\.[0-4])", said), said
    data = json.loads(path.read_text())
    assert [trial["planted"] for trial in data["trials"]] == ["", "dec_b1_c512 unified graph"]
    # of rounds in which nothing was planted
    assert "written: baselines/simulated/noise.json" in said
    noise = json.loads((scratch.folder / "baselines/simulated/noise.json").read_text())["rows"]
    assert noise["dec_b1_c512 unified graph"]["rounds"] == 6
    assert noise["pre_b1_q512 unified graph"]["rounds"] >= 12
    assert all(row["worst"] < 0.02 for row in noise.values())
    code, said = run_gate("--base", "main", *TWO)
    assert code == 0 and "no A/A noise is stored for 2 of 2 rows" in said  # six rounds say too little
    assert not list(tmp_path.glob("pagegate-gate-*"))


def test_false_alarms_fail_it(scratch, run_gate):
    scratch.behave(head_bias=1.04)
    code, said = run_gate("--self-test", "--gates", "1", "-k", "pre_b1_q512", "--write-noise")
    assert code == 2, said  # and nothing is accepted
    assert "required a self-test that holds" in said
    assert "the gate on this machine: FAILED" in said and "false alarm: pre_b1_q512" in said
    assert not (scratch.folder / "baselines").exists()


def test_slowdowns_that_are_missed_fail_it(scratch, run_gate):
    scratch.behave(ignores_plants=True)
    code, said = run_gate("--self-test", "--gates", "2", "-k", "pre_b1_q512")
    assert code == 1, said
    assert "pre_b1_q512 unified graph: SAME" in said
    assert "planted +3 % found │ 0 │ 2 │ 0.00 % │ 0.00 to 84.19 %" in said


def test_sides_that_cannot_run(scratch, run_gate):
    scratch.behave(die_at=3)
    code, said = run_gate("--self-test", *TWO)
    assert code == 2 and "required sides that can be run" in said and "out of luck" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--self-test", "--base", "main"], "without --base"),
        (["--self-test", "--quantity", "call"], "required --quantity graph"),
        (["--self-test", "--change", "0"], "--change: required more than 0"),
        (["--self-test", "--html", "x.html"], "without --markdown and --html"),
        (["--base", "main", "--write-noise"], "together with --self-test"),
        (["--base", "main", "--gates", "3"], "together with --self-test"),
    ],
)
def test_misuse(scratch, run_gate, words, said):
    code, found = run_gate(*words)
    assert code == 2 and said in found


def trial(planted="", **verdicts):
    return Trial(planted, verdicts, {}, {}, {}, 1.0)


def test_what_counts_as_a_false_alarm():
    trials = [
        trial(a="SAME", b="SLOWER"),
        trial("a", a="SLOWER", b="SLOWER"),
        trial("b", a="SAME", b="AMBIGUOUS"),
    ]
    tally = Tally(trials)
    assert (tally.false_builds.count, tally.false_builds.of) == (2, 3)
    assert (tally.false_rows.count, tally.false_rows.of) == (2, 4)
    assert (tally.found.count, tally.found.of) == (1, 2)
    assert tally.holds is False
    assert Tally(trials[:1]).holds is None  # nothing was planted yet


@pytest.mark.parametrize(("missed", "of", "holds"), [(0, 20, True), (3, 20, True), (4, 20, False)])
def test_few_trials_are_judged_by_their_interval(missed, of, holds):
    trials = [trial("a", a="SAME" if n < missed else "SLOWER") for n in range(of)]
    assert Tally([*trials, trial(a="SAME")]).holds is holds


def test_the_budget_ends_it_after_the_first_two(monkeypatch):
    monkeypatch.setattr(
        "pagegate.regress.selftest.trial_of", lambda result, planted, s: trial(planted, a="SAME")
    )
    times = {"now": 0.0}

    def gate(plants):
        times["now"] += 50
        return plants

    assert len(list(run_trials(gate, 20, 0.03, 60, lambda: times["now"]))) == 2
    times["now"] = 0.0
    assert len(list(run_trials(gate, 20, 0.03, 249, lambda: times["now"]))) == 4
    assert len(list(run_trials(gate, 3, 0.03, 1e9, lambda: times["now"]))) == 6


def test_a_gate_that_measures_nothing_is_no_trial():
    class Nothing:
        failures, rows = (), ()

    with pytest.raises(UsageError, match="required rows that can be measured"):
        list(run_trials(lambda plants: Nothing(), 1, 0.03, 1e9))
