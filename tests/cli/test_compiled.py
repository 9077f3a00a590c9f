"""`pagegate compiled` as a command: exit codes, what it says, and what it leaves behind."""

import io
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from pagegate.cases.registry import kernels_root
from pagegate.cli import main
from pagegate.compiled import baseline, sources
from pagegate.errors import UsageError

FEW = ["--target", "gfx942", "-k", "dec_b1_c512", "--kernel", "naive", "--workers", "1"]


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def code_and_words(capsys, *words):
    code = main(["compiled", *words])
    said = capsys.readouterr()
    return code, " ".join((said.out + said.err).split())


def test_from_a_baseline_to_a_slower_kernel(capsys):
    """One path through the gate: accepted, the same, slower, another version."""
    chosen = [*FEW, "--folder", "accepted"]
    code, said = code_and_words(capsys, *chosen, "--update", "--reason", "the first")
    assert (code, "1 variants of triton" in said) == (0, True), said
    code, said = code_and_words(capsys, *chosen, "--json", "found.json")
    assert (code, "SAME gfx942" in said) == (0, True), said
    found = json.loads(Path("found.json").read_text())["gfx942"]
    assert (found["verdict"], found["findings"]) == ("SAME", [])

    path = baseline.path_of("gfx942", Path("accepted"))
    data = json.loads(path.read_text())
    ((version, entry),) = data["versions"].items()
    (variant,) = entry["variants"].values()
    variant["figures"]["loops"]["masks"] //= 2
    path.write_text(json.dumps(data))
    code, said = code_and_words(capsys, *chosen)
    assert code == 3
    assert "SLOWER gfx942 naive_kernel compares and selects in loops (masking):" in said
    assert "(dec_b1_c512 naive)" in said

    data["versions"] = {"3.1.4": entry}
    path.write_text(json.dumps(data))
    code, said = code_and_words(capsys, *chosen)
    assert code == 4
    assert f"INCOMPARABLE gfx942 gfx942 required a baseline of triton {version}, found 3.1.4: install" in said
    assert f"`pagegate compiled --triton 3.1.4 --triton {version}` shows what the version changes" in said


PLAIN = """
from pagegate.cases.registry import register

@register("plain")
def plain(q, k_cache, v_cache, *, block_table, seq_lens, cu_seqlens_q, max_query_len, out):
    out.fill_(int(seq_lens.max()))
    return out
"""


def test_a_kernel_that_reads_data_is_unsupported_and_nothing_left_is_an_error(capsys):
    Path("plain.py").write_text(PLAIN)
    words = [
        "--target",
        "gfx942",
        "-k",
        "dec_b1_c512 or gptoss_b16_c4096",
        "--plugin",
        "plain.py",
        "--workers",
        "1",
    ]
    code, said = code_and_words(capsys, *words, "--kernel", "plain")
    assert code == 2
    assert (
        "UNSUPPORTED plain in 1 workloads: RuntimeError: Tensor.item() cannot be called on meta tensors"
        in said
    )
    assert "UNSUPPORTED plain in 1 workloads: takes no sliding_window" in said
    assert "required at least one Triton kernel launched by plain, found none" in said


USAGE = {
    "no reason": (["--update"], "required --reason TEXT"),
    "no update": (["--reason", "x"], "required with --update"),
    "selection": (["--update", "--reason", "x", "-k", "ragged"], "into a --folder of its own"),
    "base and update": (["--update", "--reason", "x", "--base", "HEAD"], "found both"),
    "base and versions": (
        ["--base", "HEAD", "--triton", "3.6.0", "--triton", "3.9.0"],
        "one question at a time",
    ),
    "target": (["--target", "sm_1"], "required one of sm_80"),
    "kernel": (["--kernel", "fastest"], "found 'fastest'"),
    "workers": (["--workers", "0"], "required more than 0"),
    "json": (["--json", "none/x.json"], "a folder that exists"),
}


@pytest.mark.parametrize(("words", "expected"), USAGE.values(), ids=USAGE)
def test_usage(capsys, words, expected):
    code, said = code_and_words(capsys, *words)
    assert (code, expected in said) == (2, True), said


def git(*words):
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run(["git", *identity, *words], check=True, capture_output=True)


def test_another_commit(capsys, monkeypatch, tmp_path):
    """The base is what was committed, also where the working tree changed since."""
    kernels = tmp_path / "repository" / "kernels"
    copy = ["cp", "-r", str(kernels_root()), str(kernels)]
    kernels.parent.mkdir()
    subprocess.run(copy, check=True)
    git("-C", str(kernels.parent), "init")
    git("-C", str(kernels.parent), "add", ".")
    git("-C", str(kernels.parent), "commit", "-m", "x")
    naive = kernels / "paged_kernels" / "attention.py"
    assert naive.read_text().count("num_warps=config.num_warps") == 1
    naive.write_text(naive.read_text().replace("num_warps=config.num_warps", "num_warps=8"))
    monkeypatch.setattr(sources, "kernels_root", lambda: kernels)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(kernels), os.environ.get("PYTHONPATH", "")]))
    code, said = code_and_words(capsys, *FEW, "--base", "HEAD")
    assert code != 0
    assert "which only a clock can judge: num_warps 4 -> 8 (dec_b1_c512 naive)" in said
    with pytest.raises(UsageError, match="--base nosuch: required a commit that has kernels/"):
        sources.kernels_at("nosuch", tmp_path / "base")


def wheel(folder, version):
    """The smallest thing that pip installs as triton."""
    info = f"triton-{version}.dist-info"
    files = {
        "triton/__init__.py": f"__version__ = {version!r}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: triton\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": "",
    }
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    (folder / f"triton-{version}-py3-none-any.whl").write_bytes(data.getvalue())


def test_a_triton_in_a_folder_of_its_own(monkeypatch, tmp_path):
    wheel(tmp_path, "9.8.7")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    root = sources.triton_at("9.8.7", tmp_path / "throwaway")
    words = [sys.executable, "-c", "import triton; print(triton.__version__)"]
    done = subprocess.run(
        words, env={**os.environ, "PYTHONPATH": str(root)}, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "9.8.7"
    with pytest.raises(
        UsageError, match=r"--triton 9.8.6: required a version that pip can install, found 'ERROR"
    ):
        sources.triton_at("9.8.6", tmp_path / "other")
