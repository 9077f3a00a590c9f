"""Commands as a user meets them: exit codes, messages, files."""

import json
import os
import re
from pathlib import Path

import pytest

from pagegate.cases.notation import format_case, parse_case
from pagegate.cases.spec import Case
from pagegate.cli import COMMANDS, main
from pagegate.cli.ci import worst_code
from pagegate.files import write_json
from pagegate.oracle.mutants import Verdict

GOOD = parse_case("q1s20 h1/1 d32").to_json()


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    """Commands leave their files in the working directory."""
    monkeypatch.chdir(tmp_path)


def code_and_words(capsys, *words):
    code = main(list(words))
    captured = capsys.readouterr()
    return code, re.sub(r"\s+", " ", captured.out + captured.err)


NEWER = GOOD | {"format": 99}
BAD = {
    "unknown kernel": (["check", "--kernel", "fastest"], "found 'fastest'"),
    "unknown workload": (["check", "-k", "nothing_like_it"], "matches a workload"),
    "no expression": (["check", "-k", "dec ++"], "required words joined by and, or, not"),
    "no such dtype": (["check", "--case", "q1 h1/1 d32 fp7"], "found 'fp7'"),
    "no such batch": (["check", "--case", "x1 h1/1 d32"], "found 'x1'"),
    "json into nowhere": (["check", "-k", "decode_tail", "--json", "none/x.json"], "a folder that exists"),
    "json onto a folder": (["list", "--json", "."], "a file in a folder"),
    "fuzz kernel": (["fuzz", "--kernel", "fastest"], "found 'fastest'"),
    "fuzz examples": (["fuzz", "--examples", "0"], "--examples: required more than 0, found 0"),
    "fuzz minutes": (["fuzz", "--minutes", "-1"], "--minutes: required more than 0, found -1"),
    "minutes that are no number": (["fuzz", "--minutes", "nan"], "required more than 0, found nan"),
    "check workers": (["check", "--workers", "0"], "--workers: required more than 0, found 0"),
    "check timeout": (["check", "--timeout", "-1"], "--timeout: required more than 0, found -1"),
    "check relations": (["check", "--relations", "-1"], "--relations: required 0 or more"),
    "replay timeout": (["replay", "--timeout", "0"], "--timeout: required more than 0"),
    "a word twice": (["check", "--case", "q1 h1/1 d32 d64"], "each word once, found 'd64'"),
    "a scale that is none": (["check", "--case", "q1 h1/1 d32 scale=nan"], "a finite number above 0"),
    "a plugin that ends Python": (["check", "--plugin", "exits.py"], "found SystemExit"),
    "a plugin without kernels": (["check", "--plugin", "idle.py"], "registers a kernel, found none"),
    "a folder that cannot be written": (["list", "--json", "/proc/x.json"], "required"),
    "plugin file": (["fuzz", "--plugin", "none.py"], "found no file none.py"),
    "plugin module": (["check", "--plugin", "no_such_module"], "ModuleNotFoundError"),
    "replay nothing": (["replay"], "found neither"),
    "replay missing": (["replay", "none.json"], "a readable case file"),
    "replay corrupt": (["replay", "corrupt.json"], "required JSON"),
    "replay newer": (["replay", "newer.json"], "update pagegate"),
    "replay empty folder": (["replay", "empty"], "found none"),
    "mutant": (["mutants", "-k", "nobody"], "matches a mutant"),
    "list workload": (["list", "-k", "nothing_like_it"], "matches a workload"),
    "list nothing": (["list", "mutants", "-k", "nobody"], "matches one of the mutants"),
    "list tier": (["list", "features", "--tier", "pr"], "--tier: required with workloads only"),
    "list expression": (["list", "features", "-k", "a +"], "required words joined by"),
    "list kernel": (["list", "--kernel", "fastest"], "found 'fastest'"),
    "a case and workloads": (
        ["check", "--case", "q1 h1/1 d32", "-k", "dec"],
        "required without -k and --tier",
    ),
    "a case and a tier": (
        ["check", "--case", "q1 h1/1 d32", "--tier", "pr"],
        "required without -k and --tier",
    ),
    "a row of another tier": (["check", "--tier", "pr", "-k", "decode_tail"], "matches a workload"),
    "a target and a device": (["fuzz", "--target", "gfx942", "--device", "gpu"], "without --device"),
    "replay wrong field": (["replay", "typo.json"], "found widnow"),
    "replay wrong type": (["replay", "type.json"], "head_dim: required int, found '32'"),
    "replay no text": (["replay", "kernel.json"], "required a kernel name"),
    "replay lost kernel": (["replay", "lost.json"], "found 'gone'"),
    "fuzz relations": (["fuzz", "--relations", "-2"], "--relations: required 0 or more"),
    "fuzz json": (["fuzz", "--json", "none/x.json"], "a folder that exists"),
    "replay json": (["replay", "good.json", "--json", "none/x.json"], "a folder that exists"),
    "mutants json": (["mutants", "--json", "none/x.json"], "a folder that exists"),
    "mutants workers": (["mutants", "--workers", "0"], "--workers: required more than 0"),
    "doctor json": (["doctor", "--json", "none/x.json"], "a folder that exists"),
    "ci json": (["ci", "--json", "none/x.json"], "a folder that exists"),
    "compare missing": (["compare", "none.json", "none.json"], "none.json: required"),
    "compare a case": (["compare", "good.json", "good.json"], "good.json: required"),
    "baseline missing": (["baseline", "update", "none.json", "--reason", "x"], "none.json: required"),
    "ci kernel": (["ci", "--kernel", "fastest"], "found 'fastest'"),
    "command": (["chekc"], "required a command, found 'chekc'"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input_is_exit_code_2_with_words(what, capsys, tmp_path):
    write_json(tmp_path / "newer.json", NEWER)
    (tmp_path / "corrupt.json").write_text('{"format": 1, ')
    typo = GOOD | {"spec": GOOD["spec"] | {"widnow": 3}}
    wrong_type = GOOD | {"spec": GOOD["spec"] | {"head_dim": "32"}}
    files = {"good": GOOD, "typo": typo, "type": wrong_type, "kernel": {"case": GOOD, "kernel": 3}}
    for name, data in (files | {"lost": {"case": GOOD, "kernel": "gone"}}).items():
        write_json(tmp_path / f"{name}.json", data)
    (tmp_path / "empty").mkdir()
    (tmp_path / "exits.py").write_text("import sys; sys.exit(0)")
    (tmp_path / "idle.py").write_text("import math")
    before = sorted(tmp_path.rglob("*"))
    words, expected = BAD[what]
    code, said = code_and_words(capsys, *words)
    assert code == 2
    assert expected in said
    assert "required" in said
    assert "Traceback" not in said
    after = [path for path in tmp_path.rglob("*") if "__pycache__" not in str(path)]
    assert sorted(after) == before


@pytest.mark.parametrize("command", ["doctor", "check", "fuzz", "replay", "mutants", "ci"])
def test_a_gpu_that_is_not_there(command, capsys, monkeypatch, tmp_path):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    write_json(tmp_path / "case.json", GOOD)
    words = [command, "--device", "gpu", *(["case.json"] if command == "replay" else [])]
    code, said = code_and_words(capsys, *words)
    assert code == 2
    assert "required a CUDA or HIP GPU" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["check", "--tier", "weekly"], "invalid choice: 'weekly'"),
        (["check", "--device", "tpu"], "invalid choice: 'tpu'"),
        (["check", "--target", "gfx900"], "invalid choice: 'gfx900'"),
        (["fuzz", "--examples", "many"], "invalid int value: 'many'"),
        (["fuzz", "--size", "huge"], "invalid choice: 'huge'"),
        (["mutants", "--kernel", "unified"], "unrecognized arguments"),
        (["list", "everything"], "invalid choice: 'everything'"),
        (["baseline", "update", "a.json"], "the following arguments are required: --reason"),
        (["compare", "a.json"], "required: B"),
    ],
)
def test_words_that_no_option_takes(words, said, capsys):
    with pytest.raises(SystemExit) as done:
        main(words)
    assert done.value.code == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command, capsys):
    with pytest.raises(SystemExit) as done:
        main([command, "--help"])
    assert done.value.code == 0
    assert f"pagegate {command}" in capsys.readouterr().out


