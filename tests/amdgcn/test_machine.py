"""The machine itself, on hand-written assembly: entry, jumps, waits, races, bounds, divergence."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from pagegate.amdgcn.arguments import Value
from pagegate.amdgcn.memory import AddressSpace
from pagegate.amdgcn.program import load
from pagegate.amdgcn.run import Outcome, run_launch

TEXT = """
	.text
	.p2align	8
	.type	k,@function
k:
{head}{code}
	s_endpgm
	.section	.rodata,"a",@progbits
	.amdhsa_kernel k
		.amdhsa_group_segment_fixed_size 1024
		.amdhsa_private_segment_fixed_size 16
		.amdhsa_kernarg_size 8
		.amdhsa_user_sgpr_count {users}
		.amdhsa_user_sgpr_kernarg_segment_ptr 1
		.amdhsa_user_sgpr_kernarg_preload_length {preload}
		.amdhsa_system_sgpr_workgroup_id_x 1
	.end_amdhsa_kernel
	.amdgpu_metadata
---
amdhsa.kernels:
  - .args:
      - .address_space:  global
        .offset:         0
        .size:           8
        .value_kind:     global_buffer
    .name:           k
...
"""
# s[2:3]: the tensor's address; v1: byte offset of this work item's word
LOAD = "s_load_dwordx2 s[2:3], s[0:1], 0x0"
OWN = "v_lshlrev_b32_e32 v1, 2, v0"
STORE = "global_store_dword v1, v2, s[2:3]"


def execute(code: list[str], warps: int = 1, groups: int = 1, preload: int = 0) -> tuple[np.ndarray, Outcome]:
    """Run lines on a tensor of one word per work item; returns it and what the run showed."""
    head = "\tv_mov_b32_e32 v2, 99\n\ts_branch .LBB0_0\n\t.p2align\t8\n.LBB0_0:\n" if preload else ""
    body = "\n".join(line if line.endswith(":") else f"\t{line}" for line in code)
    program = load(TEXT.format(head=head, code=body, users=2 + preload, preload=preload), "gfx942")
    memory = AddressSpace()
    data = np.full(64 * warps * groups, 7, np.uint32)
    tensor = memory.add_bytes("out", data.view(np.uint8))
    outcome = run_launch(program, memory, [Value("out", "*i32", tensor.base)], (groups, 1, 1), warps)
    return data, outcome


def kinds(outcome: Outcome) -> list[str]:
    return [finding.kind for finding in outcome.findings]


def test_arguments_come_through_the_segment_pointer() -> None:
    data, outcome = execute([LOAD, OWN, "v_mov_b32_e32 v2, v0", "s_waitcnt lgkmcnt(0)", STORE])
    assert data.tolist() == list(range(64))
    assert not outcome.findings


def test_preloaded_arguments_enter_behind_the_second_alignment() -> None:
    data, outcome = execute([OWN, "v_mov_b32_e32 v2, 5", STORE], preload=2)
    assert data.tolist() == [5] * 64
    assert not outcome.findings


def test_a_load_used_before_its_wait() -> None:
    data, outcome = execute([LOAD, OWN, "v_mov_b32_e32 v2, v0", STORE])
    assert "register used before its wait" in kinds(outcome)
    assert "s2 is still being loaded by line 6" in str(outcome.findings[0])
    assert data.tolist() == [7] * 64


@pytest.mark.parametrize(("allowed", "clean"), [(0, True), (1, False)])
def test_waits_count_in_order(allowed: int, clean: bool) -> None:
    code = [
        LOAD, OWN, "s_waitcnt lgkmcnt(0)",
        "global_load_dword v3, v1, s[2:3]",
        "global_load_dword v2, v1, s[2:3]",
        f"s_waitcnt vmcnt({allowed})",
        "v_add_u32_e32 v3, 1, v3",
        STORE,
    ]  # fmt: skip
    _, outcome = execute(code)
    assert (not outcome.findings) == clean


def test_a_full_counter_stalls() -> None:
    """With sixteen LDS reads in flight the first one has come: the counter holds fifteen."""
    reads = [f"ds_read_b32 v{register}, v1" for register in range(10, 26)]
    code = [OWN, "ds_write_b32 v1, v0", "s_waitcnt lgkmcnt(0)", *reads, "v_mov_b32_e32 v2, v10"]
    assert not execute(code)[1].findings
    code[-1] = "v_mov_b32_e32 v2, v11"
    assert kinds(execute(code)[1]) == ["register used before its wait"]


EXCHANGE = [
    LOAD, OWN, "ds_write_b32 v1, v0", "s_waitcnt lgkmcnt(0)",
    "s_barrier",
    "v_xor_b32_e32 v3, 0x100, v1",
    "ds_read_b32 v2, v3", "s_waitcnt lgkmcnt(0)", STORE,
]  # fmt: skip


def test_waves_exchange_through_local_memory() -> None:
    data, outcome = execute(EXCHANGE, warps=2, groups=1)
    assert data.tolist() == [*range(64, 128), *range(64)]
    assert not outcome.findings


@pytest.mark.parametrize("missing", [3, 4])
def test_a_missing_barrier_or_wait_before_it_is_a_race(missing: int) -> None:
    code = [line if number != missing else "s_nop 0" for number, line in enumerate(EXCHANGE)]
    _, outcome = execute(code, warps=2)
    assert "race" in kinds(outcome)


def test_out_of_bounds() -> None:
    code = [LOAD, OWN, "v_mov_b32_e32 v2, 1", "s_waitcnt lgkmcnt(0)", f"{STORE} offset:128"]
    data, outcome = execute(code)
    assert data.tolist() == [7] * 32 + [1] * 32
    assert kinds(outcome) == ["out-of-bounds access"]
    assert "store of 4 bytes at byte 256 of out, which has 256; 32 lanes" in str(outcome.findings[0])


def test_scratch_is_private_and_bounded() -> None:
    code = ["scratch_store_dword off, v0, off offset:12", "scratch_load_dword v2, off, off offset:12"]
    code = [LOAD, OWN, *code, "s_waitcnt vmcnt(0) lgkmcnt(0)", STORE]
    data, outcome = execute(code, warps=2)
    assert data.tolist() == list(range(128))
    assert not outcome.findings
    code[2] = "scratch_store_dword off, v0, off offset:16"
    assert "out-of-bounds access" in kinds(execute(code)[1])


def test_lanes_and_workgroups_diverge() -> None:
    """Workgroup g adds 1 in a loop g + 1 times, in the lanes below 32 only."""
    code = [
        LOAD, "s_lshl_b32 s5, s2, 8", "s_add_i32 s4, s2, 1", "v_mov_b32_e32 v2, 0",
        "v_cmp_gt_u32_e32 vcc, 32, v0", "s_waitcnt lgkmcnt(0)",
        "s_and_saveexec_b64 s[6:7], vcc",
        ".LBB0_1:",
        "v_add_u32_e32 v2, 1, v2", "s_add_i32 s4, s4, -1", "s_cmp_lg_u32 s4, 0", "s_cbranch_scc1 .LBB0_1",
        "s_mov_b64 exec, s[6:7]",
        OWN, "v_add_u32_e32 v1, s5, v1", STORE,
    ]  # fmt: skip
    code[0] = "s_load_dwordx2 s[8:9], s[0:1], 0x0"
    code[-1] = "global_store_dword v1, v2, s[8:9]"
    data, outcome = execute(code, groups=3)
    assert data.reshape(3, 64).tolist() == [[group + 1] * 32 + [0] * 32 for group in range(3)]
    assert not outcome.findings


def test_what_other_workgroups_load_does_not_hold_a_wait_up() -> None:
    """Workgroup 1 waits in order for one of two LDS reads, while workgroup 0 has a scalar load on its way,
    which may come back at any time, and stands further on."""
    code = [
        "s_load_dwordx2 s[8:9], s[0:1], 0x0", "s_lshl_b32 s5, s2, 8", OWN, "v_mov_b32_e32 v4, 5",
        "s_waitcnt lgkmcnt(0)",
        "s_cmp_lg_u32 s2, 0", "s_cbranch_scc1 .LBB0_1",
        "s_load_dwordx2 s[10:11], s[0:1], 0x0", "s_branch .LBB0_2",
        ".LBB0_1:",
        "ds_write_b32 v1, v4", "s_waitcnt lgkmcnt(0)",
        "ds_read_b32 v2, v1", "ds_read_b32 v5, v1", "s_waitcnt lgkmcnt(1)", "v_add_u32_e32 v4, v2, v4",
        ".LBB0_2:",
        "s_waitcnt lgkmcnt(0)", "v_add_u32_e32 v1, s5, v1", "global_store_dword v1, v4, s[8:9]",
    ]  # fmt: skip
    data, outcome = execute(code, groups=2)
    assert data.reshape(2, 64).tolist() == [[5] * 64, [10] * 64]
    assert not outcome.findings


def test_far_jump() -> None:
    code = [
        LOAD, OWN, "v_mov_b32_e32 v2, 1", "s_waitcnt lgkmcnt(0)",
        "s_getpc_b64 s[6:7]",
        ".Lpost_getpc0:",
        "s_add_u32 s6, s6, (.LBB0_9-.Lpost_getpc0)&4294967295",
        "s_addc_u32 s7, s7, (.LBB0_9-.Lpost_getpc0)>>32",
        "s_setpc_b64 s[6:7]",
        "v_mov_b32_e32 v2, 2",
        ".LBB0_9:",
        STORE,
    ]  # fmt: skip
    data, outcome = execute(code)
    assert data.tolist() == [1] * 64
    assert not outcome.findings


def test_a_returning_atomic_needs_its_wait() -> None:
    """Work items add to the first word in order, each sees the sum so far."""
    code = [
        LOAD, OWN, "v_mov_b32_e32 v3, 2", "v_mov_b32_e32 v4, 0", "s_waitcnt lgkmcnt(0)",
        "global_atomic_add v2, v4, v3, s[2:3] sc0", "s_waitcnt vmcnt(0)", STORE,
    ]  # fmt: skip
    data, outcome = execute(code)
    assert data.tolist() == [7 + 2 * lane for lane in range(64)]
    assert not outcome.findings
    code[-2] = "s_nop 0"
    assert kinds(execute(code)[1]) == ["register used before its wait"]
    code[-3] = "global_atomic_add v4, v3, s[2:3] offset:2"
    assert "misaligned atomic" in kinds(execute(code)[1])


@pytest.mark.parametrize(("barrier", "clean"), [("s_barrier", True), ("s_nop 0", False)])
def test_atomics_on_local_memory(barrier: str, clean: bool) -> None:
    """Atomics of two waves do not race with each other, only with plain reads."""
    code = [
        LOAD, OWN, "v_mov_b32_e32 v3, 0", "v_mov_b32_e32 v4, 1", "v_cmp_gt_u32_e32 vcc, 64, v0",
        "s_and_saveexec_b64 s[6:7], vcc", "ds_write_b32 v3, v3", "s_mov_b64 exec, s[6:7]",
        "s_waitcnt lgkmcnt(0)", "s_barrier",
        "ds_add_u32 v3, v4", "s_waitcnt lgkmcnt(0)", barrier,
        "ds_read_b32 v2, v3", "s_waitcnt lgkmcnt(0)", STORE,
    ]  # fmt: skip
    data, outcome = execute(code, warps=2)
    assert (kinds(outcome) == []) == clean
    if clean:
        assert data.tolist() == [128] * 128
    else:
        assert "race" in kinds(outcome)


def test_loads_to_local_memory_land_at_their_wait() -> None:
    """LDS address: M0 and four bytes per lane."""
    code = [
        LOAD, OWN, "s_mov_b32 m0, 0x40", "s_waitcnt lgkmcnt(0)",
        "global_store_dword v1, v0, s[2:3]", "global_load_lds_dword v1, s[2:3]",
        "s_waitcnt vmcnt(0)", "v_add_u32_e32 v3, 0x40, v1", "ds_read_b32 v2, v3", "s_waitcnt lgkmcnt(0)",
        "v_add_u32_e32 v2, 1, v2", STORE,
    ]  # fmt: skip
    data, outcome = execute(code)
    assert data.tolist() == list(range(1, 65))
    assert not outcome.findings
    code[6] = "s_nop 0"
    assert execute(code)[0].tolist() != data.tolist()


@pytest.mark.parametrize(
    ("pattern", "source"),
    [
        ("swizzle(SWAP,16)", lambda lane: lane ^ 16),
        ("swizzle(REVERSE,8)", lambda lane: lane ^ 7),
        ("swizzle(BROADCAST,32,5)", lambda lane: lane // 32 * 32 + 5),
        ("swizzle(QUAD_PERM,3,2,0,1)", lambda lane: lane // 4 * 4 + (3, 2, 0, 1)[lane % 4]),
        ("0x401f", lambda lane: lane ^ 16),
        ("0x00a8", lambda lane: lane // 32 * 32 + (lane % 32 & 8 | 5)),
    ],
)
def test_swizzle(pattern: str, source: Callable[[int], int]) -> None:
    code = [LOAD, OWN, f"ds_swizzle_b32 v2, v0 offset:{pattern}", "s_waitcnt lgkmcnt(0)", STORE]
    assert execute(code)[0].tolist() == [source(lane) for lane in range(64)]


def test_mixed_precision_fma() -> None:
    """a * b + c of f32 and halves, rounded once; the other half of the result is kept."""
    head = [
        LOAD, OWN, "v_mov_b32_e32 v3, 0x3c004000", "v_mov_b32_e32 v4, 0x40490fdb", "v_mov_b32_e32 v2, 0x12345678",
        "s_waitcnt lgkmcnt(0)",
    ]  # fmt: skip
    pi = np.float32(np.pi)
    for instruction, wanted in (
        # v3: 2.0 in the low half, 1.0 in the high one
        ("v_fma_mix_f32 v2, v3, v4, v4 op_sel_hi:[1,0,0]", int((3 * pi).view(np.uint32))),
        ("v_fma_mix_f32 v2, v3, v4, v4 op_sel:[1,0,0] op_sel_hi:[1,0,0]", int((2 * pi).view(np.uint32))),
        (
            "v_fma_mixlo_f16 v2, v3, v4, -v4 op_sel_hi:[1,0,0]",
            0x12340000 | int(np.float16(pi).view(np.uint16)),
        ),
        (
            "v_fma_mixhi_f16 v2, v3, v4, 0 op_sel_hi:[1,0,0]",
            int(np.float16(2 * pi).view(np.uint16)) << 16 | 0x5678,
        ),
    ):
        data, outcome = execute([*head, instruction, STORE])
        assert data.tolist() == [wanted] * 64, instruction
        assert not outcome.findings


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("v_sub_u32_e64 v2, v3, 5 clamp", 0),
        ("v_add_u32_e64 v2, v4, 5 clamp", 0xFFFFFFFF),
        ("v_sub_u16_e64 v2, v3, 5 clamp", 0),
    ],
)
def test_whole_numbers_saturate(line: str, wanted: int) -> None:
    code = [LOAD, OWN, "v_mov_b32_e32 v3, 3", "v_mov_b32_e32 v4, -2", line, "s_waitcnt lgkmcnt(0)", STORE]
    assert execute(code)[0].tolist() == [wanted] * 64


def test_an_endless_loop_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pagegate.amdgcn.schedule.LIMIT", 50)
    _, outcome = execute([".LBB0_1:", "s_branch .LBB0_1"])
    assert kinds(outcome) == ["did not end"]
