"""Results and baselines: what may be compared, what is refused, what a file keeps."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from pagegate.cli import main
from pagegate.errors import UsageError
from pagegate.files import write_json
from pagegate.measure.environment import Environment
from pagegate.measure.roofline import Ceilings
from pagegate.measure.samples import Samples
from pagegate.measure.subject import subject
from pagegate.regress import baselines
from pagegate.regress.results import Results, Row, compare, load_results

HERE = Environment("NVIDIA H200", "h200", "580", "CUDA 13.0", "2.11", "3.6.0", "3.12")


def row(name="dec", kernel="unified", seconds=30e-6, digest="d1"):
    samples = Samples("graph", (seconds, seconds * 1.001, seconds * 0.999), "target")
    return Row(name, digest, kernel, "graph", samples=samples, floor_s=15e-6)


def results(*rows, environment=HERE):
    return Results(environment, Ceilings(4e12, 8e14), {"paged_kernels": "abc"}, rows, "pagegate bench")


def test_results_survive_their_file(tmp_path):
    unsupported = Row("dec", "d1", "torch_sdpa", "graph", "UNSUPPORTED", "takes no sinks")
    written = results(row(), unsupported)
    write_json(tmp_path / "a.json", written.to_json())
    assert load_results(tmp_path / "a.json") == written


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "no JSON"),
        ("[]", "no format version"),
        ('{"format": 9}', "update pagegate"),
        ('{"format": 0}', "measure again"),
        ('{"format": 1}', "rows"),
        ('{"format": 1, "rows": [{"nonsense": 1}]}', "nonsense"),
        (
            '{"format": 1, "rows": [{"samples": {"quantity": "graph", "seconds": [], "stopped": "", "readings": []}}]}',
            "at least one",
        ),
    ],
)
def test_files_that_are_no_results(tmp_path, text, words):
    path = tmp_path / "a.json"
    path.write_text(text)
    for load in (load_results, baselines.load):
        with pytest.raises(UsageError, match="required") as error:
            load(path)
        assert str(path) in str(error.value)
    with pytest.raises(UsageError, match=words):
        load_results(path)


def test_comparisons():
    faster = compare(results(row()), results(row(seconds=15e-6)))
    assert faster[0].ratio == pytest.approx(0.5)
    changed = compare(results(row()), results(row(digest="d2")))
    assert (changed[0].ratio, "digest d1 against d2" in changed[0].reason) == (None, True)
    elsewhere = replace(HERE, driver="590")
    moved = compare(results(row()), results(row(), environment=elsewhere))
    assert (moved[0].ratio, moved[0].reason) == (None, "environments differ: driver: 580 against 590")
    alone = compare(results(row("a"), row("b")), results(row("b"), row("c")))
    assert [c.reason for c in alone] == ["only in the first", "", "only in the second"]


def test_accepting_needs_a_reason_and_one_environment():
    with pytest.raises(UsageError, match="--reason"):
        baselines.accept([results(row())], "  ")
    with pytest.raises(UsageError, match="found none"):
        baselines.accept([], "first")
    other = results(row(), environment=replace(HERE, torch="2.12"))
    with pytest.raises(UsageError, match="torch: 2.11 against 2.12"):
        baselines.accept([results(row()), other], "first")
    changed = replace(results(row()), subject={"paged_kernels": "def"})
    with pytest.raises(UsageError, match="abc.*against.*def"):
        baselines.accept([results(row()), changed], "first")
    with pytest.raises(UsageError, match="at least one measured row"):
        baselines.accept([results(Row("dec", "d1", "naive", "graph", "FAILED", "x"))], "first")
    with pytest.raises(UsageError, match="several digests"):
        baselines.accept([results(row()), results(row(digest="d2"))], "first")


def test_a_baseline_keeps_the_spread_and_what_was_there_before(tmp_path):
    path = baselines.baseline_path("h200", tmp_path)
    runs = [results(row(seconds=s)) for s in (30e-6, 30.3e-6, 30.1e-6)]
    baselines.update(path, baselines.accept(runs, "first numbers"))
    baselines.update(path, baselines.accept([results(row("pre"))], "one more"))
    entries = baselines.load(path)
    assert sorted(entries) == ["dec unified graph", "pre unified graph"]
    entry = entries["dec unified graph"]
    assert entry.median_s == pytest.approx(30.1e-6)
    assert entry.spread == pytest.approx(0.01, abs=1e-4)
    assert entry.roofline == pytest.approx(15 / 30.1, rel=1e-4)
    assert (entry.reason, entry.commit, entry.environment) == ("first numbers", "abc", HERE)
    assert (entry.processes, entry.command) == (3, "pagegate bench")
    written = json.loads(path.read_text())
    assert list(written["entries"]) == sorted(entries)
    assert list(written["environments"]) == [HERE.key()]
    assert written["entries"]["dec unified graph"]["spread"] == 0.01


def test_an_update_changes_its_own_lines_only(tmp_path):
    path = baselines.baseline_path("h200", tmp_path)
    baselines.update(path, baselines.accept([results(row("a"), row("b"))], "first"))
    before = path.read_text().splitlines()
    baselines.update(path, baselines.accept([results(row("b", seconds=33e-6))], "slower, for a reason"))
    changed = [new for old, new in zip(before, path.read_text().splitlines(), strict=True) if old != new]
    assert [line.split(":")[0].strip() for line in changed] == ['"median_s"', '"reason"', '"roofline"']


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda data: data.update(format=2), "update pagegate"),
        (lambda data: data["environments"].clear(), HERE.key()),
        (lambda data: data["entries"]["dec unified graph"].update(median_s="fast"), "a median above 0"),
        (lambda data: data["entries"]["dec unified graph"].update(median_s=-1.0), "a median above 0"),
        (lambda data: data["entries"]["dec unified graph"].update(workload="pre"), "under its name"),
        (lambda data: data["entries"]["dec unified graph"].pop("digest"), "digest"),
    ],
)
def test_a_spoilt_baseline_is_refused(tmp_path, spoil, words):
    path = baselines.baseline_path("h200", tmp_path)
    baselines.update(path, baselines.accept([results(row())], "first"))
    data = json.loads(path.read_text())
    spoil(data)
    path.write_text(json.dumps(data))
    with pytest.raises(UsageError, match=words):
        baselines.load(path)


def test_against_a_baseline(tmp_path):
    path = baselines.baseline_path("h200", tmp_path)
    baselines.update(path, baselines.accept([results(row("a"), row("b"), row("gone"))], "first"))
    now = results(row("a", seconds=33e-6), row("b", digest="d2"), row("new"))
    found = {entry.name.split()[0]: entry for entry in baselines.against(baselines.load(path), now)}
    assert found["a"].ratio == pytest.approx(1.1)
    assert "digest d1 in the baseline, d2 now" in found["b"].reason
    assert found["new"].reason == "no baseline for it"
    assert found["gone"].reason == "missing: not measured"
    moved = results(row("a"), environment=replace(HERE, triton="3.9.0"))
    reasons = [entry.reason for entry in baselines.against(baselines.load(path), moved)]
    assert reasons[0] == "environments differ: triton: 3.6.0 against 3.9.0"


def test_the_commands(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_json(tmp_path / "a.json", results(row()).to_json())
    write_json(tmp_path / "b.json", results(row(seconds=33e-6)).to_json())
    assert main(["compare", "a.json", "b.json", "--json", "c.json"]) == 0
    assert json.loads((tmp_path / "c.json").read_text())[0]["ratio"] == pytest.approx(1.1)
    assert main(["baseline", "update", "a.json", "--reason", "first"]) == 0
    assert (tmp_path / "baselines" / "h200" / "latency.json").is_file()
    assert main(["baseline", "show", "b.json"]) == 0
    assert "1.100" in capsys.readouterr().out
    assert main(["baseline", "show", "--role", "mi300x"]) == 2
    assert main(["baseline", "update", "a.json", "--reason", ""]) == 2
    write_json(tmp_path / "d.json", results(row(digest="d9")).to_json())
    assert main(["compare", "a.json", "d.json"]) == 4
    assert main(["baseline", "show", "d.json"]) == 4
    assert "INCOMPARABLE" in capsys.readouterr().out


def test_results_from_a_copy_without_git_get_the_commit_of_the_same_sources(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    here = subject()
    for name, sources in (("same", here["sources"]), ("other", "0" * 12)):
        made = replace(results(row()), subject={"paged_kernels": "unversioned", "sources": sources})
        write_json(tmp_path / f"{name}.json", made.to_json())
    path = baselines.baseline_path("h200", tmp_path / "baselines")
    for name, commit in (("same", here["paged_kernels"]), ("other", "unversioned")):
        assert main(["baseline", "update", f"{name}.json", "--reason", "first"]) == 0
        assert baselines.load(path)["dec unified graph"].commit == commit


def test_comparing_needs_no_torch():
    code = (
        "import sys, pagegate.cli.compare, pagegate.cli.baseline, pagegate.regress.baselines; "
        "print([m for m in ('torch', 'triton', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
