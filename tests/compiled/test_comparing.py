"""Two tables beside each other: what is said of launches, workloads, variants and versions."""

from dataclasses import replace

import pytest

from pagegate.compiled import comparing
from pagegate.compiled.figures import Compiled, Figures, Mix, Variant

LOOPS = Mix(instructions=1000, matrix={"HMMA.16816.F32.BF16": 64}, loads={16: 32})
BASE = Figures(
    registers=128, agprs=0, sgprs=0, spills=0, sgpr_spills=0, scratch=0, shared=32768, groups=4, warps=16,
    limit="registers", code=20000, total=LOOPS, loops=LOOPS,
)  # fmt: skip
SPILLED = replace(BASE, spills=4)


def table(figures, workloads=("w1", "w2"), kernel="k", triton="3.6.0", problem="", **options):
    """One variant, launched by all."""
    variant = Variant(kernel, options or {"TILE": 64}, figures, problem)
    names = {f"{name} ours": ("v",) for name in workloads}
    return Compiled("sm_90", triton, dict.fromkeys(workloads, "q1s9"), names, {"v": variant})


def test_equal_tables_are_the_same():
    assert comparing.compare(table(BASE), table(BASE)) == []
    assert comparing.overall([]) == "SAME"


def test_launches_share_a_finding():
    (finding,) = comparing.compare(table(BASE), table(SPILLED))
    assert (finding.verdict, finding.rule, finding.where) == ("SLOWER", "spills", "k")
    assert finding.reason == "registers spilled to memory: 0 before, 4 now"
    assert finding.launches == ("w1 ours", "w2 ours")


def test_a_renamed_kernel_is_compared_by_its_launches():
    assert comparing.compare(table(BASE), table(BASE, kernel="renamed")) == []


def test_what_cannot_launch_is_wrong_also_with_a_baseline_that_could_not():
    for before in (table(BASE), table(BASE, problem="cannot launch: too much"), table(None, problem="fails")):
        findings = comparing.compare(before, table(None, problem="cannot launch: 9 bytes"))
        assert [(f.verdict, f.reason) for f in findings] == [("WRONG", "cannot launch: 9 bytes")]
    assert comparing.overall(comparing.compare(table(None, problem="fails"), table(BASE))) == "FASTER"


def test_a_new_launch_is_incomparable_and_a_missing_one_was_not_selected():
    findings = comparing.compare(table(BASE, ("w1",)), table(BASE, ("w1", "w2")))
    assert [(f.verdict, f.rule, f.launches) for f in findings] == [("INCOMPARABLE", "missing", ("w2 ours",))]
    assert comparing.compare(table(BASE, ("w1", "w2")), table(BASE, ("w1",))) == []


def test_a_new_launch_that_cannot_launch_is_wrong():
    findings = comparing.compare(table(BASE, ("w1",)), table(None, ("w2",), problem="cannot launch: 9 bytes"))
    assert comparing.overall(findings) == "WRONG"


def test_what_is_refused_now_does_not_pass():
    after = replace(table(BASE, ("w1",)), refused={"w2 ours": "takes no sinks", "w3 ours": "takes no sinks"})
    (finding,) = comparing.compare(table(BASE, ("w1", "w2")), after)
    assert (finding.verdict, finding.rule, finding.launches) == ("INCOMPARABLE", "refused", ("w2 ours",))
    assert finding.reason == "launched before, and not now: takes no sinks"


def test_another_workload_under_an_old_name_is_not_compared():
    edited = replace(table(SPILLED, ("w1", "w2")), workloads={"w1": "q1s9", "w2": "q1s77"})
    found = {f.rule: f for f in comparing.compare(table(BASE), edited)}
    assert found["spills"].launches == ("w1 ours",)
    assert (found["workload"].verdict, found["workload"].launches) == ("INCOMPARABLE", ("w2 ours",))
    assert found["workload"].reason == "another workload under this name: q1s9 before, q1s77 now"
    broken = replace(edited, variants=table(None, problem="cannot launch: 9 bytes").variants)
    assert comparing.overall(comparing.compare(table(BASE), broken)) == "WRONG"


