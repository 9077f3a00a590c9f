"""Slow kernels are noticed for the right reason, and edits that change nothing change nothing."""

import pytest

from pagegate.cases.workloads import find_workloads
from pagegate.compiled import comparing
from pagegate.compiled.table import Toolchain, compile_table

from .plants import NEUTRAL, PLANTS, TIMED, UNPLANTED, plugin_of, side_of

NAMES = ("doubled_tile", "runtime_inner_stride", "constexpr_tokens", "lds_over_limit", "masks_everywhere")
CONFIG = {"block_m": 64, "num_warps": 4, "num_stages": 2}
WORDS = {
    "spills": "spilled",
    "loads": "narrower",
    "variants": "variants",
    "launchable": "LDS",
    "masks": "masking",
}


def rows_of(plant):
    return [row.name for row in find_workloads("pr", plant.workloads)]


def compiled(target, plants, cases, folder, **changes):
    plugin = plugin_of(plants, folder, CONFIG | changes)
    toolchain = Toolchain(plugins=(str(plugin),), cache=folder / "figures", workers=1)
    names = [plant.name for plant in (UNPLANTED, *plants)]
    table = compile_table(target, cases, names, toolchain)
    assert not table.refused
    return table


def test_the_plants_are_those_that_have_to_be_noticed():
    assert tuple(plant.name for plant in PLANTS) == NAMES
    assert {plant.targets for plant in PLANTS} == {("sm_90",), ("gfx942",)}


def test_the_plants_that_are_timed_still_fit_the_kernels(tmp_path):
    timed = [plant for plant in (*PLANTS, *TIMED) if plant.timed]
    plugin_of(timed, tmp_path)
    assert len(timed) >= 6
    assert all(find_workloads("pr", plant.timed) for plant in timed)


@pytest.mark.parametrize(("target", "tile"), [("sm_90", 64), ("gfx942", 32)])
def test_slow_kernels_are_noticed(target, tile, tmp_path):
    plants = [plant for plant in PLANTS if target in plant.targets]
    cases = {row.name: row.case for plant in plants for row in find_workloads("pr", plant.workloads)}
    # few registers, so that a doubled tile spills whatever the version of ptxas
    bound = {"maxnreg": 168} if target == "sm_90" else {}
    table = compiled(target, plants, cases, tmp_path, tile=tile, **bound)
    assert comparing.problems(side_of(table, "unplanted", cases)) == []
    for plant in plants:
        before, after = (side_of(table, name, rows_of(plant)) for name in ("unplanted", plant.name))
        assert comparing.compare(before, before) == []
        findings = comparing.compare(before, after)
        for rule in plant.rules:
            reasons = [f.reason for f in findings if f.rule == rule and f.verdict in ("SLOWER", "WRONG")]
            assert reasons, (plant.name, findings)
            assert WORDS[rule] in reasons[0]
            assert any(digit in reasons[0] for digit in "123456789")


def test_comments_and_names_change_nothing(tmp_path):
    """Also where the reduction is launched."""
    cases = {row.name: row.case for row in find_workloads("pr", "dec_b1_c512")}
    table = compiled("gfx942", NEUTRAL, cases, tmp_path, block_m=16, tile=16, num_splits=2)
    kernels = {variant.kernel for variant in table.variants.values()}
    assert {"unified_kernel", "reduce_splits_kernel", "merge_splits_kernel"} == kernels
    before = side_of(table, "unplanted", cases)
    for plant in NEUTRAL:
        assert comparing.compare(before, side_of(table, plant.name, cases)) == []
