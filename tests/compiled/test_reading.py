"""Instruction mixes, read from small listings whose counts are plain to see."""

import pytest

from pagegate.compiled import gcn, sass
from pagegate.compiled.flow import Step, in_loops

SASS = """
	.section	.text.kernel,"ax",@progbits
kernel:
.text.kernel:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/                   LDG.E R2, desc[UR4][R2.64] ;
        /*0020*/               @P0 EXIT ;
.L_x_1:
        /*0030*/                   LDGSTS.E.BYPASS.128 [R7], desc[UR36][R4.64] ;
        /*0040*/                   LDG.E.U16 R2, desc[UR4][R2.64] ;
        /*0050*/                   LDG.E.64.CONSTANT R2, desc[UR4][R2.64] ;
        /*0060*/                   LDSM.16.M88.4 R8, [R20] ;
        /*0070*/                   STS.128 [R7], R8 ;
        /*0080*/                   HMMA.16816.F32.BF16 R4, R8, R12, R4 ;
        /*0090*/                   HGMMA.64x128x16.F32.BF16 R24, R4, gdesc[UR8], R24 ;
        /*00a0*/                   HFMA2.MMA R3, -RZ, RZ, 0, 0 ;
        /*00b0*/                   MUFU.EX2 R3, R4 ;
        /*00c0*/                   MUFU.RCP R3, R4 ;
        /*00d0*/                   ISETP.GE.AND P1, PT, R4, R5, PT ;
        /*00e0*/                   FSEL R4, R5, -INF , P1 ;
        /*00f0*/                   BAR.SYNC.DEFER_BLOCKING 0x0 ;
        /*0100*/              @!P1 BRA `(.L_x_1) ;
        /*0110*/                   STG.E.128 desc[UR4][R2.64], R4 ;
        /*0120*/                   MUFU.EX2 R3, R4 ;
        /*0130*/                   EXIT ;
.L_x_2:
        /*0140*/                   BRA `(.L_x_2);
        /*0150*/                   NOP;
.L_x_3:
"""


def test_sass():
    total, loops, code = sass.read(SASS)
    assert code == 16 * 22
    assert total.instructions == 21  # but for the padding
    assert loops.instructions == 14
    assert loops.loads == {16: 1, 2: 1, 8: 1}
    assert total.loads == {16: 1, 8: 1, 4: 1, 2: 1}
    assert (loops.async_loads, loops.shared, loops.barriers, loops.masks, loops.branches) == (1, 2, 1, 2, 1)
    assert loops.matrix == {"HGMMA.64x128x16.F32.BF16": 1, "HMMA.16816.F32.BF16": 1}
    assert (total.exponentials, loops.exponentials) == (2, 1)
    assert (total.stores, loops.stores) == (1, 0)


@pytest.mark.parametrize(
    ("opcode", "matrix"),
    [("HMMA.16816.F32", 1), ("QGMMA.64x64x32.F32.E4M3.E4M3", 1), ("UTCHMMA", 1), ("UTCQMMA.2CTA", 1), ("IMMA.16832.S8.S8", 1),
     ("HFMA2.MMA", 0), ("FFMA", 0), ("UTMALDG.2D", 0)],
)  # fmt: skip
def test_matrix_instructions_of_nvidia(opcode, matrix):
    assert sass.count([opcode]).num_matrix == matrix


@pytest.mark.parametrize(
    ("opcode", "width"),
    [
        ("LDG.E.128", 16),
        ("LDG.E.LTC128B.64.CONSTANT", 8),
        ("LDG.E", 4),
        ("LDG.E.S16", 2),
        ("LDG.E.U8", 1),
        ("LDGSTS.E", 4),
    ],
)
def test_load_widths_of_nvidia(opcode, width):
    assert sass.count([opcode]).loads == {width: 1}


