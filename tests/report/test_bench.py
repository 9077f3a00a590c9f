"""Tables and pictures of results, on made-up numbers."""

import io

import pytest
from rich.console import Console

from pagegate.cases.workloads import find_workloads
from pagegate.measure.environment import Environment
from pagegate.measure.roofline import Ceilings
from pagegate.measure.samples import Reading, Samples
from pagegate.regress.results import Results, Row
from pagegate.report.bench import bench_table, live
from pagegate.report.plot import choose_axis, panels, plot, specs_of

HERE = Environment("NVIDIA H200", "h200", "580", "CUDA 13.0", "2.11", "3.6.0", "3.12")
SPECS = {row.name: row.spec for row in find_workloads("pr")}


def row(name, kernel="unified", seconds=30e-6, **about):
    samples = Samples("graph", (seconds, seconds * 1.001, seconds * 0.999), "target", **about)
    return Row(name, SPECS[name].digest(), kernel, "graph", samples=samples, floor_s=15e-6)


def results(*rows):
    return Results(HERE, Ceilings(4e12, 8e14), {"paged_kernels": "abc"}, rows)


def text(renderable):
    out = Console(file=io.StringIO(), width=240)
    out.print(renderable)
    return out.file.getvalue()


def test_a_table_says_what_was_measured_and_what_was_not():
    throttled = {
        "throttled": 2,
        "refused": 7,
        "readings": (Reading(1980, 3201), Reading(1200, 3201, ("hardware thermal",))),
    }
    drawn = text(
        bench_table(
            results(
                row("dec_b64_c4096", seconds=400e-6),
                row("dec_b64_c4096", "naive", 800e-6, **throttled),
                row("pre_b1_q2048"),
                Row("ragged", "d", "cudnn", "graph", "UNSUPPORTED", "required one of [cudnn]"),
            ),
            "naive",
        )
    )
    lines = {tuple(line.split()[1:4:2]): line for line in drawn.splitlines() if line.startswith("│")}
    decode = lines["dec_b64_c4096", "unified"]
    # 64 x 4,096 keys of 8 heads of 128 in bf16, K and V: 1.074 GB and a little
    assert "400.0" in decode
    assert "2,687 GB/s" in decode
    assert "4 %" in decode
    assert "2.00" in decode
    for words in (
        "2 of 3 throttled (hardware thermal)",
        "SM clock 1,200 to 1,980 MHz",
        "7 late launches refused",
    ):
        assert words in lines["dec_b64_c4096", "naive"]
    assert "MHz" not in decode
    assert "TFLOP/s" in lines["pre_b1_q2048", "unified"]
    assert "UNSUPPORTED: required one of [cudnn]" in lines["ragged", "cudnn"]


def test_a_budget_that_ended_first_is_a_note():
    samples = Samples("graph", (1e-5, 2e-5), "budget")
    made = results(Row("ragged", "d", "naive", "graph", samples=samples))
    assert "time budget" in text(bench_table(made, None))


def test_the_table_grows_on_a_terminal_only():
    for terminal in (True, False):
        out = Console(file=io.StringIO(), force_terminal=terminal, width=160, height=14)
        with live(out, 2, None) as show:
            show(results(row("dec_b1_c512"), row("dec_b1_c4096")), "dec_b1_c4096 unified")
        assert ("dec_b1_c4096" in out.file.getvalue()) == terminal


def test_families_differ_along_one_axis():
    over_context = panels(SPECS, "context")
    assert over_context[0].title == "decode, batch 1\n32/8 heads of 128"
    assert [label for _, label, _ in over_context[0].points] == ["512", "4k", "16k", "128k"]
    assert any(panel.title.startswith("prompt, batch 1") for panel in over_context)
    over_batch = panels(SPECS, "batch")
    assert over_batch[0].title == "decode, 4k keys\n32/8 heads of 128"
    assert [x for x, _, _ in over_batch[0].points] == [1, 4, 16, 64]
    for panel in (*over_context, *over_batch):
        assert "ragged" not in [name for _, _, name in panel.points]


def test_the_axis_is_the_first_with_two_workloads():
    def chosen(*names):
        return choose_axis({name: SPECS[name] for name in names})

    assert chosen("dec_b1_c512", "dec_b1_c4096") == "context"
    assert chosen("dec_b1_c4096", "dec_b4_c4096") == "batch"
    assert chosen("ragged", "dec_b4_c4096") == "workload"
    # a window makes another family
    assert chosen("gemma_b16_c4096", "dec_b16_c512") == "workload"


@pytest.mark.parametrize(("suffix", "start"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
@pytest.mark.parametrize("axis", [None, "batch", "workload"])
def test_a_picture_is_drawn(tmp_path, suffix, start, axis):
    names = ("dec_b1_c512", "dec_b1_c4096", "dec_b4_c4096", "ragged")
    made = results(*(row(name, kernel) for name in names for kernel in ("unified", "naive")))
    plot(made, tmp_path / f"a.{suffix}", axis)
    assert (tmp_path / f"a.{suffix}").read_bytes().startswith(start)


def test_workloads_that_left_the_table_are_not_drawn(tmp_path):
    gone = Row("gone", "d", "unified", "graph", samples=row("ragged").samples)
    assert list(specs_of(results(gone, row("ragged")))) == ["ragged"]
