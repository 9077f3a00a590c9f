"""What `make setup` installs: locked, within the declared ranges, and the right torch for each machine."""

import json
import os
import shutil
import stat
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from pagegate import bootstrap
from pagegate.bootstrap import BUILDS, Refused, choose_build, install_commands, refuse_old, uses_mirror
from pagegate.cli.doctor import other_build, skipped

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def locked():
    lines = (ROOT / bootstrap.LOCK).read_text().splitlines()
    return [Requirement(line) for line in lines if line.strip() and not line.lstrip().startswith("#")]


def declared():
    project = PROJECT["project"]
    lines = project["dependencies"] + project["optional-dependencies"]["dev"]
    return [Requirement(line) for line in lines + PROJECT["build-system"]["requires"]]


def test_the_lock_has_one_version_of_each_package():
    for requirement in locked():
        (only,) = requirement.specifier
        assert only.operator == "==", requirement


def test_the_lock_holds_what_the_project_declares():
    here = {r.name: next(iter(r.specifier)).version for r in locked() if not r.marker or r.marker.evaluate()}
    for requirement in declared():
        if requirement.name in ("torch", "triton"):
            assert requirement.name not in here, "a build of torch decides that"
        else:
            assert requirement.specifier.contains(here[requirement.name]), f"{requirement}: make lock"


def test_this_environment_is_the_locked_one():
    if not (Path(sys.prefix) / ".ready").exists():
        pytest.skip("this environment was not made by make setup")
    other = []
    for requirement in locked():
        if not requirement.marker or requirement.marker.evaluate():
            try:
                found = version(requirement.name)
            except PackageNotFoundError:
                found = None
            if found is None or not requirement.specifier.contains(found):
                other.append(f"{requirement}, found {found}")
    assert not other


@pytest.mark.parametrize("name", BUILDS)
def test_each_build_is_within_the_declared_ranges_and_its_triton_has_figures(name):
    ranges = {r.name: r.specifier for r in declared()}
    for line in filter(None, (BUILDS[name].torch, BUILDS[name].triton)):
        pinned = Requirement(line)
        assert ranges[pinned.name].contains(next(iter(pinned.specifier)).version)
    comes_with_torch = {"torch==2.11.0": "3.6.0"}
    build = BUILDS[name]
    triton = build.triton.partition("==")[2] if build.triton else comes_with_torch.get(build.torch)
    assert (triton is None) == (name == "macos")
    for path in (ROOT / "baselines" / "compiled").glob("*.json"):
        assert triton is None or triton in json.loads(path.read_text())["versions"]


@pytest.mark.parametrize(
    ("system", "nvidia", "amd", "name"),
    [
        ("Linux", False, False, "cpu"),
        ("Linux", True, False, "cuda"),
        ("Linux", False, True, "rocm"),
        ("Linux", True, True, "cuda"),  # an AMD processor's own graphics beside NVIDIA's card
        ("Darwin", False, False, "macos"),
    ],
)
def test_the_machine_decides_on_a_build(system, nvidia, amd, name):
    assert choose_build(system, nvidia, amd)[0] == name


def test_other_systems_are_refused():
    with pytest.raises(Refused, match="required Linux or macOS, found Windows"):
        choose_build("Windows", False, False)


@pytest.mark.parametrize("name", BUILDS)
def test_only_torch_asks_another_index_and_only_without_a_mirror(name):
    for mirrored in (False, True):
        steps = dict(install_commands(BUILDS[name], ["install"], mirrored))
        asking = [words for words, command in steps.items() if "--index-url" in command]
        assert asking == ([BUILDS[name].torch] if BUILDS[name].index and not mirrored else [])
        # the lock has all that CPU builds need; GPU builds need libraries of their own
        assert ("--no-deps" in steps[BUILDS[name].torch]) == (name in ("cpu", "macos"))
        assert {"--no-deps", "--no-build-isolation"} <= set(steps["pagegate"])
        assert next(iter(steps)).endswith(bootstrap.LOCK) and list(steps)[-1] == "pagegate"


@pytest.mark.parametrize(
    ("said", "mirror"),
    [
        ("global.index-url='https://mirror.example/simple'", True),
        ("user.extra-index-url='file:///packages'\nglobal.cert='/c'", True),
        (":env:.find-links='/wheels'", True),
        ("global.cert='/c'\nglobal.timeout='60'", False),
        ("", False),
    ],
)
def test_a_mirror_is_what_names_packages(said, mirror):
    assert uses_mirror(said) == mirror


