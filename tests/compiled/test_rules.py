"""Each rule on figures made for it: what it says, and what it lets pass."""

from dataclasses import replace

import pytest

from pagegate.compiled import rules
from pagegate.compiled.figures import Figures, Mix

LOOPS = Mix(
    instructions=1000, matrix={"HMMA.16816.F32.BF16": 64}, loads={16: 32, 4: 4}, async_loads=32, shared=100,
    barriers=3, exponentials=32, masks=100, branches=3,
)  # fmt: skip
BASE = Figures(
    registers=128, agprs=0, sgprs=0, spills=0, sgpr_spills=0, scratch=0, shared=32768, groups=4, warps=16,
    limit="registers", code=20000, total=LOOPS, loops=LOOPS,
)  # fmt: skip


def changed(**fields):
    """BASE with other figures; those of a mix are changed in loops and in total alike."""
    mix = {name: value for name, value in fields.items() if hasattr(LOOPS, name) and not hasattr(BASE, name)}
    loops = replace(LOOPS, **mix)
    return replace(BASE, **{n: v for n, v in fields.items() if n not in mix}, loops=loops, total=loops)


def said(before, after, same=True):
    """rule -> verdict of every rule that says something."""
    words = {rule.__name__: rule(before, after, same) for rule in rules.RULES}
    return {name: word[0] for name, word in words.items() if word is not None}


TABLE = [
    pytest.param({}, {}, id="nothing"),
    pytest.param({"registers": 140}, {}, id="registers within a step of occupancy"),
    pytest.param({"spills": 1}, {"spills": "SLOWER"}, id="one spill"),
    pytest.param({"spills": 12, "scratch": 48}, {"spills": "SLOWER"}, id="spills are not said twice"),
    pytest.param({"scratch": 16}, {"scratch": "SLOWER"}, id="an array in private memory"),
    pytest.param({"warps": 12}, {"occupancy": "SLOWER"}, id="a step of occupancy"),
    pytest.param({"warps": 20}, {"occupancy": "FASTER"}, id="a step up"),
    pytest.param({"matrix": {}}, {"matrix": "SLOWER"}, id="no matrix instructions"),
    pytest.param({"matrix": {"HMMA.1688.F32.BF16": 128}}, {"matrix": "SLOWER"}, id="smaller ones"),
    pytest.param({"matrix": {"HGMMA.64x64x16.F32.BF16": 8}}, {"matrix": "FASTER"}, id="larger ones"),
    pytest.param({"matrix": {"UTCHMMA": 8}}, {}, id="of unknown size"),
    pytest.param({"matrix": {"HMMA.16816.F32.BF16": 32}}, {}, id="fewer of the same"),
    pytest.param({"loads": {2: 256, 4: 4}}, {"loads": "SLOWER"}, id="narrow loads"),
    pytest.param({"loads": {16: 16, 8: 32, 4: 4}}, {"loads": "SLOWER"}, id="half of them"),
    pytest.param({"loads": {16: 32, 4: 8}}, {}, id="some more of a table"),
    pytest.param({"loads": {16: 16, 4: 2}}, {}, id="fewer, as wide"),
    pytest.param({"loads": {}}, {}, id="none left: moved elsewhere"),
    pytest.param({"async_loads": 0}, {"async_loads": "SLOWER"}, id="no longer ahead"),
    pytest.param({"async_loads": 16}, {"async_loads": "SLOWER"}, id="half of them"),
    pytest.param({"async_loads": 16, "loads": {16: 16}}, {}, id="half of them, and of all"),
    pytest.param({"async_loads": 30}, {}, id="fewer ahead"),
    pytest.param({"masks": 125}, {"masks": "SLOWER"}, id="masks"),
    pytest.param({"masks": 124}, {}, id="some masks"),
    pytest.param({"exponentials": 40}, {"exponentials": "SLOWER"}, id="exponentials"),
    pytest.param({"exponentials": 39}, {}, id="one exponential or few"),
    pytest.param({"barriers": 4}, {"barriers": "AMBIGUOUS"}, id="a barrier"),
    pytest.param({"barriers": 2}, {}, id="a barrier less"),
    pytest.param({"shared": 125}, {"shared_accesses": "AMBIGUOUS"}, id="shared memory"),
    pytest.param({"instructions": 1049}, {}, id="a few instructions"),
    pytest.param({"instructions": 1050}, {"instructions": "AMBIGUOUS"}, id="more instructions"),
    pytest.param({"instructions": 1250}, {"instructions": "SLOWER"}, id="many more"),
    pytest.param({"instructions": 790}, {"instructions": "FASTER"}, id="many fewer"),
    pytest.param({"code": 200000}, {}, id="code size alone"),
]


@pytest.mark.parametrize(("fields", "expected"), TABLE)
def test_rules(fields, expected):
    # "shared" is both a figure and a count: here it is the count
    after = changed(**{name: value for name, value in fields.items() if name != "shared"})
    if "shared" in fields:
        after = replace(after, loops=replace(after.loops, shared=fields["shared"]))
    assert said(BASE, after) == expected


def test_gains_are_losses_from_the_other_side():
    for fields, rule in [({"spills": 9}, "spills"), ({"loads": {2: 256}}, "loads"), ({"async_loads": 0}, "async_loads"),
                         ({"matrix": {}}, "matrix"), ({"warps": 8}, "occupancy")]:  # fmt: skip
        assert said(BASE, changed(**fields))[rule] == "SLOWER"
        assert said(changed(**fields), BASE)[rule] == "FASTER"


def test_another_configuration_has_other_counts_per_step():
    after = changed(
        masks=200, exponentials=64, instructions=2000, barriers=6, matrix={"HMMA.1688.F32.BF16": 64}
    )
    assert said(BASE, after, same=False) == {"matrix": "AMBIGUOUS"}
    # spills count all the same, and warps of it are other warps
    assert said(BASE, changed(spills=1, warps=8), same=False) == {
        "spills": "SLOWER",
        "occupancy": "AMBIGUOUS",
    }
    assert said(BASE, changed(warps=32), same=False) == {"occupancy": "AMBIGUOUS"}
    # other tiles and warps have other loads, but asynchronous ones all the same
    assert said(BASE, changed(async_loads=16), same=False) == {}
    assert said(BASE, changed(async_loads=0), same=False) == {"async_loads": "SLOWER"}


@pytest.mark.parametrize(
    ("kind", "work"),
    [("HMMA.16816.F32.BF16", 2048), ("HMMA.1688.F32.TF32", 1024), ("IMMA.16832.S8.S8", 4096), ("HGMMA.64x128x16.F32", 131072),
     ("v_mfma_f32_32x32x8_bf16", 8192), ("v_mfma_f32_16x16x16bf16_1k", 4096), ("UTCHMMA", 0)],
)  # fmt: skip
def test_work_of_matrix_instructions(kind, work):
    assert rules.matrix_work(kind) == work


def test_reasons_have_the_figures():
    words = rules.loads(BASE, changed(loads={2: 256, 4: 4}), True)[1]
    assert words == (
        "narrower global loads in loops, bytes per lane: 32 of 16 and 4 of 4 before, 4 of 4 and 256 of 2 now"
    )
    words = rules.occupancy(BASE, changed(warps=8, limit="shared memory"), True)[1]
    assert words == (
        "occupancy: 16 warps per multiprocessor before, 8 now; 32,768 bytes of shared memory per group (32,768 before)"
    )
