"""Occupancy against NVIDIA's calculator and against what LLVM printed for real kernels."""

import pytest

from pagegate.compiled.targets import DEFAULT, TARGETS, find_target, occupancy
from pagegate.errors import UsageError

# registers, shared bytes, warps -> groups per multiprocessor, by the CUDA occupancy calculator's rules
NVIDIA = [
    ("sm_90", 32, 0, 4, 16, "warps"),
    ("sm_90", 33, 0, 4, 12, "registers"),  # 40 of a partition's 512 for each lane: 12 warps, not 12.8
    ("sm_90", 64, 0, 4, 8, "registers"),
    ("sm_90", 128, 0, 8, 2, "registers"),
    ("sm_90", 255, 0, 8, 1, "registers"),
    ("sm_90", 168, 0, 12, 1, "registers"),
    ("sm_90", 16, 0, 1, 32, "groups"),
    ("sm_90", 32, 100 << 10, 4, 2, "shared memory"),
    ("sm_90", 32, 113 << 10, 4, 2, "shared memory"),  # exactly half, with the kilobyte that the system keeps
    ("sm_90", 32, (113 << 10) + 1, 4, 1, "shared memory"),
    ("sm_90", 32, 227 << 10, 4, 1, "shared memory"),
    ("sm_90", 32, (227 << 10) + 1, 4, 0, "shared memory"),
    ("sm_80", 32, 163 << 10, 4, 1, "shared memory"),
    ("sm_80", 32, 164 << 10, 4, 0, "shared memory"),
    ("sm_90", 255, 0, 16, 0, "registers"),  # 16 warps of 256 registers are twice what there is
    ("sm_90", 65, 0, 32, 0, "registers"),
]


@pytest.mark.parametrize(("target", "registers", "shared", "warps", "groups", "limit"), NVIDIA)
def test_nvidia(target, registers, shared, warps, groups, limit):
    held = occupancy(find_target(target), registers, shared, warps)
    assert (held.groups, held.warps, held.limit) == (groups, groups * warps, limit)


# vector registers, scalar registers, waves per SIMD: from "; Occupancy:" in the assembly of our kernels
LLVM = {
    "gfx90a": [
        (54, 60, 8),
        (79, 60, 6),
        (82, 70, 5),
        (96, 52, 5),
        (172, 100, 2),
        (252, 100, 2),
        (280, 100, 1),
    ],
    "gfx942": [
        (62, 62, 8),
        (79, 62, 6),
        (82, 72, 5),
        (87, 58, 5),
        (184, 106, 2),
        (248, 106, 2),
        (264, 106, 1),
    ],
    "gfx950": [
        (54, 62, 8),
        (79, 62, 6),
        (81, 72, 5),
        (160, 106, 3),
        (164, 106, 3),
        (252, 106, 2),
        (304, 104, 1),
    ],
    "gfx1201": [
        (88, 46, 16),
        (115, 56, 12),
        (161, 107, 9),
        (226, 100, 6),
        (233, 107, 6),
        (249, 100, 5),
        (256, 66, 5),
    ],
}


@pytest.mark.parametrize(
    ("target", "vector", "scalar", "waves"), [(t, *row) for t, rows in LLVM.items() for row in rows]
)
def test_amd_as_llvm_says(target, vector, scalar, waves):
    assert occupancy(find_target(target), vector, 0, num_warps=4, sgprs=scalar).groups == waves


def test_lds_of_amd():
    gfx942, gfx950 = find_target("gfx942"), find_target("gfx950")
    assert occupancy(gfx942, 64, 32 << 10, 4).groups == 2
    assert occupancy(gfx942, 64, (32 << 10) + 1, 4).groups == 1
    assert occupancy(gfx942, 64, (64 << 10) + 1, 4).groups == 0
    assert occupancy(gfx950, 64, (64 << 10) + 1, 4).groups == 2
    assert occupancy(find_target("gfx1201"), 64, 64 << 10, 4).groups == 2  # of 128 KiB
    assert occupancy(find_target("gfx1201"), 64, (64 << 10) + 1, 4).groups == 0


def test_more_resources_never_raise_occupancy():
    for target in TARGETS.values():
        for warps in (1, 2, 4, 8):
            by_registers = [occupancy(target, n, 0, warps).groups for n in range(1, 600)]
            by_shared = [occupancy(target, 32, n, warps).groups for n in range(0, 260 << 10, 777)]
            for groups in (by_registers, by_shared):
                assert groups == sorted(groups, reverse=True)
                assert groups[0] > 0
                assert groups[-1] == 0


def test_unknown_target():
    with pytest.raises(UsageError, match=r"required one of sm_80, .*gfx1201; found 'sm_1'"):
        find_target("sm_1")
    assert set(DEFAULT) <= set(TARGETS)
