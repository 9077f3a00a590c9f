"""Would a wrong instruction be noticed? Faults planted into our kernels' assembly, judged as any run is."""

from __future__ import annotations

from collections import Counter

import pytest

from pagegate.amdgcn import AssemblyError
from pagegate.amdgcn.program import load

from .attention import check_on
from .plants import Plant, plants

SUBJECTS = {
    "unified": "q1s90_q18s250 h4/2 d64 fp16",
    "naive": "q1s90_q6s70 h4/2 d64 fp16 window=20",
}
PER_KIND = 10
EXPECTED = 0.9
# why a survivor need not be a hole; each is asserted to be as harmless as it says
HARMLESS = {
    "barrier": "no two waves touch the same LDS byte on its two sides in this case",
    "wait": "everything it waits for has already come",
    "lane shuffle": "only the other half of the row is used, or its lanes hold the same value",
    "dropped exec": "the lanes let through hold and write the same values",
    "dropped mask": "the lanes let through read what is never used",
}


@pytest.mark.parametrize("kernel", list(SUBJECTS))
def test_planted_faults_are_caught(target: str, kernel: str, capsys: pytest.CaptureFixture[str]) -> None:
    clean, session = check_on(target, kernel, SUBJECTS[kernel])
    assert clean.status == "PASSED"
    total, caught, survivors = Counter[str](), Counter[str](), list[Plant]()
    for coverage in session.report.coverage.values():
        for plant in plants(coverage, PER_KIND):
            total[plant.kind] += 1
            if is_caught(target, kernel, plant):
                caught[plant.kind] += 1
            else:
                survivors.append(plant)
    with capsys.disabled():
        shares = ", ".join(f"{kind} {caught[kind]}/{count}" for kind, count in sorted(total.items()))
        print(f"\n{kernel} on {target}: {shares}")
        for plant in survivors:
            print(
                f"  survived: {plant.line} -> {plant.replacement}: {HARMLESS.get(plant.kind, 'unexplained')}"
            )
    unexplained = [plant for plant in survivors if plant.kind not in HARMLESS]
    assert not unexplained
    assert sum(caught.values()) >= EXPECTED * sum(total.values())


def is_caught(target: str, kernel: str, plant: Plant) -> bool:
    result, session = check_on(target, kernel, SUBJECTS[kernel], rewrite=plant.rewrite)
    if plant.kind == "barrier":
        return bool(session.report.of_kind("race"))
    return result.status != "PASSED" or bool(session.report.findings)


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
