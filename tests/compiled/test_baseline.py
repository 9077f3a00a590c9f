"""Baselines as files, and figures as JSON."""

import json
from pathlib import Path

import pytest

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
    assert text == json.dumps(json.loads(text), indent=2, sort_keys=True) + "\n"


def test_versions_stand_beside_each_other(tmp_path):
    newer = Compiled("sm_90", "3.9.0", {}, {})
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
    versions = baseline.load(target, ACCEPTED)
    assert versions
    for compiled in versions.values():
        rows = {launch.split()[0] for launch in compiled.launches}
        assert rows == {row.name for row in find_workloads("pr")}
        assert not [variant.problem for variant in compiled.variants.values() if variant.problem]
        assert {name for names in compiled.launches.values() for name in names} == compiled.variants.keys()
