"""The gate's own worker on a GPU: what a side measures, what it launches, and a small gate of equal sides."""

import json
import shutil

import pytest

from pagegate.cases.registry import kernels_root
from pagegate.cases.workloads import find_workloads

pytestmark = pytest.mark.gpu


def test_a_side_prepares_samples_and_explains():
    from pagegate.measure.samples import Samples
    from pagegate.regress.why import differences
    from pagegate.regress.worker import GpuSide

    side = GpuSide()
    assert side.begin()["environment"]["gpu"]
    (row,) = find_workloads("pr", "dec_b1_c4096")
    side.prepare(row.case, "unified", "graph", 3)
    samples = Samples.from_json(side.sample(8))
    assert len(samples.seconds) + samples.refused == 8
    assert 1e-6 < samples.median < 1e-3
    facts = side.explain()
    names = [launch["kernel"] for launch in facts["launches"]]
    assert names == ["unified_kernel", "reduce_splits_kernel"]  # split over keys
    for launch in facts["launches"]:
        assert launch["registers"] > 0 and launch["grid"] and launch["options"]["TILE"] >= 16
        assert "num_warps" in launch["options"]
    assert facts["call_s"] > samples.median
    assert len(differences(facts, facts)) == 1
    with pytest.raises(NotImplementedError):
        (window,) = find_workloads("pr", "gptoss_b16_c4096")
        side.prepare(window.case, "torch_sdpa", "graph", 0)


def test_equal_sides_pass(tmp_path, monkeypatch):
    from pagegate.cli import main

    for side in ("one", "two"):
        shutil.copytree(kernels_root() / "paged_kernels", tmp_path / side / "kernels" / "paged_kernels")
    monkeypatch.chdir(tmp_path)
    words = ["--base", "./one", "--head", "./two", "-k", "dec_b64_c4096 or pre_b8_q1024", "--allow-ambiguous"]
    assert main(["gate", *words, "--json", "gate.json", "--html", "gate.html"]) == 0
    data = json.loads((tmp_path / "gate.json").read_text())
    assert data["counts"].get("SLOWER", 0) == 0
    assert data["seconds"]["check head"] > 0
    for row in data["rows"]:
        assert abs(row["figures"]["change"]) < 0.01
