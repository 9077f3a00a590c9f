"""Kernels compiled for an AMD GPU that is not there, their machine code interpreted, judged as any kernel."""

import json

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


ASSUMING = """
import inspect
import torch
from pagegate.cases.registry import register
from paged_kernels import paged_attention

def assuming(dtype):
    def call(q, k_cache, v_cache, **arguments):
        return paged_attention(q, k_cache.view(dtype), v_cache.view(dtype), **arguments)
    call.__signature__ = inspect.signature(paged_attention)
    return call

register("assumes_ocp")(assuming(torch.float8_e4m3fn))
register("assumes_fnuz")(assuming(torch.float8_e4m3fnuz))
"""


@pytest.mark.parametrize(
    ("target", "right", "wrong"),
    [
        ("gfx942", "assumes_fnuz", "assumes_ocp"),
        ("gfx950", "assumes_ocp", "assumes_fnuz"),
    ],
)
def test_a_launch_that_is_right_on_one_target_only(tmp_path, target, right, wrong):
    """The cache comes in the target's own float8: whoever takes it for the other format is caught."""
    plugin = tmp_path / "assuming.py"
    plugin.write_text(ASSUMING)
    case = parse_case("q1s40_q9s40 h4/2 d32 kv=fp8")
    with Worker(Setup("cpu", (str(plugin),), target=target, timeout_s=120.0)) as worker:
        assert worker.check(right, case, 0).status == "PASSED"
        assert worker.check(wrong, case, 0).status in ("OUT_OF_BUDGET", "NON_FINITE")


def test_coverage_is_reported_and_can_be_required(tmp_path, capsys):
    """Fails below the share that is asked for, and says which lines never ran."""
    words = [
        "check",
        "--target",
        "gfx942",
        "--case",
        "q1s40 h2/1 d32",
        "--kernel",
        "unified",
        "--relations",
        "0",
    ]
    words += ["--workers", "1", "--json", str(tmp_path / "out.json")]
    assert main([*words, "--coverage", "50"]) == 0
    said = capsys.readouterr().out
    assert "unified_kernel" in said
    (entry,) = json.loads((tmp_path / "out.json").read_text())["coverage"]
    assert 0.5 < entry["share"] < 1
    assert len(entry["missed"]) == round((1 - entry["share"]) * entry["instructions"])
    assert all(".py:" in line for line in entry["missed"])
    assert main([*words, "--coverage", "100"]) == 1
    said = capsys.readouterr().out
    assert "coverage: required 100 % of each compiled variant, found 1 of 1 below" in said
    assert "never executed from " in said and ".py:" in said.partition("never executed from ")[2][:40]


@pytest.mark.parametrize(
    "words", [["--coverage", "50"], ["--target", "gfx942", "--coverage", "101", "--tier", "small"]]
)
def test_coverage_needs_a_target_and_a_share(words, capsys):
    assert main(["check", "-k", "decode_tail", *words]) == 2
    assert "--coverage: required 0 to 100 with --target" in capsys.readouterr().err


def test_a_fault_in_the_kernels_shows_in_their_machine_code(tmp_path):
    planted = next(m for m in MUTANTS if m.name == "causal_excludes_self")
    apply(planted, kernels_root(), tmp_path / "kernels")
    setup = Setup("cpu", target="gfx942", timeout_s=120.0, kernels_root=tmp_path / "kernels")
    with Worker(setup) as worker:
        assert worker.check("unified", CASE, 0).status == "OUT_OF_BUDGET"


def test_a_target_and_a_device_exclude_each_other(capsys):
    assert main(["check", "--target", "gfx942", "--device", "interpreter"]) == 2
    assert "required without --device" in capsys.readouterr().err