def test_variants_of_edited_workloads_are_not_counted():
    before = table(BASE, ("w1", "w2"))
    more = {"v": before.variants["v"], "u": before.variants["v"]}
    after = replace(before, launches={"w1 ours": ("v",), "w2 ours": ("u",)}, variants=more)
    assert [f.rule for f in comparing.compare(before, after)] == ["variants"]
    after = replace(after, workloads={"w1": "q1s9", "w2": "q1s77"})
    assert [f.rule for f in comparing.compare(before, after)] == ["workload"]


def test_another_number_of_launches():
    twice = replace(table(BASE, ("w1",)), launches={"w1 ours": ("v", "v")})
    (finding,) = comparing.compare(table(BASE, ("w1",)), twice)
    assert finding.verdict == "AMBIGUOUS"
    assert finding.reason == "kernels that one call launches: k before, k, k now"


def test_variants_are_counted_over_what_both_launch():
    def spread(count):
        variants = {f"v{n}": Variant("k", {"LENGTH": n}, BASE) for n in range(count)}
        workloads = {f"w{n}": "q1s9" for n in range(4)}
        launches = {f"w{n} ours": (f"v{n % count}",) for n in range(4)}
        return Compiled("sm_90", "3.6.0", workloads, launches, variants)

    findings = [f for f in comparing.compare(spread(1), spread(4)) if f.rule == "variants"]
    assert [(f.verdict, f.where) for f in findings] == [("SLOWER", "ours")]
    assert findings[0].reason.startswith("compiled variants over 4 workloads: 1 before, 4 now;")
    assert [f.verdict for f in comparing.compare(spread(4), spread(2)) if f.rule == "variants"] == ["FASTER"]
    # a workload more is no variant more of those that were there
    fewer = replace(spread(4), launches={"w0 ours": ("v0",)})
    assert not [f for f in comparing.compare(fewer, spread(4)) if f.rule == "variants"]


def test_another_configuration_is_for_a_clock_to_judge():
    (finding,) = comparing.compare(table(BASE, TILE=64, STAGES=2), table(BASE, TILE=128, STAGES=2))
    assert (finding.verdict, finding.rule) == ("AMBIGUOUS", "configuration")
    assert finding.reason == "launched otherwise, which only a clock can judge: TILE 64 -> 128"


def test_a_new_constexpr_is_no_other_configuration():
    """Counts per step are compared still."""
    more = replace(BASE, loops=replace(LOOPS, instructions=2000))
    before, after = table(BASE, TILE=64, OLD=1), table(more, TILE=64, NEW=1)
    assert comparing.compare(before, table(BASE, TILE=64, NEW=1)) == []
    assert [f.rule for f in comparing.compare(before, after)] == ["instructions"]
    changed = table(more, TILE=32, NEW=1)
    assert [f.rule for f in comparing.compare(before, changed)] == ["configuration"]


@pytest.mark.parametrize(
    ("verdicts", "worst"),
    [(["FASTER", "SLOWER"], "SLOWER"), (["SLOWER", "WRONG"], "WRONG"), (["AMBIGUOUS", "INCOMPARABLE"], "INCOMPARABLE"),
     (["SAME", "FASTER"], "FASTER"), (["AMBIGUOUS", "FASTER"], "AMBIGUOUS")],
)  # fmt: skip
def test_the_worst_verdict_counts(verdicts, worst):
    assert comparing.overall([comparing.Finding(verdict, "", "", "") for verdict in verdicts]) == worst


def test_another_triton_says_what_to_do():
    finding = comparing.no_baseline(table(BASE, triton="3.9.0"), ["3.6.0"])
    assert finding.verdict == "INCOMPARABLE"
    for words in ("required a baseline of triton 3.9.0, found 3.6.0", "install triton 3.6.0", "--base REV", "--update --reason TEXT",
                  "`pagegate compiled --triton 3.6.0 --triton 3.9.0`"):  # fmt: skip
        assert words in finding.reason
    assert "found none at all" in comparing.no_baseline(table(BASE), []).reason