GCN = """
	.text
	.globl	kernel
	.p2align	8
	.type	kernel,@function
kernel:
.LBB0_0:
	s_load_dword s3, s[0:1], 0x3c
	s_cbranch_scc1 .LBB0_2
.LBB0_1:
	buffer_load_dwordx4 v[0:3], v8, s[4:7], 0 offen
	global_load_ushort v4, v[6:7], off
	global_load_lds_dwordx4 v[6:7], off
	buffer_load_dword v8, s[4:7], 0 offen lds
	v_mfma_f32_16x16x16_bf16 v[0:3], v[4:5], v[6:7], v[0:3]
	ds_read_b128 v[0:3], v9
	ds_write_b64 v9, v[0:1]
	ds_bpermute_b32 v1, v2, v3
	v_exp_f32_e32 v1, v2
	v_cmp_gt_i32_e64 s[2:3], v1, v2
	v_cndmask_b32_e64 v1, v2, v3, s[2:3]
	s_barrier
	s_cbranch_scc0 .LBB0_1
.LBB0_2:
	global_store_dwordx4 v[6:7], v[0:3], off
	s_getpc_b64 s[6:7]
.Lpost_getpc0:
	s_add_u32 s6, s6, (.LBB0_3-.Lpost_getpc0)&4294967295
	s_addc_u32 s7, s7, (.LBB0_3-.Lpost_getpc0)>>32
	s_setpc_b64 s[6:7]
	v_exp_f32_e32 v1, v2
.LBB0_3:
	s_endpgm
	.section	.rodata,"a",@progbits
	.amdhsa_kernel kernel
	.end_amdhsa_kernel
	.text
; codeLenInByte = 144
	.amdgpu_metadata
---
amdhsa.kernels:
  - .agpr_count:     24
    .group_segment_fixed_size: 0
    .private_segment_fixed_size: 16
    .sgpr_count:     34
    .sgpr_spill_count: 3
    .vgpr_count:     80
    .vgpr_spill_count: 4
...
	.end_amdgpu_metadata
"""


def test_gcn():
    facts, total, loops, code = gcn.read(GCN)
    assert code == 144
    assert facts["agpr_count"] == 24
    assert facts["vgpr_count"] == 80
    assert facts["vgpr_spill_count"] == 4
    assert loops.instructions == 13
    assert loops.loads == {16: 2, 4: 1, 2: 1}
    assert (loops.async_loads, loops.shared, loops.barriers, loops.masks, loops.branches) == (2, 2, 1, 2, 1)
    assert loops.matrix == {"v_mfma_f32_16x16x16_bf16": 1}
    assert (total.exponentials, loops.exponentials) == (2, 1)
    assert (total.stores, total.branches) == (1, 3)


@pytest.mark.parametrize(
    ("line", "width"),
    [("buffer_load_b128", 16), ("global_load_dwordx3", 12), ("global_load_d16_b16", 2), ("global_load_short_d16_hi", 2),
     ("buffer_load_u16", 2), ("global_load_sbyte_d16", 1), ("flat_load_dwordx2", 8), ("ds_read_b128", None), ("s_load_dwordx4", None),
     ("scratch_load_dwordx4", None)],
)  # fmt: skip
def test_load_widths_of_amd(line, width):
    mix = gcn.count([gcn.Line(1, line, "v1, v[2:3], off")])
    assert mix.loads == ({} if width is None else {width: 1})


@pytest.mark.parametrize(
    ("name", "kind"),
    [("v_smfmac_f32_16x16x32_bf16", "v_smfmac_f32_16x16x32_bf16"), ("v_wmma_f32_16x16x16_bf16", "v_wmma_f32_16x16x16_bf16"),
     ("v_swmmac_f32_16x16x32_bf16", "v_swmmac_f32_16x16x32_bf16"), ("v_mad_u64_u32", None), ("v_fma_f32", None)],
)  # fmt: skip
def test_matrix_instructions_of_amd(name, kind):
    assert gcn.count([gcn.Line(1, name, "")]).matrix == ({} if kind is None else {kind: 1})


@pytest.mark.parametrize(
    ("steps", "labels", "loops"),
    [
        pytest.param("a b c", {}, "", id="straight"),
        pytest.param("a b>1 c", {"1": 0}, "ab", id="loop"),
        pytest.param("a b>1 c", {"1": 1}, "b", id="itself"),
        pytest.param("a b>2 c d>1 e", {"1": 0, "2": 4}, "abcd", id="with a way out"),
        # cold code behind the end that jumps back is no loop
        pytest.param("a b>2 c d! e f>1!", {"1": 2, "2": 4}, "", id="out of line"),
        pytest.param("a b! c d>1!", {"1": 2}, "", id="never reached"),
        pytest.param("a b c>1 d e>2", {"1": 1, "2": 0}, "abcde", id="nested"),
    ],
)
def test_loops(steps, labels, loops):
    """Steps as letters; >label: may jump there; !: does not fall through."""
    made = []
    for word in steps.split():
        name, _, rest = word.rstrip("!").partition(">")
        made.append(Step(name, rest, falls=not word.endswith("!")))
    flags = in_loops(made, labels)
    assert "".join(step.opcode for step, flag in zip(made, flags, strict=True) if flag) == loops
