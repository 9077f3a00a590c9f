"""Commands as a user meets them: exit codes, messages, files."""

import json
import re
from pathlib import Path

import pytest

from pagegate.cases.notation import parse_case
from pagegate.cli import COMMANDS, main
from pagegate.cli.ci import worst_code
from pagegate.files import write_json

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
    "unknown kernel": (["check", "--kernel", "fastest"], "torch_sdpa; found 'fastest'"),
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
    "ci kernel": (["ci", "--kernel", "fastest"], "found 'fastest'"),
    "command": (["chekc"], "required a command, found 'chekc'"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input_is_exit_code_2_with_words(what, capsys, tmp_path):
    write_json(tmp_path / "newer.json", NEWER)
    (tmp_path / "corrupt.json").write_text('{"format": 1, ')
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

    code, said = code_and_words(capsys, "fuzz", "--examples", "15", "--workers", "1", *chosen)
    assert code == 1
    command = re.search(r"again: pagegate (replay \S+ --plugin plugin.py)", said)
    assert command, said
    code, said = code_and_words(capsys, *command[1].split())
    assert code == 1
    assert "replay: 0 of 1 held" in said
    # the case is fine: another kernel passes it
    code, said = code_and_words(capsys, "replay", ".pagegate/failures", "--kernel", "unified")
    assert (code, "replay: 1 of 1 held" in said) == (0, True)


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
    code, said = code_and_words(capsys, "ci", "--device", "interpreter", "--kernel", "unified")
    assert code == 1
    assert [words[0] for words in asked][:2] == ["check", "fuzz"]
    assert all("--kernel" in words for words in asked)
    assert "SKIPPED" in said  # no corpus in this folder
    assert "WRONG" in said