def test_an_old_python_is_refused_before_anything_is_done(tmp_path, monkeypatch, capsys):
    refuse_old((3, 11, 0), "python3")
    with pytest.raises(Refused, match=r"required Python 3.11 or newer, found 3.10.12 \(python3\)"):
        refuse_old((3, 10, 12), "python3")
    monkeypatch.setattr(bootstrap.sys, "version_info", (3, 10, 12, "final", 0))
    monkeypatch.setattr(bootstrap.subprocess, "run", lambda *words, **options: pytest.fail("ran something"))
    monkeypatch.setattr(bootstrap.sys, "argv", ["bootstrap.py", str(tmp_path / "venv")])
    assert bootstrap.main() == 2
    assert "found 3.10.12" in capsys.readouterr().err
    assert not (tmp_path / "venv").exists()


def test_the_script_needs_no_package_and_no_new_syntax():
    import ast

    source = Path(bootstrap.__file__).read_text()
    tree = ast.parse(source, feature_version=(3, 7))
    imported = {
        name.partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([node.module] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names])
    }
    assert imported <= sys.stdlib_module_names


@pytest.mark.skipif(shutil.which("make") is None, reason="no make")
def test_make_shows_a_refusal_and_stops(tmp_path):
    """With a Python that says it is too old, as the script would there."""
    fake = tmp_path / "python3.10"
    fake.write_text("#!/bin/sh\necho 'make setup: required Python 3.11 or newer' >&2\nexit 2\n")
    fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
    words = ["make", "setup", f"PYTHON={fake}", f"VENV={tmp_path / 'venv'}"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "required Python 3.11 or newer" in done.stderr
    assert not (tmp_path / "venv").exists()


def test_doctor_names_the_wheels_for_the_gpu_that_is_here():
    advice = other_build("Linux", False, True, "cpu")
    assert advice is not None
    assert "make clean setup BUILD=rocm" in advice
    assert f"{BUILDS['rocm'].torch} --index-url {BUILDS['rocm'].index}" in advice
    assert "BUILD=cuda" in str(other_build("Linux", True, False, "cpu"))
    for system, nvidia, amd, has in (
        ("Linux", False, False, "cpu"),
        ("Linux", False, False, "cuda"),  # a build machine
        ("Linux", False, True, "rocm"),
        ("Darwin", False, False, "cpu"),
    ):
        assert other_build(system, nvidia, amd, has) is None
    readme = (ROOT / "README.md").read_text()
    assert str(BUILDS["rocm"].index) in readme and BUILDS["rocm"].torch in readme


def test_doctor_says_what_is_skipped_without_triton():
    assert any("no Triton here" in why for _, why in skipped(gpu=False, triton=False))
    assert not any("Triton here" in why for _, why in skipped(gpu=False, triton=True))


RUN = ROOT / ".ci" / "run"


@pytest.mark.parametrize(
    ("job", "prints", "last"),
    [
        (
            "test",
            ".venv/bin/ruff check .\n.venv/bin/python -m pytest -q -n 2\n....F\n"
            "FAILED tests/a.py::test_b - assert 1 == 2\nFAILED tests/a.py::test_c\n",
            "CI: make test failed in '.venv/bin/python -m pytest -q -n 2'; first: "
            "FAILED tests/a.py::test_b - assert 1 == 2",
        ),
        ("test", ".venv/bin/ruff check .\nE501\n", "CI: make test failed in '.venv/bin/ruff check .'"),
        ("test", "installing ...\n", "CI: make test failed in 'make setup'"),
        ("demo", ".venv/bin/pagegate ci\ncheck WRONG\n", "CI: make demo failed in '.venv/bin/pagegate ci'"),
        ("nothing", "", "CI: make test and make demo passed in"),
    ],
)
def test_the_last_line_of_ci_names_what_failed(tmp_path, job, prints, last):
    (tmp_path / ".ci").mkdir()
    shutil.copy(RUN, tmp_path / ".ci")
    (tmp_path / "said").write_text(prints)
    make = tmp_path / "bin" / "make"
    make.parent.mkdir()
    make.write_text(f'#!/bin/sh\n[ "$1" = {job} ] || exit 0\ncat said\nexit 7\n')
    make.chmod(0o755)
    environment = {**os.environ, "PATH": f"{make.parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", tmp_path / ".ci" / "run"], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines()[-1].startswith(last)
    assert done.returncode == (0 if job == "nothing" else 7)
