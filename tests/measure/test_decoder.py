"""The decoder step against its definition in float64, and what its modes capture."""

import pytest
import torch

from pagegate.cases.registry import Kernel, find_kernel
from pagegate.errors import UsageError
from pagegate.measure.batch import Batch, Capacity, Running, grow
from pagegate.measure.decoder import MODES, Decoder
from pagegate.measure.model import MODELS, make_model

from .dense_decoder import dense_step, gather

CPU = torch.device("cpu")
SMALL = MODELS["small"]
# a chunk on a cached prefix, a decode just past a page's edge, a whole prompt
MIXED = (Running((5, 9, 60), 20, (7, 2)), Running((33,), 17, (4, 9)), Running((1, 2), 2, (5,)))
ROOM = Capacity(num_seqs=5, num_tokens=9, max_query_len=3, max_pages=2)


def make_caches(dtype, running=MIXED, layers=2, pages=10):
    """Caches that hold NaN but in the slots of old keys."""
    torch.manual_seed(3)
    shape = (pages, 16, SMALL.num_kv_heads, SMALL.head_dim)
    caches = [tuple(torch.full(shape, float("nan"), dtype=dtype) for _ in "kv") for _ in range(layers)]
    for seq in running:
        for position in range(seq.seq_len - len(seq.tokens)):
            for cache in (tensor for pair in caches for tensor in pair):
                slot = cache[seq.pages[position // 16], position % 16]
                slot.copy_(torch.randn(slot.shape))
    return caches


def clone(caches):
    return [tuple(tensor.clone() for tensor in pair) for pair in caches]


def budget(exact, twin):
    """Twice what the twin strays, and one rounding of the output in bfloat16."""
    return 2 * (twin.logits - exact.logits).abs().max() + exact.logits.abs().max() * 2**-8


@pytest.fixture(scope="module")
def model():
    return make_model(SMALL, torch.bfloat16, CPU)


@pytest.mark.parametrize("kernel", ["naive", "unified"])
def test_a_mixed_step_agrees_with_float64(model, kernel):
    caches, batch = make_caches(torch.bfloat16), Batch(ROOM, CPU)
    exact, twin = (dense_step(model, caches, MIXED, kind) for kind in (True, False))
    batch.fill(MIXED)
    decoder = Decoder(model, caches, batch, find_kernel(kernel))
    decoder()
    error = (decoder.logits[:3].double() - exact.logits).abs().max()
    assert error <= budget(exact, twin)
    assert torch.equal(decoder.next_ids, decoder.logits.argmax(-1))
    for layer, (k_cache, v_cache) in enumerate(caches):
        for number, seq in enumerate(MIXED):
            for cache, new in ((k_cache, exact.keys), (v_cache, exact.values)):
                written = gather(cache, seq.pages, seq.seq_len)[-len(seq.tokens) :]
                assert (written.double() - new[number][layer]).abs().max() <= 0.05
    # padding wrote nothing: what was not of a sequence is still NaN
    written = sum(seq.seq_len for seq in MIXED)
    assert int((~caches[0][0].isnan()).all(-1).all(-1).sum()) == written


@pytest.mark.parametrize("fault", ["position", "slot", "page", "mask", "norm", "gate"])
def test_the_budget_notices(model, fault, monkeypatch):
    caches, batch = make_caches(torch.bfloat16), Batch(ROOM, CPU)
    exact, twin = (dense_step(model, caches, MIXED, kind) for kind in (True, False))
    batch.fill(MIXED)
    decoder = Decoder(model, caches, batch, find_kernel("unified"))
    if fault == "position":
        batch.positions[:3] += 1
    elif fault == "slot":
        batch.slots[3] = 4 * 16  # a decode's new key over its first one
        caches[0][0][9, 0] = caches[0][1][9, 0] = caches[1][0][9, 0] = caches[1][1][9, 0] = 0.5
    elif fault == "page":
        batch.block_table[1, 0] = 7
    elif fault == "mask":
        batch.seq_lens[1] = 16
    elif fault == "norm":
        monkeypatch.setattr(decoder, "_norm", lambda x, weight: x * weight)
    else:
        monkeypatch.setattr(torch.nn.functional, "silu", lambda x: x * (x > 0))
    decoder()
    assert not (decoder.logits[:3].double() - exact.logits).abs().max() <= budget(exact, twin)


def test_greedy_decoding_over_a_page_edge_chooses_as_float64_does():
    model = make_model(SMALL, torch.float32, CPU)
    caches, batch = make_caches(torch.float32), Batch(ROOM, CPU)
    decoder = Decoder(model, caches, batch, find_kernel("unified"))
    running, free = list(MIXED), [8, 0]
    running[1] = Running((33,), 14, (4,))
    for _ in range(4):
        before = clone(caches)
        batch.fill(running)
        decoder()
        exact = dense_step(model, before, running, True)
        assert (decoder.logits[:3].double() - exact.logits).abs().max() < 1e-4
        assert decoder.next_ids[:3].tolist() == exact.logits.argmax(-1).tolist()
        running = grow(running, decoder.next_ids[:3].tolist(), free, 16)
    assert running[1].pages == (4, 0)
    assert [seq.seq_len for seq in running] == [24, 18, 6]


@pytest.mark.parametrize("mode", ["partial", "full"])
def test_modes_capture_what_they_say(model, mode):
    batch, calls = Batch(ROOM, CPU), []
    batch.fill(MIXED)
    captured = []

    def capture(piece):
        calls.append("capture")
        piece()
        captured.append(piece)
        return lambda: (calls.append("replay"), piece())

    decoders = [
        Decoder(model, make_caches(torch.bfloat16), batch, _noted(calls), name, capture)
        for name in ("eager", mode)
    ]
    # the eager run that comes before the capture, then the capture: attention is in it or it is not
    inside = ["attention"] * 2 if mode == "full" else []
    parts = 1 if mode == "full" else 3
    assert calls == ["attention"] * 2 + (["capture", *inside] if mode == "full" else ["capture"] * parts)
    for running in (MIXED, MIXED[:2]):
        batch.fill(running)
        calls.clear()
        for decoder in decoders:
            decoder()
        replays = [
            "replay",
            "attention",
            "attention" if mode == "full" else "replay",
            "attention",
            "replay",
        ]
        assert calls[2:] == (replays[:1] + inside if mode == "full" else replays)
        live = len(running)
        assert torch.equal(decoders[0].logits[:live], decoders[1].logits[:live])


def _noted(calls):
    """No attention, but something that depends on the batch."""

    def noted(q, seq_lens, out):
        calls.append("attention")
        return out.copy_(q * seq_lens.sum())

    return Kernel("noted", "", lambda: noted)


def test_a_kernel_without_out_and_none_at_all(model):
    caches, batch = make_caches(torch.bfloat16), Batch(ROOM, CPU)
    batch.fill(MIXED)
    results = []
    for name in ("torch_sdpa", "unified", None):
        decoder = Decoder(model, clone(caches), batch, name and find_kernel(name))
        decoder()
        results.append(decoder.logits[:3].float())
    assert (results[0] - results[1]).abs().max() < 0.1
    assert (results[2] - results[1]).abs().max() > 0.1


@pytest.mark.skipif(torch.cuda.is_available(), reason="asks for a machine without a GPU")
def test_graphs_need_a_gpu(model):
    batch = Batch(ROOM, CPU)
    for mode in ("partial", "full"):
        with pytest.raises(UsageError, match="found none; use eager"):
            Decoder(model, make_caches(torch.bfloat16), batch, find_kernel("naive"), mode)


def test_what_cannot_be_is_refused(model):
    caches, batch = make_caches(torch.bfloat16), Batch(ROOM, CPU)
    with pytest.raises(UsageError, match=f"mode: required one of {', '.join(MODES)}, found 'fast'"):
        Decoder(model, caches, batch, None, "fast")
    with pytest.raises(UsageError, match="caches: required 1 to 2"):
        Decoder(model, [], batch, None)
    with pytest.raises(UsageError, match=r"caches: required \[num_pages, \(16, 2, 32\)\]"):
        Decoder(model, [(torch.zeros(4, 8, 2, 32),) * 2], batch, None)
    for running, words in (
        (MIXED + MIXED, "at most 5 num_seqs, found 6"),
        ((Running((1, 2, 3, 4), 4, (0,)),), "at most 3 max_query_len, found 4"),
        ((Running((1,), 30, (0, 1, 2)),), "at most 2 max_pages, found 3"),
        ((Running((1,), 17, (0,)),), "no more than its 1 pages"),
        ((Running((1, 2), 1, (0,)),), "as many keys as new tokens"),
    ):
        with pytest.raises(UsageError, match=words):
            batch.fill(running)
    with pytest.raises(UsageError, match="a free page"):
        grow([Running((1,), 16, (0,))], [3], [], 16)


def test_llama_has_its_eight_billion_parameters():
    assert MODELS["llama31_8b"].parameters == 8_030_261_248
    held = make_model(SMALL, torch.float32, CPU)
    tensors = [held.embedding, held.norm, held.head]
    tensors += [tensor for layer in held.layers for tensor in vars(layer).values()]
    assert sum(tensor.numel() for tensor in tensors) == SMALL.parameters
