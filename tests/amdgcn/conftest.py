"""Shared by the tests of the assembly interpreter: one session per target, and kernels on CPU tensors."""

from __future__ import annotations

import pytest
import triton


@pytest.fixture(params=["gfx942", "gfx950"])
def target(request: pytest.FixtureRequest) -> str:
    if triton.knobs.runtime.interpret:
        pytest.skip("Triton runs in interpreter mode: kernels cannot be compiled")
    return str(request.param)
