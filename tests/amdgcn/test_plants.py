"""Would a wrong instruction be noticed? Faults planted into our kernels' assembly, judged as any run is.

A sample of each kind; `python tests/amdgcn/plants.py` plants them all.
"""

from __future__ import annotations

import pytest

from pagegate.amdgcn import AssemblyError
from pagegate.amdgcn.program import load

from .attention import check_on, recorded
from .plants import SUBJECTS, Plant, Score, all_plants, clean_cases, judge, sample

KINDS = {"barrier", "wait", "LDS offset", "num_records"}


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize(
    ("target", "kernel", "subject", "kinds"),
    [
        ("gfx942", "unified", 0, {*KINDS, "matrix operands swapped", "dropped mask"}),
        ("gfx950", "unified", 1, {*KINDS, "matrix operands swapped"}),
        ("gfx942", "naive", 0, {*KINDS, "lane shuffle", "dropped exec"}),
    ],
    ids=["unified", "split", "naive"],
)
def test_planted_faults_are_caught(
    target: str, kernel: str, subject: int, kinds: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the faults that change any byte of memory at any barrier or launch end, nearly all are caught."""
    cases = clean_cases(target, kernel, SUBJECTS[kernel][subject][:2])
    chosen = sample(all_plants(cases), 2 if kernel == "naive" else 1, 2)
    assert kinds <= {plant.kind for plant in chosen}
    score = Score.of([(plant, judge(target, kernel, plant, cases)) for plant in chosen])
    with capsys.disabled():
        print(f"\n{kernel} on {target}: {score}", *score.notes, sep="\n  ")
    assert score.caught["barrier"] + score.idle["barrier"] == score.total["barrier"]
    assert score.share >= 0.75  # few plants: one survivor weighs a lot


@pytest.mark.usefixtures("compiled")
def test_barriers_without_a_race_share_no_byte() -> None:
    """The recorder that excuses them agrees with the shadow: nothing in a clean run, something without a
    barrier that orders."""
    cases = clean_cases("gfx942", "naive", SUBJECTS["naive"][0][:1])
    with recorded() as conflicts:
        check_on("gfx942", "naive", cases[0].line)
    assert conflicts() == 0
    found = set()
    for plant in [plant for plant in all_plants(cases) if plant.kind == "barrier"]:
        with recorded() as conflicts:
            _, session = check_on("gfx942", "naive", cases[0].line, plant.rewrite)
        raced = bool(session.report.of_kind("race"))
        assert raced or conflicts() == 0, plant
        found.add((raced, conflicts() > 0))
    assert (True, True) in found


@pytest.mark.usefixtures("compiled")
def test_a_fault_in_another_text_changes_nothing() -> None:
    """A plant belongs to one compiled text; a plant that does nothing is said to have no effect."""
    cases = clean_cases("gfx942", "naive", SUBJECTS["naive"][0][:1])
    barrier = next(plant for plant in all_plants(cases) if plant.kind == "wait")
    idle = Plant("wait", barrier.kernel, barrier.digest, barrier.line, f"s_waitcnt {barrier.line.arguments}")
    assert judge("gfx942", "naive", idle, cases) == "without effect"
    assert barrier.rewrite("s_endpgm\n") == "s_endpgm\n"


MINIMAL = """
	.text
	.globl	k
	.p2align	8
	.type	k,@function
k:
	{line}
	s_endpgm
	.section	.rodata,"a",@progbits
	.amdhsa_kernel k
		.amdhsa_kernarg_size 0
		.amdhsa_user_sgpr_count 2
	.end_amdhsa_kernel
"""


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("v_frobnicate_b32 v0, v1", "v_frobnicate_b32 is unknown; describe it"),
        ("v_add_f32_e64 v0, v1, v2 frob:1", "modifier frob:1 is not modelled"),
        ("v_mov_b32_dpp v0, v1 row_mask:0xf bank_mask:0xf", "DPP control is not modelled"),
        ("v_add_u32_e32 v0, v[2:3], v1", "required 1 registers"),
        ("v_add_u32_e32 v0, v1", "required 3 operands, found 2"),
        ("s_branch .LBB0_9", "required a label of this kernel"),
        ("ds_read_b32 v0, v1 gds", "modifier gds:1 is not modelled"),
    ],
)
def test_what_is_not_modelled_is_an_error(line: str, complaint: str) -> None:
    with pytest.raises(AssemblyError, match=complaint.replace("(", r"\(")) as error:
        load(MINIMAL.format(line=line), "gfx942")
    assert "line 7" in str(error.value)
