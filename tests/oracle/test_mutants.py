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
def one_row(monkeypatch):
    """One small workload and no fuzzing after it: a mutant in a second or two."""
    rows = find_workloads("small", "decode_exact")
    monkeypatch.setattr(engine, "find_workloads", lambda tier: rows)
    monkeypatch.setattr(engine, "_FUZZ_EXAMPLES", 0)
    monkeypatch.setattr(engine, "_RELATIONS", 0)


def mutant(old, new, file="unified.py"):
    return Mutant("planted", "a test", "unified", file, old, new)


def test_the_table():
    assert len(MUTANTS) >= 50
    assert len({m.name for m in MUTANTS}) == len(MUTANTS)
    assert sum(m.gpu_only for m in MUTANTS) <= 3
    assert all("#" in m.stands_for or "class" in m.stands_for for m in MUTANTS)


@pytest.mark.parametrize("planted", MUTANTS, ids=lambda m: m.name)
def test_every_mutant_applies(planted, tmp_path):
    engine.apply(planted, kernels_root(), tmp_path / "kernels")
    text = (tmp_path / "kernels" / "paged_kernels" / planted.file).read_text()
    compile(text, planted.file, "exec")
    assert text != (kernels_root() / "paged_kernels" / planted.file).read_text()


TOTAL = "total = total * shrink[:, None] + weights"
PLANTED = {
    "wrong": (
        mutant(TOTAL, "total = total + 2 * weights"),
        "KILLED",
        "OUT_OF_BUDGET in decode_exact",
    ),
    # other bits, within every budget
    "close": (
        mutant(TOTAL, TOTAL + " * 1.0000002"),
        "SURVIVED",
        "output of decode_exact, and no check minds",
    ),
    "idle": (mutant(TOTAL, TOTAL + "  # nothing"), "ERROR", "changed no output"),
    "lost": (mutant("no such text", ""), "ERROR", "found it 0 times"),
    "twice": (mutant("TILE", "TILE"), "ERROR", "adapt the mutant"),
    "broken": (mutant(TOTAL, "total = no_such_name"), "KILLED", "RAISED in decode_exact"),
}


def test_outcomes(one_row):
    heard = []
    verdicts = engine.run_mutants([m for m, _, _ in PLANTED.values()], SETUP, 2, heard.append)
    for name, verdict in zip(PLANTED, verdicts, strict=True):
        _, outcome, words = PLANTED[name]
        assert verdict.outcome == outcome, (name, verdict)
        assert words in verdict.by, (name, verdict)
    assert {id(verdict) for verdict in heard} == {id(verdict) for verdict in verdicts}
    assert [v.cases for v in verdicts] == [1, 1, 1, 0, 0, 1]


def test_what_the_table_misses_is_hunted_by_fuzzing(one_row, monkeypatch):
    """Wrong with more than one query only: the one workload has none of those."""
    monkeypatch.setattr(engine, "_FUZZ_EXAMPLES", 10)
    planted = mutant("query_positions = context_len + queries", "query_positions = context_len + queries * 2")
    (verdict,) = engine.run_mutants([planted], SETUP, workers=1)
    assert verdict.outcome == "KILLED"
    assert "in fuzzing" in verdict.by
    assert 1 < verdict.cases <= 11


def test_the_control_refuses_broken_kernels(one_row, tmp_path):
    (planted, _, _) = PLANTED["wrong"]
    engine.apply(planted, kernels_root(), tmp_path / "kernels")
    broken = replace(SETUP, kernels_root=tmp_path / "kernels")
    with pytest.raises(UsageError, match="required kernels that pass the small tier, found 1 failures"):
        engine.run_mutants([MUTANTS[1]], broken, workers=1)


def test_the_kernels_themselves_stay_as_they_are(tmp_path):
    before = {path: path.read_text() for path in kernels_root().rglob("*.py")}
    for planted in MUTANTS[:3]:
        engine.apply(planted, kernels_root(), tmp_path / planted.name)
    with pytest.raises(UsageError, match="found it 0 times"):
        engine.apply(mutant("no such text", ""), kernels_root(), tmp_path / "lost")
    assert {path: path.read_text() for path in kernels_root().rglob("*.py")} == before
