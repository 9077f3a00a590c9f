"""Kernels compiled for an AMD GPU that is not there, their machine code interpreted, judged as any kernel."""

import pytest

from pagegate.cases.notation import parse_case
from pagegate.cases.registry import kernels_root
from pagegate.cli import main
from pagegate.oracle.isolation import Setup, Worker
from pagegate.oracle.mutant_table import MUTANTS
from pagegate.oracle.mutants import apply

CASE = parse_case("q3s40_q1s33 h4/2 d32")


@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
def test_our_kernels_and_their_own_float8(target):
    with Worker(Setup("cpu", target=target, timeout_s=120.0)) as worker:
        for line in ("q3s40_q1s33 h4/2 d32", "q1s40_q9s40 h4/2 d32 kv=fp8"):
            result = worker.check("unified", parse_case(line), 1)
            assert result.status == "PASSED", result.reason


def test_a_fault_in_the_kernels_shows_in_their_machine_code(tmp_path):
    planted = next(m for m in MUTANTS if m.name == "causal_excludes_self")
    apply(planted, kernels_root(), tmp_path / "kernels")
    setup = Setup("cpu", target="gfx942", timeout_s=120.0, kernels_root=tmp_path / "kernels")
    with Worker(setup) as worker:
        assert worker.check("unified", CASE, 0).status == "OUT_OF_BUDGET"


def test_a_target_and_a_device_exclude_each_other(capsys):
    assert main(["check", "--target", "gfx942", "--device", "interpreter"]) == 2
    assert "required without --device" in capsys.readouterr().err
