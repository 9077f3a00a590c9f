"""Number formats against torch's own types, and conversions that the documents' text cannot test."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from pagegate.amdgcn.formats import TABLES, encode, to_bf16
from pagegate.amdgcn.instructions.arithmetic import fma_f32, ldexp_f64, rcp
from pagegate.amdgcn.instructions.convert import pkrtz_f16
from pagegate.amdgcn.instructions.division import div_fixup, div_fmas, div_scale

DTYPES = {
    ("gfx942", "fp8"): torch.float8_e4m3fnuz,
    ("gfx942", "bf8"): torch.float8_e5m2fnuz,
    ("gfx950", "fp8"): torch.float8_e4m3fn,
    ("gfx950", "bf8"): torch.float8_e5m2,
}


@pytest.mark.parametrize("key", list(DTYPES), ids="-".join)
def test_float8_values(key: tuple[str, str]) -> None:
    codes = torch.arange(256, dtype=torch.uint8)
    np.testing.assert_array_equal(TABLES[key], codes.view(DTYPES[key]).float().numpy())


@pytest.mark.parametrize("key", list(DTYPES), ids="-".join)
def test_float8_rounding(key: tuple[str, str]) -> None:
    """Within range, where torch and the hardware agree: nearest, ties to even."""
    table = TABLES[key]
    finite = np.unique(table[np.isfinite(table)])
    middles = (finite[1:] + finite[:-1]) / 2
    rng = np.random.default_rng(0)
    inside = rng.uniform(finite[0], finite[-1], 4000)
    values = np.concatenate([finite, middles, inside, inside / 1000]).astype(np.float32)
    wanted = torch.from_numpy(values).to(DTYPES[key]).view(torch.uint8).numpy()
    np.testing.assert_array_equal(encode(values, table), wanted)


def test_bf16_rounding() -> None:
    bits = np.random.default_rng(0).integers(0, 1 << 32, 10000, dtype=np.uint32)
    values = bits.view(np.float32)
    wanted = torch.from_numpy(values).bfloat16().view(torch.int16).numpy().view(np.uint16)
    number = ~np.isnan(values)
    np.testing.assert_array_equal(to_bf16(values)[number], wanted[number])
    assert np.isnan((to_bf16(values)[~number].astype(np.uint32) << np.uint32(16)).view(np.float32)).all()


def test_towards_zero() -> None:
    values = np.array([1.0, 1.0009, -1.0009, 65519.0, 1e-8, 1e6], np.float32)
    packed = pkrtz_f16(values, values)
    halves = (packed & np.uint32(0xFFFF)).astype(np.uint16).view(np.float16).astype(np.float32)
    np.testing.assert_array_equal(halves, np.array([1, 1, -1, 65504, 0, 65504], np.float32))


def test_powers_of_two_in_f64() -> None:
    values = np.array([1.5, -3.0, 0.0, 2.0**-1074, 1.7e308, np.inf])
    for by in (-2000, -1074, -3, 0, 5, 1023, 1 << 30):
        with np.errstate(all="ignore"):
            found = ldexp_f64(values, np.full(6, by, np.int32))
        for value, result in zip(values, found, strict=True):
            try:
                wanted = math.ldexp(value, by)
            except OverflowError:
                wanted = math.copysign(math.inf, value)
            assert result == wanted


def test_division() -> None:
    """The sequence that LLVM emits for an exact f32 division, over all magnitudes."""
    rng = np.random.default_rng(0)
    edges = np.array(
        [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, 1e-39, 3e38, -3e38, 1.0, 2.0**-126], np.float32
    )
    random = (rng.standard_normal(20000) * 2.0 ** rng.uniform(-140, 127, 20000)).astype(np.float32)
    numerator = np.concatenate([np.repeat(edges, 11), random])
    denominator = np.concatenate([np.tile(edges, 11), rng.permutation(random)])
    with np.errstate(all="ignore"):
        scaled_d, _ = div_scale(denominator, denominator, numerator)
        scaled_n, rescale = div_scale(numerator, denominator, numerator)
        estimate = rcp(scaled_d)
        error = fma_f32(-scaled_d, estimate, np.float32(1))
        estimate = fma_f32(error, estimate, estimate)
        quotient = scaled_n * estimate
        error = fma_f32(-scaled_d, quotient, scaled_n)
        quotient = fma_f32(error, estimate, quotient)
        error = fma_f32(-scaled_d, quotient, scaled_n)
        result = div_fixup(div_fmas(error, estimate, quotient, rescale), denominator, numerator)
        wanted = numerator / denominator
    # the documents leave open how a quotient past 2**128 becomes infinite: it is NaN here
    overflow = np.isinf(wanted) & np.isfinite(numerator) & (denominator != 0)
    result, wanted = result[~overflow], wanted[~overflow]
    normal = (np.abs(wanted) >= 2.0**-126) | (wanted == 0) | np.isnan(wanted)
    np.testing.assert_array_equal(result[normal], wanted[normal])
    assert normal.mean() > 0.8
    # a denormal quotient may be rounded twice
    np.testing.assert_allclose(result[~normal], wanted[~normal], atol=2.0**-149, rtol=0)
