"""Shared by the tests of the assembly interpreter: targets, and whether kernels compile."""

from __future__ import annotations

import pytest


@pytest.fixture
def compiled() -> None:
    """Skips where Triton interprets; test_compiled.py runs the same test in a process that compiles."""
    import triton

    if triton.knobs.runtime.interpret:
        pytest.skip("Triton runs in interpreter mode: kernels cannot be compiled")


@pytest.fixture(params=["gfx942", "gfx950"])
def target(request: pytest.FixtureRequest, compiled: None) -> str:
    return str(request.param)
