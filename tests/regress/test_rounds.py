"""Rounds by a recording worker: who is fresh when, who comes first, what it costs, what is left running."""

from pathlib import Path

import pytest

from pagegate.cases.notation import parse_case
from pagegate.measure.samples import Samples
from pagegate.regress import rounds
from pagegate.regress.rounds import Rounds, Row, Start

ROWS = [Row(name, parse_case("q1s33 h2/1 d32"), "unified", "graph") for name in ("a", "b", "c")]


@pytest.fixture
def workers(monkeypatch):
    made = []

    class Recording:
        def __init__(self, start):
            self.side, self.asked, self.running = start.side, [], False
            made.append(self)

        def start(self):
            self.running = True

        def stop(self):
            self.running = False

        def send(self, request, row):
            self.asked.append((request["action"], row and row.workload, request.get("placement")))

        def receive(self, row):
            assert self.running
            return {}

        def ask(self, request, row):
            self.send(request, row)
            return Samples("graph", (1e-4,) * request["launches"], "budget").to_json()

    monkeypatch.setattr(rounds, "SideWorker", Recording)
    return made


def sides():
    return [Start(side, Path(side), (), side) for side in ("base", "head")]


def test_a_pair_stays_for_two_rounds_and_each_request_begins_with_a_fresh_one(workers):
    with Rounds(*sides(), 8) as made:
        measured = made.measure(ROWS, 5)
        used = [worker for worker in workers if worker.asked]
        assert [len(row) for row in measured] == [5, 5, 5]
        assert [sum(what == "prepare" for what, _, _ in w.asked) for w in used] == [6, 6, 6, 6, 3, 3]
        made.measure(ROWS[:1], 1)
        used = [worker for worker in workers if worker.asked]
        assert len(used) == 8
        # one more pair waits, and has touched nothing
        assert [w.asked for w in workers if w not in used] == [[], []]
        assert [w.running for w in workers] == [False] * 8 + [True] * 2
    assert not any(worker.running for worker in workers)


def test_each_round_has_buffers_of_its_own_and_the_sides_take_turns_to_be_first(workers):
    with Rounds(*sides(), 8) as made:
        measured = made.measure(ROWS, 4)
    assert [visits.first for visits in measured[0]] == ["base", "head", "base", "head"]
    placements = [
        p for w in workers if w.side == "base" for what, row, p in w.asked if row == "a" and what == "prepare"
    ]
    assert placements == [0, 1, 2, 3]
    # no row always follows the start
    firsts = [next(row for _, row, _ in w.asked if row) for w in workers if w.asked and w.side == "base"]
    assert len(set(firsts)) == 2


def test_workers_are_not_started_early_where_the_host_is_timed(workers):
    with Rounds(*sides(), 8, ahead=False) as made:
        assert not workers
        made.measure(ROWS, 2)
        assert len(workers) == 2


def test_what_rounds_would_cost(workers):
    with Rounds(*sides(), 8) as made:
        assert made.expected_s(3, 4) == 0.0
        made.measure(ROWS, 2)
        made.spent.update(start=2.0, prepare=1.0, sample=2.0)  # of one pair, six visited rows
        assert made.expected_s(3, 4) == pytest.approx(2 * 2.0 + 12 * 0.5)
        assert made.expected_s(1, 1) == pytest.approx(2.0 + 0.5)
