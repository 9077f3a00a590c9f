"""Gates on a scratch repository, with simulated times behind the real protocol: what ends how."""

import errno
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from pagegate.cli import gate

KERNELS = Path(__file__).parents[2] / "kernels" / "paged_kernels"

TWO = ("-k", "dec_b1_c512 or pre_b1_q512")


def test_nothing_changed_is_measured_and_passes(scratch, run_gate, tmp_path):
    path = tmp_path / "gate.json"
    code, said = run_gate("--base", "main", *TWO, "--json", str(path))
    assert code == 0, said
    assert "PASSED: no slowdown found (2 SAME)" in said
    data = json.loads(path.read_text())
    assert data["base"]["sources"] == data["head"]["sources"]
    assert data["environment"]["role"] == "simulated"
    assert "no A/A noise is stored for 2 of 2 rows" in " ".join(data["notes"])
    assert set(data["rounds_s"]) == {"start", "prepare", "sample"} and min(data["rounds_s"].values()) > 0
    for row in data["rows"]:
        assert len(row["rounds"]) == 6  # the first planned look is enough
        assert [r["first"] for r in row["rounds"][:4]] == ["base", "head", "base", "head"]
        for visits in row["rounds"]:
            assert [len(visits["base"]), len(visits["head"])] == [2, 2]
            assert all(len(v["seconds"]) == 8 for side in ("base", "head") for v in visits[side])
    assert_clean(scratch, tmp_path)


def test_a_slower_head_is_red_on_its_row_alone(scratch, run_gate, tmp_path):
    scratch.behave(slower={"pre": 1.03}, launch={"registers": 168, "options": {"TILE": 32}})
    scratch.commit()
    files = [
        word
        for kind in ("json", "markdown", "html")
        for word in (f"--{kind}", str(tmp_path / f"gate.{kind}"))
    ]
    code, said = run_gate("--base", "main~1", "--head", "main", *TWO, *files)
    assert code == 3, said
    assert "SLOWER: head is slower (1 SLOWER, 1 SAME)" in said
    assert "confirmed by" in said
    assert "unified_kernel: TILE 64 -> 32" in said
    assert "registers 128 -> 168" in said
    again = re.search(
        r"again: pagegate (gate --base \w+ --head \w+ -k pre_b1_q512 --kernel unified --quantity graph)", said
    )
    assert again, said
    assert run_gate(*again[1].split()[1:])[0] == 3
    rows = {row["workload"]: row for row in json.loads((tmp_path / "gate.json").read_text())["rows"]}
    assert rows["pre_b1_q512"]["figures"]["change"] == pytest.approx(0.0296, abs=0.004)
    assert rows["pre_b1_q512"]["head_s"] / rows["pre_b1_q512"]["base_s"] == pytest.approx(1.03, abs=0.004)
    assert rows["dec_b1_c512"]["verdict"] == "SAME"
    summary = (tmp_path / "gate.markdown").read_text()
    assert summary.startswith("### pagegate gate: SLOWER")
    assert "| pre_b1_q512 | unified |" in summary and "dec_b1_c512" not in summary
    assert "TILE 64 -> 32" in summary and "Again: `pagegate gate --base" in summary
    assert_clean(scratch, tmp_path)


def test_a_faster_head_passes(scratch, run_gate):
    scratch.behave(slower={"": 0.9})
    code, said = run_gate("--base", "main", *TWO)
    assert code == 0, said
    assert "2 FASTER" in said


def test_a_dirty_tree_is_measured_and_named(scratch, run_gate, tmp_path):
    scratch.behave(slower={"": 1.05})
    path = tmp_path / "gate.json"
    code, said = run_gate("--base", "main", "-k", "pre_b1_q512", "--json", str(path))
    assert code == 3, said
    assert "with changes" in said and "changes that are not committed; they are measured" in said
    data = json.loads(path.read_text())
    assert data["head"]["dirty"] and data["base"]["sources"] != data["head"]["sources"]
    assert scratch.git("status", "--porcelain", "--", "kernels")  # untouched


@pytest.mark.parametrize(
    ("behaviour", "words"),
    [
        ({"die_at": 3}, "| out of luck"),
        ({"rubbish_at": 2}, "required an answer in JSON, found 'Segmentation fault"),
        ({"fail_at": 2}, "RuntimeError: CUDA error: out of resources"),
    ],
)
@pytest.mark.parametrize("side", ["head", "base"])
def test_a_side_that_fails_while_it_is_timed(scratch, run_gate, tmp_path, behaviour, words, side):
    scratch.behave(**behaviour)
    failing = scratch.commit()
    scratch.behave()
    working = scratch.commit()
    base, head = (working, failing) if side == "head" else (failing, working)
    path = tmp_path / "gate.json"
    code, said = run_gate("--base", base, "--head", head, *TWO, "--json", str(path))
    assert code == (1 if side == "head" else 2), said
    assert words in said
    data = json.loads(path.read_text())
    (failure,) = data["failures"]
    assert failure["side"] == side
    # two visits of a side to each row
    assert failure["row"] == (
        "pre_b1_q512 unified graph" if "die_at" in behaviour else "dec_b1_c512 unified graph"
    )
    assert data["outcome"] == ("WRONG" if side == "head" else "UNUSABLE")
    assert {row["verdict"] for row in data["rows"]} == {"AMBIGUOUS"}
    assert_clean(scratch, tmp_path)


