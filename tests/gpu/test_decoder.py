"""Graphs of a whole decoder step on a GPU, and the check of tests/gpu/decoding.py itself anywhere."""

import argparse
import math
from importlib import util
from pathlib import Path

import pytest
import torch

from pagegate.cases.registry import Kernel, find_kernel
from pagegate.measure.batch import Batch, Capacity, Running
from pagegate.measure.decoder import Decoder
from pagegate.measure.model import MODELS, make_model


def load_decoding():
    spec = util.spec_from_file_location("decoding", Path(__file__).with_name("decoding.py"))
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def make_run(decoding, device, rehearse, steps):
    options = argparse.Namespace(rehearse=rehearse, steps=steps)
    model = make_model(MODELS["small"], torch.bfloat16, device)
    return decoding.Run(options, device, model, math.inf)


@pytest.mark.gpu
@pytest.mark.parametrize("kernel", ["naive", "unified"])
def test_greedy_decoding_by_one_graph_equals_eager(kernel):
    decoding = load_decoding()
    run = make_run(decoding, torch.device("cuda"), False, 40)
    row = decoding.greedy_row(run, find_kernel(kernel))
    assert row["ok"], row["verdict"]
    assert row["distinct_tokens"] > 10


@pytest.mark.gpu
def test_partial_and_full_graphs_equal_eager_in_a_mixed_batch():
    device = torch.device("cuda")
    model, batch = make_model(MODELS["small"], torch.bfloat16, device), Batch(Capacity(5, 12, 4, 30), device)
    steps = (
        (Running((5, 9, 60), 200, tuple(range(14))), Running((33,), 17, (14, 15))),
        (
            Running((2,), 33, (20, 3, 17)),
            Running((8, 1, 4, 4), 4, (9,)),
            Running((7,), 400, tuple(range(30))),
        ),
    )
    logits = {}
    for mode in ("eager", "partial", "full"):
        torch.manual_seed(5)
        caches = [tuple(torch.randn(30, 16, 2, 32, device=device).bfloat16() for _ in "kv") for _ in range(2)]
        batch.fill(steps[0])
        decoder = Decoder(model, caches, batch, find_kernel("unified"), mode)
        logits[mode] = []
        for running in steps:
            batch.fill(running)
            decoder()
            logits[mode].append(decoder.logits[: len(running)].clone())
    for mode in ("partial", "full"):
        assert all(torch.equal(*pair) for pair in zip(logits["eager"], logits[mode], strict=True))


def moving(q, seq_lens, out):
    return out.copy_(q * seq_lens.sum())


@pytest.mark.parametrize(
    ("fault", "verdict"),
    [("none", "EQUAL"), ("stale", "logits differ at step 1"), ("forgetful", "caches differ in layer")],
)
def test_greedy_notices_a_graph_that_does_something_else(fault, verdict, monkeypatch):
    decoding = load_decoding()
    run = make_run(decoding, torch.device("cpu"), True, 4)

    def capture(piece):
        calls = []

        def replay():
            calls.append(piece)
            if fault == "stale" and len(calls) == 2:
                return  # as if it still saw the lengths of its capture
            piece()
            if fault == "forgetful" and len(calls) == 4:
                caches[-1][0][1][0, 0].fill_(2.0)

        return replay

    caches = []
    original = Decoder.__init__

    def noted(self, model, own, *rest):
        caches.append(own)
        original(self, model, own, *rest)

    monkeypatch.setattr(decoding.Run, "capture", lambda self: capture)
    monkeypatch.setattr(Decoder, "__init__", noted)
    row = decoding.greedy_row(run, Kernel("moving", "", lambda: moving))
    assert row["verdict"].startswith(verdict)
    assert row["ok"] == (fault == "none")
