"""Mutants: they apply, they prove themselves, and the control refuses kernels that are broken already."""

from dataclasses import replace

import pytest

from pagegate.cases.registry import kernels_root
from pagegate.cases.workloads import find_workloads
from pagegate.errors import UsageError
from pagegate.oracle import mutants as engine
from pagegate.oracle.isolation import Setup
from pagegate.oracle.mutant_table import MUTANTS, Mutant

SETUP = Setup("cpu", timeout_s=120.0)


@pytest.fixture
def two_rows(monkeypatch):
    rows = find_workloads("small", "decode_tail or decode_exact")
    monkeypatch.setattr(engine, "find_workloads", lambda tier: rows)
    monkeypatch.setattr(engine, "_FUZZ_EXAMPLES", 2)


def mutant(old, new, file="unified.py"):
    return Mutant("planted", "a test", "unified", file, old, new)


def test_the_table():
    assert len(MUTANTS) >= 50
    assert len({m.name for m in MUTANTS}) == len(MUTANTS)
    assert sum(m.gpu_only for m in MUTANTS) <= 2
    assert all("#" in m.stands_for or "class" in m.stands_for for m in MUTANTS)


@pytest.mark.parametrize("planted", MUTANTS, ids=lambda m: m.name)
def test_every_mutant_applies(planted, tmp_path):
    engine.apply(planted, kernels_root(), tmp_path / "kernels")
    text = (tmp_path / "kernels" / "paged_kernels" / planted.file).read_text()
    compile(text, planted.file, "exec")
    assert text != (kernels_root() / "paged_kernels" / planted.file).read_text()


def test_outcomes(two_rows):
    total = "total = total * shrink + tl.sum(weights, axis=1)"
    planted = [
        mutant(total, "total = total + tl.sum(weights, axis=1)"),  # wrong
        mutant(total, total + " * 1.0000002"),  # other bits, within every budget
        mutant(total, total + "  # nothing"),
        mutant("no such text", ""),
    ]
    verdicts = engine.run_mutants(planted, SETUP, workers=2)
    assert [v.outcome for v in verdicts] == ["KILLED", "SURVIVED", "ERROR", "ERROR"]
    killed, survived, idle, lost = verdicts
    assert "decode" in killed.by
    assert "no check minds" in survived.by
    assert "changed no output" in idle.by
    assert "found it 0 times" in lost.by


def test_the_control_refuses_broken_kernels(two_rows, monkeypatch, tmp_path):
    engine.apply(replace(MUTANTS[0]), kernels_root(), tmp_path / "kernels")
    broken = replace(SETUP, kernels_root=tmp_path / "kernels")
    with pytest.raises(UsageError, match="required kernels that pass the small tier"):
        engine.run_mutants([MUTANTS[1]], broken, workers=1)