def test_a_worker_that_hangs_is_a_failure(scratch, run_gate, monkeypatch):
    from pagegate.regress import rounds

    monkeypatch.setattr(rounds.Start, "timeout_s", 2.0)
    monkeypatch.setattr(rounds.Start.__init__, "__defaults__", (2.0, "cuda"))
    scratch.behave(hang_at=2)
    code, said = run_gate("--base", "main", *TWO)
    assert code == 1, said
    assert "no answer within 2 s" in said


def test_a_base_that_does_not_import(scratch, run_gate, tmp_path):
    scratch.write("import no_such_module")
    broken = scratch.commit()
    scratch.behave()
    scratch.commit()
    code, said = run_gate("--base", broken, "--head", "main", *TWO)
    assert code == 2, said
    assert "FAILED base: ModuleNotFoundError: No module named 'no_such_module'" in said
    assert_clean(scratch, tmp_path)


def test_a_workload_that_became_unsupported(scratch, run_gate):
    scratch.behave(unsupported={"pre_b1_q512": "prompts are gone"})
    code, said = run_gate("--base", "main", *TWO)
    assert code == 4, said
    assert "became UNSUPPORTED in head: prompts are gone" in said
    assert run_gate("--base", "main", *TWO, "--allow-missing")[0] == 0
    scratch.commit()
    # on both sides: said, and no failure; on both and nothing else: nothing was compared
    code, said = run_gate("--base", "main", *TWO)
    assert code == 0 and "UNSUPPORTED" in said
    assert run_gate("--base", "main", "-k", "pre_b1_q512", "--allow-missing")[0] == 4


def test_an_undecided_row(scratch, run_gate):
    scratch.behave(slower={"": 1.03})
    code, said = run_gate("--base", "main", "-k", "pre_b1_q512", "--budget", "0.01s")
    assert code == 4, said
    assert "is too much among all rows" in said  # the budget ends after the first look
    assert run_gate("--base", "main", "-k", "pre_b1_q512", "--budget", "0.01s", "--allow-ambiguous")[0] == 0


TABLE = """
class Spec:
    def __init__(self, digest): self._digest = digest
    def digest(self): return self._digest
class Row:
    def __init__(self, name, digest): self.name, self.tier, self.spec = name, "pr", Spec(digest)
def workloads(): return [Row(name, digest) for name, digest in {rows!r}]
"""


def write_table(scratch, rows):
    folder = scratch.folder / "suite" / "pagegate" / "cases"
    folder.mkdir(parents=True, exist_ok=True)
    for package in (folder, folder.parent):
        (package / "__init__.py").write_text("")
    (folder / "workloads.py").write_text(TABLE.format(rows=rows))


def test_workloads_of_one_side_and_changed_ones(scratch, run_gate):
    from pagegate.cases.workloads import workloads

    digest = {row.name: row.spec.digest() for row in workloads()}
    both = [(name, digest[name]) for name in ("dec_b1_c512", "pre_b1_q512")]
    write_table(scratch, [*both, ("dec_b1_c4096", "another"), ("gone", "d1")])
    scratch.commit("an older table")
    write_table(scratch, [*both, ("dec_b1_c4096", digest["dec_b1_c4096"])])
    words = ("-k", "dec_b1_c512 or pre_b1_q512 or dec_b1_c4096 or gone", "--tier", "pr")
    code, said = run_gate("--base", "main", *words)
    assert code == 4, said
    assert "only in the table of base, missing in head" in said
    assert f"digest another in base, {digest['dec_b1_c4096']} in head" in said
    assert "2 INCOMPARABLE, 2 SAME" in said
    assert run_gate("--base", "main", "-k", "pre_b1_q512 or gone", "--allow-missing")[0] == 0
    # and nothing but that is no pass, whatever is allowed
    assert run_gate("--base", "main", "-k", "gone", "--allow-missing")[0] == 4
    code, said = run_gate("--base", "main", "-k", "no_such_row")
    assert code == 2 and "required an expression that matches a workload" in said


@pytest.mark.parametrize("side", ["--base", "--head"])
def test_an_unknown_revision(scratch, run_gate, tmp_path, side):
    words = {"--base": "main", side: "no-such-branch"}
    code, said = run_gate(*[word for pair in words.items() for word in pair])
    assert code == 2
    assert "required one that this repository has, found 'no-such-branch'" in said
    assert_clean(scratch, tmp_path)


