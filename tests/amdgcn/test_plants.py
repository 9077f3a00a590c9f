"""Would a wrong instruction be noticed? Faults planted into our kernels' assembly, judged as any run is."""

from __future__ import annotations

from collections import Counter

import pytest

from pagegate.amdgcn import AssemblyError
from pagegate.amdgcn.program import load

from .attention import check_on, traced
from .plants import Plant, plants

SUBJECTS = {
    "unified": "q1s90_q18s250 h4/2 d80 fp16",
    "naive": "q1s90_q6s70 h4/2 d80 fp16 window=20",
}
EXPECTED = 0.9
# why faults of a kind may change memory and still not the answer
REASONS = {
    "dropped mask": "keys let through are masked again by their scores; padded columns meet zeros of Q",
    "LDS offset": "it moves zeros of a masked or padded part onto zeros",
    "lane shuffle": "only the other half of a butterfly is read",
    "dropped exec": "the lanes let through write bytes that nobody reads",
}


@pytest.mark.parametrize("kernel", list(SUBJECTS))
def test_planted_faults_are_caught(target: str, kernel: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Of the faults that change any byte of memory at any barrier or launch end, nearly all are caught."""
    with traced() as clean:
        result, session = check_on(target, kernel, SUBJECTS[kernel])
    assert result.status == "PASSED"
    total, caught, notes = Counter[str](), Counter[str](), list[str]()
    for coverage in session.report.coverage.values():
        for plant in plants(coverage):
            verdict = judge(target, kernel, plant, clean.digest())
            if verdict != "without effect":
                total[plant.kind] += 1
                caught[plant.kind] += verdict == "caught"
            if verdict != "caught":
                reason = REASONS.get(plant.kind, "no reason known") if verdict == "survived" else ""
                notes.append(f"  {verdict}: {plant.kind}, {plant.line} -> {plant.replacement} {reason}")
    with capsys.disabled():
        shares = ", ".join(f"{kind} {caught[kind]}/{count}" for kind, count in sorted(total.items()))
        print(f"\n{kernel} on {target}: {shares}", *notes, sep="\n")
    assert sum(caught.values()) >= EXPECTED * sum(total.values())


def judge(target: str, kernel: str, plant: Plant, clean: bytes) -> str:
    """ "caught", "survived", or "without effect": every byte in memory stays the same in this case.

    A barrier is caught by a race alone. One whose sides share no byte orders nothing in this case.
    """
    with traced() as trace:
        result, session = check_on(target, kernel, SUBJECTS[kernel], plant.rewrite)
    if plant.kind == "barrier":
        return "caught" if session.report.of_kind("race") else "without effect"
    if result.status != "PASSED" or session.report.findings:
        return "caught"
    if trace.digest() == clean:
        return "without effect"
    result, session = check_on(target, kernel, SUBJECTS[kernel], plant.rewrite, relations=None)
    return "caught" if result.status != "PASSED" or session.report.findings else "survived"


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
