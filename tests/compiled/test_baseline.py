"""Baselines as files, and figures as JSON."""

import difflib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from pagegate.cases.notation import format_case
from pagegate.cases.workloads import find_workloads
from pagegate.compiled import baseline
from pagegate.compiled.figures import Compiled, Figures, Mix, Variant
from pagegate.compiled.targets import DEFAULT
from pagegate.errors import UsageError

MIX = Mix(instructions=9, matrix={"HMMA.16816": 2}, loads={16: 3, 4: 1}, masks=1)
FIGURES = Figures(64, 0, 0, 0, 0, 0, 2048, 8, 32, "registers", 4096, MIX, MIX)
COMPILED = Compiled(
    "sm_90",
    "3.6.0",
    {"w1": "q1s9 h1/1 d32", "w2": "q2s9 h1/1 d32"},
    {"w1 ours": ("k w1",), "w2 ours": ("k w1", "broken w2")},
    {
        "k w1": Variant("k", {"TILE": 64, "CAUSAL": True, "num_warps": 4}, FIGURES),
        "broken w2": Variant("broken", {}, None, "does not compile"),
    },
)


def test_there_and_back(tmp_path):
    baseline.update(COMPILED, "because", tmp_path)
    assert baseline.load("sm_90", tmp_path) == {"3.6.0": COMPILED}
    text = baseline.path_of("sm_90", tmp_path).read_text()
    assert '"reason": "because"' in text
    data = json.loads(text)
    assert json.dumps(data) == json.dumps(json.loads(json.dumps(data, sort_keys=True)))
    # a changed count is a line or two of a diff, near the variant's name
    more = replace(MIX, masks=7)
    spilled = replace(FIGURES, spills=3, loops=more, total=more)
    variants = {**COMPILED.variants, "k w1": replace(COMPILED.variants["k w1"], figures=spilled)}
    baseline.update(replace(COMPILED, variants=variants), "because", tmp_path)
    changed = difflib.ndiff(text.splitlines(), baseline.path_of("sm_90", tmp_path).read_text().splitlines())
    assert len([line for line in changed if line[0] in "+-"]) == 5


def test_versions_stand_beside_each_other(tmp_path):
    newer = Compiled("sm_90", "3.9.0", {}, {}, {})
    baseline.update(COMPILED, "one", tmp_path)
    baseline.update(newer, "two", tmp_path)
    assert baseline.load("sm_90", tmp_path) == {"3.6.0": COMPILED, "3.9.0": newer}
    assert baseline.load("gfx942", tmp_path) == {}


def test_no_reason_no_baseline(tmp_path):
    with pytest.raises(UsageError, match="required why these figures are accepted"):
        baseline.update(COMPILED, " ", tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("text", "words"),
    [("{", "required a JSON file"), ("[]", "required a baseline"), ('{"format": 1}', "required a baseline"),
     ('{"format": 2, "versions": {}}', "required format 1, found 2"), ('{"format": 1, "versions": {"3.6.0": {}}}', "required a baseline")],
)  # fmt: skip
def test_other_files_are_refused_and_left_alone(tmp_path, text, words):
    path = baseline.path_of("sm_90", tmp_path)
    path.write_text(text)
    with pytest.raises(UsageError, match=words):
        baseline.load("sm_90", tmp_path)
    with pytest.raises(UsageError, match=words):
        baseline.update(COMPILED, "because", tmp_path)
    assert path.read_text() == text


ACCEPTED = Path(__file__).parents[2] / baseline.FOLDER


@pytest.mark.parametrize("target", DEFAULT)
def test_what_is_accepted_covers_the_table_and_can_launch(target):
    """For the oldest and the newest Triton that tests run with."""
    versions = baseline.load(target, ACCEPTED)
    assert {"3.6.0", "3.9.0"} <= versions.keys()
    for compiled in versions.values():
        assert compiled.workloads == {row.name: format_case(row.case) for row in find_workloads("pr")}
        assert {launch.split()[0] for launch in compiled.launches} == compiled.workloads.keys()
        assert not [variant.problem for variant in compiled.variants.values() if variant.problem]
        assert {name for names in compiled.launches.values() for name in names} == compiled.variants.keys()