def test_what_is_no_repository_and_what_has_no_kernels(scratch, run_gate, tmp_path, monkeypatch):
    scratch.git("rm", "-q", "-r", "kernels")
    scratch.commit()
    code, said = run_gate("--base", "main")
    assert code == 2 and "required a folder kernels/paged_kernels" in said
    monkeypatch.chdir(tmp_path)
    code, said = run_gate("--base", "main")
    assert code == 2 and "required a git repository" in said
    code, said = run_gate()
    assert code == 2 and "--base" in said


def test_folders_need_no_repository(scratch, run_gate, tmp_path, monkeypatch):
    other = tmp_path / "other" / "kernels" / "paged_kernels"
    other.mkdir(parents=True)
    (other / "__init__.py").write_text("BEHAVIOUR = {'slower': {'': 1.05}}\n")
    monkeypatch.chdir(tmp_path)
    code, said = run_gate("--base", "./scratch", "--head", "./other", "-k", "pre_b1_q512")
    assert code == 3, said


def test_a_full_disk_does_not_change_the_verdict(scratch, run_gate, tmp_path, monkeypatch):
    def full(self, *words, **options):
        if self.name.startswith(".gate."):
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(self, *words, **options)

    real = Path.open
    monkeypatch.setattr(Path, "open", full)
    words = ("--base", "main", "-k", "pre_b1_q512", "--json", str(tmp_path / "gate.json"))
    code, said = run_gate(*words, "--html", str(tmp_path / "gate.html"))
    assert code == 2, said
    assert said.count("No space left on device") == 2
    assert "PASSED" in said
    scratch.behave(slower={"": 1.05})
    code, said = run_gate(*words)
    assert code == 3 and "No space left on device" in said
    assert not list(tmp_path.glob("gate.*")) and not list(tmp_path.glob(".gate.*"))
    assert_clean(scratch, tmp_path)


def test_another_installation_is_not_measured_for_head(scratch, run_gate, tmp_path, monkeypatch):
    """A worker that finds a paged_kernels elsewhere says so, and is no pass."""
    from pagegate.regress import rounds

    monkeypatch.setattr(
        rounds.Start, "worker", lambda self: real(self, kernels=tmp_path / "scratch" / "kernels")
    )

    def real(start, kernels):
        from pagegate.oracle.isolation import Setup, Worker

        return Worker(Setup("cpu", kernels_root=kernels), start.command)

    scratch.behave(slower={"": 1.05})
    other = scratch.commit()
    scratch.behave()
    code, said = run_gate("--base", other, *TWO)
    assert code == 2, said
    assert "another installation comes first" in said


def assert_clean(scratch, tmp_path):
    """No worktree and no temporary folder is left."""
    assert len(scratch.worktrees()) == 1
    assert not list(tmp_path.glob("pagegate-gate-*"))


@pytest.mark.parametrize("text", ["0", "-1m", "10 minutes", "m", "1e3s"])
def test_budgets_that_are_none(text, capsys):
    from pagegate.cli import main

    with pytest.raises(SystemExit):
        main(["gate", "--base", "main", f"--budget={text}"])
    assert "required a time above 0" in capsys.readouterr().err


def test_budgets():
    from pagegate.cli.gate import duration

    assert [duration(t) for t in ("90", "90s", "1.5m", "2h")] == [90, 90, 90, 7200]


def test_a_wrong_head_is_reported_and_not_timed(scratch, run_gate, tmp_path, monkeypatch):
    """The oracle itself looks at a head whose kernel reads one key too few."""
    from pagegate.oracle.isolation import Setup
    from pagegate.regress.survey import oracle_check

    shutil.rmtree(scratch.package)
    shutil.copytree(KERNELS, scratch.package, ignore=shutil.ignore_patterns("__pycache__"))
    scratch.commit("the kernels")
    source = scratch.package / "unified.py"
    right = "    seq_len = tl.load(seq_lens_ptr + seq)\n"
    assert right in source.read_text(), "the line to break moved"
    source.write_text(source.read_text().replace(right, right.replace("+ seq)", "+ seq) - 1")))
    made = gate.machinery(None)
    check = oracle_check(Setup("cpu", timeout_s=120), 1)
    monkeypatch.setattr(gate, "machinery", lambda options: replace(made, check=check))
    path = tmp_path / "gate.json"
    code, said = run_gate("--base", "main", "-k", "decode_tail", "--json", str(path))
    assert code == 1, said
    assert "OUT_OF_BUDGET head decode_tail unified graph" in said
    assert "WRONG: head is wrong" in said
    data = json.loads(path.read_text())
    assert data["rows"] == [] and "measure" not in data["seconds"]
    assert_clean(scratch, tmp_path)