def test_the_overview_and_the_version(capsys):
    code, said = code_and_words(capsys, "--help")
    assert code == 0
    assert all(f" {command} " in said for command in COMMANDS)
    assert code_and_words(capsys, "--version")[1].startswith("pagegate 0.")
    assert main([]) == 0


def test_list_and_doctor(capsys):
    code, said = code_and_words(capsys, "list")
    assert (code, "unified" in said, "sliding_window" in said) == (0, True, True)
    code, said = code_and_words(capsys, "list", "workloads", "--tier", "pr", "--json", "list.json")
    rows = json.loads(Path("list.json").read_text())["workloads"]
    assert code == 0
    assert len(rows) >= 18
    assert "graph_replay" in code_and_words(capsys, "list", "relations")[1]
    assert "tail_loaded" in code_and_words(capsys, "list", "mutants", "-k", "tail")[1]
    assert "torch" in code_and_words(capsys, "doctor", "--json", "doctor.json")[1]
    assert json.loads(Path("doctor.json").read_text())["facts"]["torch"]


PLUGIN = """
from pagegate.cases.registry import find_kernel, register

@register("sloppy")
def sloppy(q, k_cache, v_cache, *, block_table, seq_lens, cu_seqlens_q, max_query_len, out):
    honest = find_kernel("unified").load()
    honest(q, k_cache, v_cache, block_table=block_table, seq_lens=seq_lens,
           cu_seqlens_q=cu_seqlens_q, max_query_len=max_query_len, out=out)
    out[:1] *= 1.5
    return out
"""


