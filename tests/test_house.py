"""The shape of the repository: import rules, names that others own, the README's promises."""

import json
import os
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
    for name in ("kernels", "suite"):
        spec = f"import importlib.util as u; s = u.find_spec({name!r}); print(s is None or s.origin is None)"
        assert python(spec).strip() == "True"


@pytest.mark.parametrize("module", ["spec", "notation", "workloads", "registry", "features"])
def test_listing_needs_no_torch(module):
    code = (
        f"import sys, pagegate.cases.{module}; "
        "print([m for m in ('torch', 'triton', 'numpy', 'paged_kernels') if m in sys.modules])"
    )
    assert python(code).strip() == "[]"


LINTER = shutil.which("lint-imports", path=Path(sys.executable).parent)


def lint_imports(root):
    roots = os.pathsep.join(str(root / name) for name in ("suite", "kernels"))
    environment = {**os.environ, "PYTHONPATH": roots}
    return subprocess.run(
        [LINTER, "--no-cache"], cwd=root, capture_output=True, text=True, check=False, env=environment
    )


@pytest.mark.skipif(LINTER is None, reason="no import-linter")
def test_imports_run_one_way():
    done = lint_imports(ROOT)
    assert done.returncode == 0, done.stdout
    assert " 0 broken" in done.stdout


@pytest.mark.skipif(LINTER is None, reason="no import-linter")
def test_imports_the_wrong_way_would_be_found(tmp_path):
    for root in ("suite", "kernels"):
        shutil.copytree(ROOT / root, tmp_path / root, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for module, line in (
        ("suite/pagegate/oracle/results.py", "import pagegate.report.terminal"),
        ("suite/pagegate/oracle/memory.py", "import paged_kernels"),
        ("kernels/paged_kernels/launch.py", "import pagegate.errors"),
        ("suite/pagegate/cases/notation.py", "import numpy"),
        ("suite/pagegate/regress/looks.py", "import triton"),
    ):
        with (tmp_path / module).open("a") as file:
            file.write(f"\n{line}\n")
    done = lint_imports(tmp_path)
    assert done.returncode == 1
    assert "5 broken" in done.stdout, done.stdout


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
    from pagegate.cases.notation import format_case
    from pagegate.oracle.saving import load_saved

    saved = load_saved([ROOT / "tests" / "corpus"])
    assert len(saved) >= 8
    assert all(entry.why for entry in saved)
    for entry in saved:
        text = json.loads(entry.path.read_text())
        assert text["line"] == format_case(entry.case)
        assert text["case"] == entry.case.to_json()
