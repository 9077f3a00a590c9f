"""The simulation: seeded, sensitive to the rules, and what it draws is what it says."""

import json
import math
import statistics
from dataclasses import replace

import numpy as np
import pytest

from pagegate.cli import main
from pagegate.regress import noise, simulation
from pagegate.regress.simulation import NOISY, QUIET, SCENARIOS, Scenario, draw_rounds, simulate
from pagegate.regress.verdict import Rules


def outcome(machine, change, builds=40, wanted=0.0, **options):
    (found,) = simulate([Scenario(machine, change, builds, wanted, **options)], workers=1)
    return found


def test_drawn_rounds_scatter_as_the_machine_says():
    draws = np.random.default_rng(1)
    (rounds,) = draw_rounds(replace(QUIET, disturbed=0.0), [math.log(1.02)], 20_000, draws)
    times = [one.time for one in rounds]
    assert statistics.median(times) == pytest.approx(math.log(1.02), abs=1e-4)
    least = math.sqrt(2 * (QUIET.placement**2 + QUIET.process**2))
    assert least < statistics.stdev(times) < 1.3 * least
    (rounds,) = draw_rounds(QUIET, [0.0], 20_000, draws)
    assert statistics.fmean(abs(one.time) > 0.05 for one in rounds) == pytest.approx(0.03, abs=0.005)


def test_the_same_seed_gives_the_same_counts_for_any_number_of_workers():
    scenario = Scenario(QUIET, 0.015, 6, 0.95, rows=3)
    (first,), (second,) = (list(simulate([scenario], 3, workers)) for workers in (1, 2))
    assert first == second
    (other,) = simulate([replace(scenario, builds=40)], 4, 1)
    (again,) = simulate([replace(scenario, builds=40)], 5, 1)
    assert other.counts != again.counts


def test_without_its_guards_the_gate_would_cry_wolf():
    """The simulation can fail: with neither floor nor noise multiple nor the row level, builds turn red."""
    careless = Rules(floor=1e-6, noise_multiple=0.0, fdr=4.0, alpha=1.0)
    found = outcome(NOISY, 0.0, rules=careless)
    assert found.counts.red > 4
    assert not found.holds
    assert outcome(NOISY, 0.0, builds=20).holds


def test_a_slowdown_below_the_floor_is_not_red_and_a_large_one_is():
    assert outcome(QUIET, 0.005).counts.red == 0
    found = outcome(QUIET, 0.02, wanted=1.0)
    assert (found.counts.found, found.counts.wrong, found.holds) == (40, 0, True)
    # below another floor it may not be red
    assert outcome(QUIET, 0.02, builds=10, rules=Rules(floor=0.03)).holds
    assert outcome(QUIET, 0.02, builds=10, rules=Rules(floor=0.03)).counts.red == 0


def test_the_budget_costs_detections():
    short = outcome(NOISY, 0.05, builds=20, wanted=0.9, budget_s=200.0)
    assert short.counts.found == 0
    assert short.counts.ambiguous == 20
    assert short.counts.seconds / 20 < 200


def test_the_command(monkeypatch, tmp_path, capsys):
    few = tuple(replace(s, builds=12, wanted=s.wanted if s.change < 0.01 else 0.5) for s in SCENARIOS)
    monkeypatch.setattr(simulation, "SCENARIOS", few[:1])
    path = tmp_path / "simulated.json"
    assert main(["gate", "--simulate", "--json", str(path)]) == 0
    assert "PASSED" in capsys.readouterr().out
    (written,) = json.loads(path.read_text())["outcomes"]
    assert written["counts"]["builds"] == 12
    assert written["scenario"]["rules"]["looks"] == [6, 10, 18, 34, 64]
    # a promise that cannot be kept
    monkeypatch.setattr(simulation, "SCENARIOS", (Scenario(QUIET, 0.0, 2, -0.1, rows=2),))
    assert main(["gate", "--simulate"]) == 1


def test_noise_survives_its_file(tmp_path):
    path = noise.noise_path("h200", tmp_path)
    row = noise.measured_noise([0.001, -0.002, 0.003, 0.1], "d1")
    noise.save(path, {"a unified graph": row}, "key", "pagegate gate --self-test")
    noise.save(path, {"b unified graph": row}, "key", "pagegate gate --self-test")
    found = noise.load(path)
    assert set(found) == {"a unified graph", "b unified graph"}
    assert found["a unified graph"].scatter == pytest.approx(row.scatter, rel=1e-3)
    assert row.scatter < 0.01 < row.worst


@pytest.mark.parametrize(
    "rows", [{"a": {"scatter": 2.0, "worst": 0, "rounds": 1, "digest": ""}}, {"a": {}}, []]
)
def test_files_that_are_no_noise(tmp_path, rows):
    from pagegate.errors import UsageError

    path = tmp_path / "noise.json"
    path.write_text(json.dumps({"format": 1, "rows": rows}))
    with pytest.raises(UsageError, match="required"):
        noise.load(path)
