"""Layouts of matrix products, transposing reads and loads to LDS, pinned by products through Triton.

Small whole numbers make every product exact, so that a single misplaced element shows.
"""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

from pagegate.amdgcn.driver import emulated


@triton.jit
def product_kernel(
    a_ptr, b_ptr, c_ptr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, BLOCK: tl.constexpr
):
    rows, columns = tl.arange(0, M), tl.arange(0, N)
    acc = tl.zeros([M, N], c_ptr.dtype.element_ty)
    for first in range(0, K, BLOCK):
        depth = first + tl.arange(0, BLOCK)
        a = tl.load(a_ptr + rows[:, None] * K + depth[None, :])
        b = tl.load(b_ptr + depth[:, None] * N + columns[None, :])
        acc = tl.dot(a, b, acc, input_precision="ieee", out_dtype=acc.dtype)
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], acc)


FLOAT8 = {
    "gfx942": (torch.float8_e4m3fnuz, torch.float8_e5m2fnuz),
    "gfx950": (torch.float8_e4m3fn, torch.float8_e5m2),
}


def run_product(
    target: str, dtype: torch.dtype, shape: tuple[int, int, int], warps: int, side: int
) -> set[str]:
    """Multiply random matrices; returns the mnemonics that ran."""
    m, n, k = shape
    generator = torch.Generator().manual_seed(m + n + k)
    a = torch.randint(-3, 4, (m, k), generator=generator).float().to(dtype)
    b = torch.randint(-3, 4, (k, n), generator=generator).float().to(dtype)
    c = torch.full((m, n), -1, dtype=torch.int32) if dtype == torch.int8 else torch.full((m, n), float("nan"))
    with emulated(target) as session:
        product_kernel[(1,)](
            a, b, c, m, n, k, min(k & -k, 128), num_warps=warps, matrix_instr_nonkdim=side, num_stages=2
        )
    assert torch.equal(c.float(), a.float() @ b.float())
    assert not session.report.findings
    lines = [line for entry in session.report.coverage.values() for line in entry.lines]
    return {line.mnemonic for line in lines}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.int8])
@pytest.mark.parametrize(
    ("shape", "warps", "side"),
    [((32, 32, 64), 1, 16), ((64, 32, 128), 4, 32), ((32, 64, 192), 2, 16), ((32, 32, 128), 2, 32)],
)
def test_product(target: str, dtype: torch.dtype, shape: tuple[int, int, int], warps: int, side: int) -> None:
    ran = run_product(target, dtype, shape, warps, side)
    kind = "i32" if dtype == torch.int8 else "f32"
    assert any(name.startswith(f"v_mfma_{kind}_{side}x{side}") for name in ran)


@pytest.mark.parametrize("side", [16, 32])
@pytest.mark.parametrize("which", [0, 1], ids=["e4m3", "e5m2"])
def test_product_of_the_targets_own_float8(target: str, which: int, side: int) -> None:
    run_product(target, FLOAT8[target][which], (64, 64, 128), 4, side)


@pytest.mark.usefixtures("compiled")
def test_wide_instructions_are_reached_on_gfx950() -> None:
    ran = run_product("gfx950", torch.float16, (64, 64, 256), 4, 16)
    assert "v_mfma_f32_16x16x32_f16" in ran
    assert "ds_read_b64_tr_b16" in ran
