"""The order of looks: who is measured again, who has to be confirmed, what the budget ends."""

import math

import pytest

from pagegate.regress.looks import Round, run_looks
from pagegate.regress.verdict import AMBIGUOUS, FASTER, SAME, SLOWER, Rules

RULES = Rules(looks=(8, 16, 32, 64))
PATTERN = (-0.003, 0.002, 0.001, -0.001, 0.003, 0.0, -0.002, 0.0015)


class Script:
    """Rows whose rounds scatter around what `shift(row, number of the round)` says."""

    def __init__(self, shift, affordable=lambda rows, count: True):
        self.shift, self.affordable = shift, affordable
        self.taken, self.asked = {}, []

    def measure(self, rows, count):
        self.asked.append((list(rows), count))
        found = []
        for row in rows:
            first = self.taken.get(row, 0)
            self.taken[row] = first + count
            numbers = range(first, first + count)
            found.append([Round(PATTERN[n % 8] + self.shift(row, n)) for n in numbers])
        return found

    def run(self, rows, rules=RULES):
        return run_looks([None] * rows, rules, self.measure, self.affordable)


def verdicts(tracks):
    return [track.judgement.verdict for track in tracks]


def test_equal_rows_end_at_the_first_look():
    script = Script(lambda row, n: 0.0)
    tracks = script.run(20)
    assert verdicts(tracks) == [SAME] * 20
    assert script.asked == [(list(range(20)), 8)]
    assert all(track.decided for track in tracks)


def test_a_slowdown_is_confirmed_by_fresh_rounds_of_its_row_alone():
    script = Script(lambda row, n: 0.02 if row == 3 else 0.0)
    tracks = script.run(20)
    assert verdicts(tracks) == [SLOWER if row == 3 else SAME for row in range(20)]
    assert script.asked == [(list(range(20)), 8), ([3], 8), ([3], 16)]
    assert tracks[3].confirmation.rounds == 16
    assert "confirmed by 16 rounds" in tracks[3].judgement.reasons[-1]
    assert len(tracks[3].rounds) == 32


def test_a_slowdown_that_goes_away_is_not_red():
    script = Script(lambda row, n: 0.02 if row == 3 and n < 16 else 0.0)
    tracks = script.run(20)
    assert tracks[3].judgement.verdict != SLOWER
    assert tracks[3].confirmation is not None
    assert SLOWER not in verdicts(tracks)


def test_a_speedup_needs_no_confirmation():
    script = Script(lambda row, n: -0.05)
    assert verdicts(script.run(3)) == [FASTER] * 3
    assert len(script.asked) == 1


def test_what_stays_open_is_ambiguous_after_the_last_look():
    script = Script(lambda row, n: 0.009)
    tracks = script.run(1)
    assert verdicts(tracks) == [AMBIGUOUS]
    assert not tracks[0].decided
    assert script.asked == [([0], 8), ([0], 8), ([0], 16), ([0], 32)]


def test_the_budget_ends_it():
    script = Script(lambda row, n: 0.009, affordable=lambda rows, count: False)
    assert verdicts(script.run(2)) == [AMBIGUOUS] * 2
    assert script.asked == [([0, 1], 8)]  # the first look is taken all the same


def test_no_time_to_confirm_is_no_red_build():
    script = Script(lambda row, n: 0.03, affordable=lambda rows, count: False)
    tracks = script.run(1)
    assert verdicts(tracks) == [AMBIGUOUS]
    assert "no time was left to confirm" in tracks[0].judgement.reasons[-1]


def test_rows_that_were_to_be_confirmed_are_judged_again_with_all_their_rounds():
    """Refuted at 16 + 16, slower from then on: found again and confirmed by rounds after that."""
    script = Script(lambda row, n: 0.0 if row != 0 or 8 <= n < 16 else 0.03)
    tracks = script.run(1)
    assert script.asked[:2] == [([0], 8), ([0], 8)]
    assert verdicts(tracks) == [SLOWER]
    assert "confirmed" in tracks[0].judgement.reasons[-1]


def test_clocks_that_explain_a_slowdown_end_ambiguous():
    def measure(rows, count):
        return [[Round(0.02 + p, -0.02) for p in PATTERN[:8] * (count // 8)] for _ in rows]

    (track,) = run_looks([None], RULES, measure, lambda rows, count: True)
    assert track.judgement.verdict == AMBIGUOUS
    assert "clocks" in track.judgement.reasons[1]


def test_rounds_without_clocks():
    assert math.isnan(Round(0.1).clock)
    assert (
        run_looks([], RULES, lambda rows, count: pytest.fail("nothing to measure"), lambda r, c: True) == []
    )
