"""The sampler with a simulated device and clock: when it stops, what it counts, what it refuses."""

import random
import statistics

import pytest

from pagegate.errors import UsageError
from pagegate.measure.sampler import Launch, Plan, sample
from pagegate.measure.samples import Reading, Samples, median_interval, relative_half_width


class Machine:
    """Launches that take what they are told, on a clock of their own."""

    quantity = "kernel"

    def __init__(self, seconds, late=lambda n: False, seed=1):
        self.now = 0.0
        self.warmed = self.slowed = self.taken = 0
        self._seconds, self._late = seconds, late
        self._random = random.Random(seed)

    def clock(self):
        return self.now

    def warm(self):
        self.now += 0.02
        self.warmed += 1

    def slow_down(self):
        self.slowed += 1

    def take(self, count):
        launches = []
        for _ in range(count):
            launches.append(Launch(self._seconds(self._random), self._late(self.taken)))
            self.taken += 1
            self.now += 0.001
        return launches


def quiet(rng):
    return 30e-6 * (1 + rng.gauss(0, 0.005))


def noisy(rng):
    return 30e-6 * (1 + rng.gauss(0, 0.2))


def run(machine, read=Reading, **plan):
    return sample(machine, Plan(**plan), read, machine.clock)


def test_it_warms_up_by_time_and_stops_at_the_target():
    machine = Machine(quiet)
    samples = run(machine, warm_s=0.1, target=0.002, budget_s=10.0)
    assert machine.warmed == 5
    assert samples.stopped == "target"
    assert samples.half_width <= 0.002
    assert samples.median == pytest.approx(30e-6, rel=0.003)
    assert len(samples.seconds) == machine.taken


def test_it_stops_when_the_budget_is_spent_and_says_so():
    samples = run(Machine(noisy), target=0.0001, budget_s=0.5)
    assert samples.stopped == "budget"
    assert 500 <= len(samples.seconds) < 560


def test_late_launches_are_refused_and_the_host_gets_more_time():
    machine = Machine(lambda rng: 90e-6, late=lambda n: n < 30)
    samples = run(machine, target=0.01)
    assert samples.refused == 30
    assert machine.slowed == 2
    assert len(samples.seconds) == machine.taken - 30


def test_a_host_that_never_gets_ahead_is_an_error():
    with pytest.raises(UsageError, match="required a host that enqueues ahead"):
        run(Machine(quiet, late=lambda n: True), budget_s=0.2)


def test_throttled_samples_are_counted_and_kept():
    readings = iter(
        [Reading(1980, 3201), Reading(1200, 3201, ("hardware thermal",))] + [Reading(1980, 3201)] * 1000
    )
    samples = run(Machine(noisy), read=lambda: next(readings), budget_s=0.2)
    assert samples.throttled == 20
    assert len(samples.seconds) == 20 * len(samples.readings)
    assert samples.readings[1].reasons == ("hardware thermal",)


def test_samples_travel_as_json():
    samples = run(Machine(noisy), read=lambda: Reading(1, 2, ("x",)), budget_s=0.1)
    assert Samples.from_json(samples.to_json()) == samples


@pytest.mark.parametrize("count", [20, 41, 100])
def test_the_interval_covers_the_median_as_often_as_it_says(count):
    rng = random.Random(5)
    hits = 0
    for _ in range(2000):
        low, high = median_interval([rng.lognormvariate(0, 1) for _ in range(count)])
        hits += low <= 1.0 <= high
    assert 0.94 <= hits / 2000 <= 0.99


def test_intervals_of_few_values():
    assert median_interval([3.0]) == (3.0, 3.0)
    assert median_interval([3.0, 1.0, 2.0]) == (1.0, 3.0)
    with pytest.raises(ValueError, match="at least one"):
        median_interval([])
    values = [1.0] * 50 + [100.0]
    assert relative_half_width(values) == 0.0
    assert statistics.median(values) == 1.0