def test_from_a_failure_to_its_replay(capsys, tmp_path):
    (tmp_path / "plugin.py").write_text(PLUGIN)
    chosen = ["--plugin", "plugin.py", "--kernel", "sloppy"]
    code, said = code_and_words(capsys, "check", "-k", "decode_tail", *chosen, "--json", "check.json")
    assert code == 1
    assert "OUT_OF_BUDGET sloppy q1s33_q1s7 h4/2 d32" in said
    assert "out at sequence 0, token 0, head" in said
    assert "again: pagegate check -k decode_tail --kernel sloppy --plugin plugin.py" in said
    result = json.loads((tmp_path / "check.json").read_text())["results"][0]
    assert (result["status"], result["worst"]["sequence"]) == ("OUT_OF_BUDGET", 0)

    words = ["--examples", "15", "--workers", "1", "--seed", "4", "--json", "fuzz.json"]
    code, said = code_and_words(capsys, "fuzz", *words, *chosen)
    assert code == 1
    assert "fuzzing sloppy on Triton's interpreter (no GPU): seed 4, 1 search, small cases" in said
    fuzzed = json.loads((tmp_path / "fuzz.json").read_text())
    assert (fuzzed["seed"], fuzzed["cases"], fuzzed["checks"].keys()) == (4, 15, {"sloppy"})
    failure = fuzzed["failures"][0]
    assert (failure["status"], failure["case"]["spec"]["head_dim"]) == ("OUT_OF_BUDGET", 32)
    saved = json.loads(next((tmp_path / ".pagegate" / "failures").iterdir()).read_text())
    assert saved["case"] == failure["case"]
    assert saved["line"] == format_case(Case.from_json(saved["case"]))
    assert "torch" in saved["found_on"]
    assert list((tmp_path / ".pagegate" / "examples").rglob("*"))  # tried first the next time
    command = re.search(r"again: pagegate (replay \S+ --plugin plugin.py)", said)
    assert command, said
    code, said = code_and_words(capsys, *command[1].split())
    assert code == 1
    assert "replay: 0 of 1 held" in said
    # the case is fine: another kernel passes it
    words = ["replay", ".pagegate/failures", "--kernel", "unified", "--json", "replay.json"]
    code, said = code_and_words(capsys, *words)
    assert (code, "replay: 1 of 1 held" in said) == (0, True)
    replayed = json.loads((tmp_path / "replay.json").read_text())["results"]
    assert [(r["kernel"], r["status"], r["case"]) for r in replayed] == [("unified", "PASSED", saved["case"])]


def test_fuzz_passes(capsys, tmp_path):
    words = ["--kernel", "unified", "--workers", "1", "--no-database", "--relations", "1"]
    code, said = code_and_words(capsys, "fuzz", "--examples", "6", *words)
    assert code == 0
    assert "fuzz, 6 cases in" in said
    assert "worst of unified: " in said
    assert not (tmp_path / ".pagegate").exists()


def test_one_case_by_its_line(capsys):
    words = ["--case", "q3s40 h2/1 d32 window=9", "--kernel", "unified", "--relations", "0"]
    code, said = code_and_words(capsys, "check", *words, "--device", "interpreter")
    assert (code, "checking 1 cases with unified on Triton's interpreter" in said) == (0, True)


