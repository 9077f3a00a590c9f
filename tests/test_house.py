"""The shape of the repository: import rules, names that others own, the README's promises."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def python(code, cwd=ROOT):
    done = subprocess.run([sys.executable, "-c", code], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_source_roots_are_no_packages():
    assert not (ROOT / "conftest.py").exists()
    for root in ("suite", "kernels"):
        assert not (ROOT / root / "__init__.py").exists()
    # transformers asks find_spec("kernels"): a bare folder must not look like an installed package
    spec = "import importlib.util as u; s = u.find_spec('kernels'); print(s is None or s.origin is None)"
    assert python(spec).strip() == "True"


@pytest.mark.parametrize("module", ["spec", "notation", "workloads", "registry", "features"])
def test_listing_needs_no_torch(module):
    code = (
        f"import sys, pagegate.cases.{module}; "
        "print([m for m in ('torch', 'triton', 'numpy', 'paged_kernels') if m in sys.modules])"
    )
    assert python(code).strip() == "[]"


@pytest.mark.skipif(
    shutil.which("lint-imports", path=Path(sys.executable).parent) is None, reason="no linter"
)
def test_a_backward_import_would_be_found():
    """The contract is kept, and it can fail: the layers are those of the design."""
    tool = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([tool, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert "0 broken" in done.stdout


def test_the_readme_names_the_two_commands():
    first_screen = (ROOT / "README.md").read_text().splitlines()[:40]
    text = "\n".join(first_screen)
    assert "make demo" in text
    assert "make test" in text


def test_the_readmes_kernel_passes(tmp_path):
    """Registering a third kernel: the example as it stands, run as it says."""
    text = (ROOT / "README.md").read_text()
    example = re.search(r"```python\n# my_kernel.py\n(.*?)```", text, re.DOTALL)
    assert example
    lines = [line for line in example[1].splitlines() if line.strip()]
    assert len([line for line in lines if not line.startswith(("import", "from"))]) <= 13
    (tmp_path / "my_kernel.py").write_text(example[1])
    command = re.search(r"^pagegate (check --plugin my_kernel.py .*)$", text, re.MULTILINE)
    assert command
    words = [sys.executable, "-P", "-m", "pagegate", *command[1].split()]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_corpus_is_read_and_has_reasons():
    from pagegate.oracle.saving import load_saved

    saved = load_saved([ROOT / "tests" / "corpus"])
    assert len(saved) >= 8
    assert all(entry.why for entry in saved)


def test_the_corpus_holds(monkeypatch, capsys):
    from pagegate.cli import main

    monkeypatch.chdir(ROOT)
    assert main(["replay", "--kernel", "unified"]) == 0
    assert "10 of 10 held" in capsys.readouterr().out
