"""Each rule on figures made for it: what it says, and what it lets pass."""

from dataclasses import replace

import pytest

from pagegate.compiled import rules
from pagegate.compiled.figures import Compiled, Figures, Mix, Variant

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
    # resources count all the same
    assert said(BASE, changed(spills=1, warps=8), same=False) == {"spills": "SLOWER", "occupancy": "SLOWER"}


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


def table(figures, launches=("w1", "w2"), kernel="k", triton="3.6.0", problem="", **options):
    """One variant, launched by all."""
    variant = Variant(kernel, options or {"TILE": 64}, figures, problem)
    names = {f"{name} ours": ("v",) for name in launches}
    return Compiled("sm_90", triton, names, {"v": variant})


def test_equal_tables_are_the_same():
    assert rules.compare(table(BASE), table(BASE)) == []
    assert rules.overall([]) == "SAME"


def test_launches_share_a_finding():
    (finding,) = rules.compare(table(BASE), table(changed(spills=4)))
    assert (finding.verdict, finding.rule, finding.where) == ("SLOWER", "spills", "k")
    assert finding.reason == "registers spilled to memory: 0 before, 4 now"
    assert finding.launches == ("w1 ours", "w2 ours")


def test_a_renamed_kernel_is_compared_by_its_launches():
    assert rules.compare(table(BASE), table(BASE, kernel="renamed")) == []


def test_what_cannot_launch_is_wrong_also_with_a_baseline_that_could_not():
    for before in (table(BASE), table(BASE, problem="cannot launch: too much"), table(None, problem="fails")):
        findings = rules.compare(before, table(None, problem="cannot launch: 9 bytes"))
        assert [(f.verdict, f.reason) for f in findings] == [("WRONG", "cannot launch: 9 bytes")]
    assert rules.overall(rules.compare(table(None, problem="fails"), table(BASE))) == "FASTER"


def test_a_new_launch_is_incomparable_and_a_missing_one_was_not_selected():
    findings = rules.compare(table(BASE, ("w1",)), table(BASE, ("w1", "w2")))
    assert [(f.verdict, f.rule, f.launches) for f in findings] == [("INCOMPARABLE", "missing", ("w2 ours",))]
    assert rules.compare(table(BASE, ("w1", "w2")), table(BASE, ("w1",))) == []


def test_a_new_launch_that_cannot_launch_is_wrong():
    findings = rules.compare(table(BASE, ("w1",)), table(None, ("w2",), problem="cannot launch: 9 bytes"))
    assert rules.overall(findings) == "WRONG"


def test_another_number_of_launches():
    twice = Compiled("sm_90", "3.6.0", {"w1 ours": ("v", "v")}, table(BASE).variants)
    (finding,) = rules.compare(table(BASE, ("w1",)), twice)
    assert finding.verdict == "AMBIGUOUS"
    assert finding.reason == "kernels that one call launches: k before, k, k now"


def test_variants_are_counted_over_what_both_launch():
    def spread(count):
        variants = {f"v{n}": Variant("k", {"LENGTH": n}, BASE) for n in range(count)}
        return Compiled("sm_90", "3.6.0", {f"w{n} ours": (f"v{n % count}",) for n in range(4)}, variants)

    findings = [f for f in rules.compare(spread(1), spread(4)) if f.rule == "variants"]
    assert [(f.verdict, f.where) for f in findings] == [("SLOWER", "ours")]
    assert findings[0].reason.startswith("compiled variants over 4 workloads: 1 before, 4 now;")
    assert [f.verdict for f in rules.compare(spread(4), spread(2)) if f.rule == "variants"] == ["FASTER"]
    # a workload more is no variant more of those that were there
    fewer = Compiled("sm_90", "3.6.0", {"w0 ours": ("v0",)}, spread(4).variants)
    assert not [f for f in rules.compare(fewer, spread(4)) if f.rule == "variants"]


def test_a_changed_configuration_is_said_and_is_no_verdict():
    (finding,) = rules.compare(table(BASE, TILE=64), table(BASE, TILE=128))
    assert (finding.verdict, finding.rule) == ("SAME", rules.CONFIGURATION)
    assert finding.reason == "configuration: TILE 64 -> 128"


@pytest.mark.parametrize(
    ("verdicts", "worst"),
    [(["FASTER", "SLOWER"], "SLOWER"), (["SLOWER", "WRONG"], "WRONG"), (["AMBIGUOUS", "INCOMPARABLE"], "INCOMPARABLE"),
     (["SAME", "FASTER"], "FASTER"), (["AMBIGUOUS", "FASTER"], "AMBIGUOUS")],
)  # fmt: skip
def test_the_worst_verdict_counts(verdicts, worst):
    assert rules.overall([rules.Finding(verdict, "", "", "") for verdict in verdicts]) == worst


def test_another_triton_says_what_to_do():
    finding = rules.no_baseline(table(BASE, triton="3.9.0"), ["3.6.0"])
    assert finding.verdict == "INCOMPARABLE"
    for words in ("required a baseline of triton 3.9.0, found 3.6.0", "install triton 3.6.0", "--base REV", "--update --reason TEXT",
                  "`pagegate compiled --triton 3.6.0 --triton 3.9.0`"):  # fmt: skip
        assert words in finding.reason
    assert "found none at all" in rules.no_baseline(table(BASE), []).reason
