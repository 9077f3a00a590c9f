"""Slow kernels are noticed for the right reason, and edits that change nothing change nothing."""

from dataclasses import replace

import pytest

from pagegate.cases.workloads import find_workloads
from pagegate.compiled import rules
from pagegate.compiled.table import Toolchain, compile_table

from .plants import NEUTRAL, PLANTS, copy_with

NAMES = ("doubled_tile", "runtime_inner_stride", "constexpr_tokens", "lds_over_limit", "masks_everywhere")


def cases(*expressions):
    return {row.name: row.case for e in expressions for row in find_workloads("pr", e)}


@pytest.fixture(scope="module")
def toolchain(tmp_path_factory):
    return Toolchain(cache=tmp_path_factory.mktemp("figures"))


@pytest.fixture(scope="module")
def base(toolchain):
    """By target: the kernels as they are, on every workload that a plant shows on."""
    targets = {target for plant in PLANTS for target in plant.targets}
    tables = {}
    for target in targets:
        mine = [plant.workloads for plant in PLANTS if target in plant.targets]
        tables[target], refused = compile_table(target, cases(*mine, "dec_b1_c512"), ["unified"], toolchain)
        assert not refused
        assert not rules.problems(tables[target])
    return tables


def test_the_plants_are_those_that_have_to_be_noticed():
    assert tuple(plant.name for plant in PLANTS) == NAMES


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.name)
def test_a_slow_kernel_is_noticed(plant, base, toolchain, tmp_path):
    root = copy_with(plant, tmp_path / "kernels")
    for target in plant.targets:
        head, _ = compile_table(
            target, cases(plant.workloads), ["unified"], replace(toolchain, kernels_root=root)
        )
        findings = rules.compare(base[target], head)
        assert rules.overall(findings) in ("SLOWER", "WRONG"), findings
        for rule in plant.rules:
            (worst, *_) = [finding for finding in findings if finding.rule == rule]
            assert worst.verdict == ("WRONG" if rule == "launchable" else "SLOWER")
            assert any(digit in worst.reason for digit in "123456789")


def test_comments_and_names_change_nothing(base, toolchain, tmp_path):
    root = toolchain.kernels_root
    for number, plant in enumerate(NEUTRAL):
        root = copy_with(plant, tmp_path / str(number), root)
    head, _ = compile_table("sm_90", cases("dec_b1_c512"), ["unified"], replace(toolchain, kernels_root=root))
    assert {variant.kernel for variant in head.variants.values()} == {"unified_kernel", "merge_splits_kernel"}
    assert rules.compare(base["sm_90"], head) == []