@pytest.mark.parametrize(
    ("outcomes", "code", "score"),
    [
        (["KILLED", "KILLED"], 0, "score: 2 of 2 killed"),
        (["KILLED", "SURVIVED"], 1, "score: 1 of 2 killed; not killed: tail_values_loaded"),
        (["ERROR", "KILLED"], 1, "not killed: tail_loaded"),
    ],
)
def test_mutants_says_who_was_not_noticed(capsys, monkeypatch, outcomes, code, score):
    def fake(mutants, setup, workers, on_verdict):
        chosen = zip(mutants[:2], outcomes, strict=True)
        verdicts = [Verdict(mutant, outcome, "[/by] a check", 3, 1.5) for mutant, outcome in chosen]
        for verdict in verdicts:
            on_verdict(verdict)
        return verdicts

    monkeypatch.setattr("pagegate.oracle.mutants.run_mutants", fake)
    found, said = code_and_words(capsys, "mutants", "-k", "tail", "--json", "mutants.json")
    assert (found, score in said) == (code, True), said
    assert "[/by] a check" in said
    rows = json.loads(Path("mutants.json").read_text())["mutants"]
    assert [row["outcome"] for row in rows] == outcomes
    assert rows[0].keys() == {"mutant", "outcome", "by", "cases", "seconds"}


def test_what_kernels_say_is_printed_as_it_is(capsys, tmp_path):
    """Square brackets are markup to rich, and a reason is none."""
    reason = "[/lost] only [red]squares[/red]"
    (tmp_path / "plugin.py").write_text(
        "from pagegate.cases.registry import register\n"
        "@register('choosy')\n"
        "def choosy(**arguments):\n"
        f"    {reason!r}\n"
        f"    raise NotImplementedError({reason!r})\n"
    )
    write_json(tmp_path / "case.json", GOOD)
    chosen = ["--plugin", "plugin.py", "--kernel", "choosy"]
    assert reason in code_and_words(capsys, "list", "kernels", *chosen)[1]
    for words in (["replay", "case.json"], ["check", "--case", "q1s20 h1/1 d32"]):
        code, said = code_and_words(capsys, *words, *chosen)
        assert (code, f"in 1 cases: {reason}" in said) == (2, True), said


def test_results_are_for_everyone_to_read(tmp_path):
    """As the umask says, whatever tempfile would make of it."""
    before = os.umask(0o022)
    try:
        write_json(tmp_path / "result.json", {})
    finally:
        os.umask(before)
    assert (tmp_path / "result.json").stat().st_mode & 0o777 == 0o644


def test_what_is_unsupported_is_counted_not_hidden(capsys, tmp_path):
    (tmp_path / "plugin.py").write_text(PLUGIN.replace('"sloppy"', '"narrow"').replace("1.5", "1.0"))
    chosen = ["--plugin", "plugin.py", "--kernel", "narrow"]
    words = ["check", "-k", "window_one or head_dim_192", *chosen]
    code, said = code_and_words(capsys, *words)
    assert code == 0
    assert "UNSUPPORTED narrow in 1 cases: takes no sliding_window" in said
    code, said = code_and_words(capsys, "check", "-k", "window_one", *chosen)
    assert (code, "an empty check is no pass" in said) == (2, True)


def test_an_interrupted_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "kept.json"
    write_json(path, {"a": 1})
    with pytest.raises(TypeError):
        write_json(path, {"a": object()})
    assert json.loads(path.read_text()) == {"a": 1}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["kept.json"]


@pytest.mark.parametrize(
    ("codes", "worst"), [([0, 0], 0), ([0, 3, 1], 1), ([4, 3], 3), ([2, 4], 2), ([], 0), ([0, 130], 130)]
)
def test_ci_ends_with_the_worst_code(codes, worst):
    assert worst_code(codes) == worst


def test_ci_runs_the_gates_and_says_what_it_skips(capsys, monkeypatch):
    from pagegate.cli import ci

    asked = []

    def fake_main(words):
        asked.append(words)
        return 1 if words[0] == "check" else 0

    monkeypatch.setattr(ci, "main", fake_main)
    words = ["ci", "--device", "interpreter", "--kernel", "unified", "--json", "ci.json"]
    code, said = code_and_words(capsys, *words)
    assert code == 1
    assert [words[0] for words in asked] == ["check", "fuzz", "check"]
    assert all("--kernel" in words for words in asked)
    assert "SKIPPED" in said  # no corpus in this folder
    assert "WRONG" in said
    gates = json.loads(Path("ci.json").read_text())["gates"]
    verdicts = {gate["gate"]: gate["verdict"] for gate in gates}
    assert (verdicts["corpus"], verdicts["check"], verdicts["fuzz"]) == ("SKIPPED", "WRONG", "PASSED")
