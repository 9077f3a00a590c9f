"""Verdicts of rounds: each rule decides a case that the others leave open."""

import itertools
import math
import statistics
import subprocess
import sys

import numpy as np
import pytest

from pagegate.regress import verdict as v
from pagegate.regress.verdict import AMBIGUOUS, FASTER, SAME, SLOWER, Rules

RULES = Rules()
# sixteen rounds of a steady row, in percent
STEADY = (-0.3, 0.2, 0.1, -0.1, 0.3, 0.0, -0.2, 0.15, 0.25, -0.25, 0.05, -0.05, 0.35, -0.15, 0.1, -0.2)


def row(percents, shift=0.0, clocks=None, rules=RULES):
    rounds = np.log1p((np.array([percents]) + shift) / 100)
    found = v.figures(rounds, None if clocks is None else np.array([clocks]), rules)
    return found[0]


def judged(*rows, noise=None, rules=RULES):
    return [one.verdict for one in v.judge(rows, [noise] * len(rows), rules)]


@pytest.mark.parametrize(
    ("shift", "expected"),
    [(0.0, SAME), (0.5, SAME), (2.0, SLOWER), (0.95, AMBIGUOUS), (-0.5, SAME), (-2.0, FASTER)],
)
def test_a_steady_row(shift, expected):
    assert judged(row(STEADY, shift)) == [expected]


def test_a_slowdown_below_the_floor_is_none_however_sure():
    assert row(STEADY, 0.6).lower > 0
    assert judged(row(STEADY, 0.6)) == [SAME]
    assert judged(row(STEADY, 0.6), rules=Rules(floor=0.004)) == [SLOWER]


def test_the_rows_own_noise_raises_the_threshold():
    slow = row(STEADY, 2.0)
    assert judged(slow, noise=0.002) == [SLOWER]
    (found,) = v.judge([slow], [0.03], RULES)
    assert found.verdict == AMBIGUOUS
    assert "3 x its own noise" in found.reasons[0]
    # todays's scatter counts where it is larger than the stored one
    wide = [20 * p for p in STEADY]
    (found,) = v.judge([row(wide, 3.0)], [0.002], RULES)
    assert found.threshold == pytest.approx(3 * v.estimate_noise(row(wide, 3.0).scatter, 16))


def test_few_disturbed_rounds_do_not_turn_it_red():
    disturbed = list(STEADY)
    disturbed[3] = disturbed[7] = disturbed[12] = 12.0
    assert statistics.mean(disturbed) > 1
    assert judged(row(disturbed)) == [SAME]


def test_a_wild_row_is_ambiguous_and_not_the_same():
    wild = [30 * p for p in STEADY]
    (found,) = v.judge([row(wild)], [None], RULES)
    assert found.verdict == AMBIGUOUS
    assert "neither above 0 nor below the floor" in found.reasons[0]


def test_one_among_many_needs_a_smaller_p():
    eight = STEADY[:8]
    slow, same = row(eight, 2.0), row(eight)
    assert judged(slow) == [SLOWER]
    found = v.judge([slow, *[same] * 19], [None] * 20, RULES)
    assert found[0].verdict == AMBIGUOUS
    assert "among all rows" in found[0].reasons[1]
    # all slower is no accident
    assert judged(*[slow] * 20) == [SLOWER] * 20
    # fresh rounds were asked for in advance
    assert v.confirm(slow, None, RULES).verdict == SLOWER


def test_what_the_clocks_explain_is_no_slowdown_of_the_code():
    lower_clocks = [math.log(0.985)] * 16
    (found,) = v.judge([row(STEADY, 1.5, lower_clocks)], [None], RULES)
    assert found.verdict == AMBIGUOUS
    assert "clocks" in found.reasons[1]
    assert judged(row(STEADY, 1.5, [0.0] * 16)) == [SLOWER]
    # half of the rounds without a reading
    assert judged(row(STEADY, 1.5, [math.nan, math.log(0.985)] * 8)) == [AMBIGUOUS]
    assert row(STEADY, 1.5, [math.nan] * 16).normalised is None


@pytest.mark.parametrize("count", [3, 4, 5, 6])
def test_the_bootstrap_is_the_one_over_all_resamples(count):
    values = np.array([0.3, -1.0, 0.7, 2.0, 0.1, 5.0][:count])
    medians = np.sort([np.median(resample) for resample in itertools.product(values, repeat=count)])
    for level in (0.005, 0.05, 0.2):
        lower, upper = v.median_bounds(values[None], level)
        # the smallest value with at least that share of the resamples below or at it
        for found, edge in ((lower[0], level), (upper[0], 1 - level)):
            assert (medians <= found + 1e-9).mean() >= edge - 1e-9
            assert (medians < found - 1e-9).mean() < edge


def test_the_bootstrap_is_scipys():
    from scipy.stats import bootstrap

    values = np.random.default_rng(3).normal(size=17)
    drawn = bootstrap(
        (values,), np.median, n_resamples=20_000, confidence_level=0.9, method="percentile", rng=1
    )
    lower, upper = v.median_bounds(values[None], 0.05)
    assert lower[0] == pytest.approx(drawn.confidence_interval.low, abs=0.02)
    assert upper[0] == pytest.approx(drawn.confidence_interval.high, abs=0.02)


def test_the_sign_test_is_scipys():
    from scipy.stats import binomtest

    found = row(STEADY, 0.15)
    above = sum(p + 0.15 > 0 for p in STEADY)
    assert found.p_slower == pytest.approx(binomtest(above, 16, alternative="greater").pvalue)


def test_discoveries_are_scipys():
    from scipy.stats import false_discovery_control

    draws = np.random.default_rng(5)
    for _ in range(50):
        p_values = np.concatenate([draws.random(8), draws.random(4) / 100])
        expected = false_discovery_control(p_values, method="bh") <= 0.05
        assert v.discoveries(list(p_values), 0.05) == expected.tolist()


def test_the_noise_of_a_median():
    draws = np.random.default_rng(7).normal(0, 0.01, (20_000, 32))
    assert np.median(draws, axis=1).std() == pytest.approx(v.estimate_noise(0.01, 32), rel=0.05)
    scatters = [one.scatter for one in v.figures(draws[:2000], None, RULES)]
    assert statistics.median(scatters) == pytest.approx(0.01, rel=0.03)


def test_error_rates_are_split_over_the_looks():
    rules = Rules(looks=(8, 16), alpha=0.02, fdr=0.1)
    assert (rules.bound_level, rules.row_level) == (0.01, 0.05)


def test_it_needs_no_torch():
    code = "import sys, pagegate.regress.looks; print([m for m in ('torch', 'triton', 'numpy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
