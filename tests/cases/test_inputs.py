"""The data of a case and where it lies: poison everywhere else, layouts, far offsets."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pagegate.cases.content import make_content, plant_forbidden
from pagegate.cases.draws import Draws
from pagegate.cases.inputs import GUARD, Placement, dead_value, place, token_buffer
from pagegate.cases.notation import parse_case
from pagegate.cases.strategies import SMALL, cases

CPU = torch.device("cpu")


def placed(line, **placement):
    content = make_content(parse_case(line), CPU)
    return content, place(content, Placement(**placement))


def test_draws_are_pinned():
    """The same on every machine and in every version, or saved cases mean something else."""
    draws = Draws(7, CPU)
    assert draws.integers("a", (5,), 1000).tolist() == [748, 591, 593, 319, 128]
    assert draws.normal("x", (3,)).tolist() == pytest.approx(
        [-0.547318101, -0.131008536, -1.69951665], rel=1e-8
    )
    assert draws.choice("c", (1.0, 2.0, 3.0), (5,)).tolist() == [1.0, 2.0, 3.0, 2.0, 1.0]
    assert draws.permutation("p", 6) == [0, 3, 5, 1, 4, 2]


def test_draws_look_random():
    draws = Draws(7, CPU)
    assert draws.integers("a", (50,), 1000).tolist() != draws.integers("b", (50,), 1000).tolist()
    assert draws.integers("a", (50,), 1000).tolist() != Draws(8, CPU).integers("a", (50,), 1000).tolist()
    counts = draws.integers("dice", (60_000,), 6).bincount()
    assert bool(((counts - 10_000).abs() < 400).all())
    x = draws.normal("x", (200_000,))
    assert abs(float(x.mean())) < 0.01
    assert abs(float(x.std()) - 1) < 0.01
    assert abs(float((x**3).mean())) < 0.03
    assert abs(float((x**4).mean()) - 2.7) < 0.05  # Irwin-Hall of order 4: 3 - 6 / (5 * 4)
    assert abs(float((x[1:] * x[:-1]).mean())) < 0.01
    assert float(draws.normal("x", (1000,), spread=3.0).std()) > 2.5
    # the first numbers do not depend on how many are drawn
    assert torch.equal(x[:10], draws.normal("x", (10,)))


def test_draws_are_the_same_in_pieces(monkeypatch):
    whole = Draws(7, CPU).normal("x", (1000,))
    monkeypatch.setattr("pagegate.cases.draws._CHUNK", {"cpu": 33})
    assert torch.equal(Draws(7, CPU).normal("x", (1000,)), whole)


def _is_dead(tensor, fill):
    value = dead_value(fill, tensor.dtype)
    as_float = tensor.to(torch.float32)
    if value != value:
        return as_float.isnan()
    return as_float == float(torch.tensor(value).to(tensor.dtype))


def _places(view, storage):
    """Where in a storage each element of a view lies."""
    index = torch.arange(storage.numel())
    return index.as_strided(view.shape, view.stride(), view.storage_offset())


def _rest_is_dead(inputs, live, num_tokens, fill):
    """Over whole storages: guards, gaps between rows, tails of pages, pages of nobody."""
    pages = [(inputs.k_cache, live), (inputs.v_cache, live)]
    views = {
        "q": [(inputs.q, slice(num_tokens))],
        "kv_cache": pages,
        "k_cache": pages[:1],
        "v_cache": pages[1:],
    }
    for name, storage in inputs.storages.items():
        if name == "block_table" or storage.dim() > 1:
            continue  # a far storage is the view itself
        dead = torch.ones(storage.numel(), dtype=torch.bool)
        for view, reached in views[name]:
            dead[_places(view, storage)[reached].reshape(-1)] = False
        assert bool(_is_dead(storage[dead], fill).all()), name


@settings(max_examples=40, deadline=None)
@given(cases(SMALL), st.integers(0, 100))
def test_everything_that_no_query_reaches_is_dead(case, seed):
    spec = case.spec
    content = make_content(case, CPU)
    inputs = place(content, Placement(seed=seed, dead=case.dead))
    live = torch.zeros(inputs.k_cache.shape[:2], dtype=torch.bool)
    starts = content.key_starts()
    for seq in range(spec.num_seqs):
        for position in spec.reachable(seq):
            page = int(inputs.block_table[seq, position // spec.page_size])
            slot = position % spec.page_size
            live[page, slot] = True
            for cache, data in ((inputs.k_cache, content.keys), (inputs.v_cache, content.values)):
                found = cache[page, slot].view(torch.uint8)
                assert torch.equal(found, data[starts[seq] + position].view(torch.uint8))
    for cache in (inputs.k_cache, inputs.v_cache):
        assert bool(_is_dead(cache[~live], case.dead).all())
    assert bool(_is_dead(inputs.q[spec.num_tokens :], case.dead).all())
    assert torch.equal(inputs.q[: spec.num_tokens], content.q)
    _rest_is_dead(inputs, live, spec.num_tokens, case.dead)


@pytest.mark.parametrize("dead", ["nan", "inf", "large"])
def test_table_entries_that_must_not_be_read(dead):
    content, inputs = placed("q1s40_q1s100_q0s20 h2/1 d32 window=20 slack=2", dead=dead)
    used = inputs.k_cache.shape[0]
    table = inputs.block_table.tolist()
    dead_entries = [*table[0][3:], *table[1][:5], *table[1][7:], *table[2]]
    assert len(set(dead_entries)) == 1
    if dead == "nan":
        assert bool(inputs.k_cache[dead_entries[0]].isnan().all())
    else:
        assert not 0 <= dead_entries[0] < used
    assert inputs.block_table.stride(0) > inputs.block_table.shape[1]


def test_guards_surround_caches_and_queries():
    _, inputs = placed("q1s40 h2/1 d32")
    for name in ("k_cache", "v_cache", "q"):
        storage = inputs.storages[name]
        assert bool(storage[:GUARD].isnan().all())
        assert bool(storage[-GUARD:].isnan().all())


@pytest.mark.parametrize(
    ("layout", "strides"),
    [("nhd", (1024, 64, 32, 1)), ("hnd", (1024, 32, 512, 1)), ("interleaved", (2048, 128, 32, 1))],
)
def test_layouts(layout, strides):
    _, inputs = placed(f"q1s40 h4/2 d32 layout={layout}")
    assert inputs.k_cache.stride() == strides == inputs.v_cache.stride()
    shared = inputs.k_cache.untyped_storage().data_ptr() == inputs.v_cache.untyped_storage().data_ptr()
    assert shared == (layout == "interleaved")


def test_keys_and_values_may_have_strides_of_their_own():
    content, inputs = placed("q1s40 h4/2 d32 layout=mixed")
    assert (inputs.k_cache.stride(), inputs.v_cache.stride()) == ((1024, 64, 32, 1), (1024, 32, 512, 1))
    page = int(inputs.block_table[0, 1])
    assert torch.equal(inputs.v_cache[page, 3], content.values[19])


def test_token_layouts():
    _, fused = placed("q3s40 h4/2 d32 tokens=fused")
    assert fused.q.stride() == (4 * 32 + 2 * 2 * 32, 32, 1)
    # the output never shares a stride with the queries
    spec = parse_case("q3s40 h4/2 d32 tokens=fused").spec
    view, _ = token_buffer(spec, torch.float32, CPU, "nan", output=True)
    assert not set(view.stride()[:2]) & set(fused.q.stride()[:2])
    _, transposed = placed("q3s40 h4/2 d32 tokens=transposed")
    assert transposed.q.stride() == (32, 3 * 32, 1)
    _, far = placed("q3s40 h4/2 d32 tokens=far")
    assert far.q.stride(0) * 2 >= 1 << 31


@pytest.mark.parametrize("layout", ["nhd", "interleaved"])
def test_far_pages_pass_two_to_the_31(layout):
    content, inputs = placed(f"q1s40 h2/1 d32 far_pages layout={layout}")
    assert inputs.k_cache.stride(0) * (inputs.k_cache.shape[0] - 1) >= 1 << 31
    page = int(inputs.block_table[0, 1])
    assert torch.equal(inputs.k_cache[page, 3], content.keys[19])


def test_a_shared_prefix_lies_in_shared_pages():
    content, inputs = placed("3q1s50 h2/1 d32 prefix=40")
    table = inputs.block_table
    assert bool((table[:, :2] == table[0, :2]).all())
    assert len(set(table[:, 2].tolist())) == 3
    assert torch.equal(content.keys[:40], content.keys[50:90])


def test_spare_pages_move_content_up():
    _, low = placed("q1s40 h2/1 d32")
    _, high = placed("q1s40 h2/1 d32", spare_pages=61)
    assert int(low.block_table.max()) < 61 <= int(high.block_table.min())


def test_needles_outweigh_the_rest():
    content = make_content(parse_case("q9s73 h2/2 d64 profile=needle"), CPU)
    logits = torch.einsum("qhd,khd->hqk", content.q.double(), content.keys.double()) / 8
    assert float(logits.softmax(-1).amax(-1).min()) > 0.99


def test_extremes_are_there():
    content = make_content(parse_case("q40s40 h2/1 d64 profile=extreme"), CPU)
    size = content.q.float().abs().amax((1, 2))
    assert float(size.min()) == 0.0
    assert float(size.max()) > 256


def test_forbidden_keys_are_hidden_from_someone_and_loud():
    content = make_content(parse_case("q12s40 h2/1 d64"), CPU)
    planted, sees = plant_forbidden(content, Draws(1, CPU))
    changed = (planted.keys != content.keys).any(-1).any(-1).nonzero()[:, 0].tolist()
    assert changed
    for query in range(12):
        assert bool(sees[query]) == any(key in content.spec.visible(0, query) for key in changed)
    assert not bool(sees.all())


def test_fp8_keeps_scales_apart_from_one():
    content, inputs = placed("q1s40 h2/1 d32 kv=fp8")
    assert inputs.k_cache.dtype == torch.float8_e4m3fn
    k_scale, v_scale = (float(inputs.features[name]) for name in ("k_scale", "v_scale"))
    assert len({k_scale, v_scale, 1.0}) == 3
    stored = torch.stack([inputs.k_cache[int(inputs.block_table[0, 2]), slot] for slot in range(8)])
    drawn = Draws(parse_case("q1s40 h2/1 d32 kv=fp8").stream(), CPU).normal("keys", (40, 1, 32))
    assert torch.equal(stored.view(torch.uint8), drawn[32:].to(torch.float8_e4m3fn).view(torch.uint8))


@pytest.mark.parametrize(("dead", "byte"), [("nan", 0x7F), ("inf", 0x7E), ("large", 0x7E)])
def test_dead_slots_in_fp8(dead, byte):
    """fp8 e4m3 has no infinity: its largest number stands in for it."""
    _, inputs = placed("q1s40 h2/1 d32 kv=fp8", dead=dead)
    tail = inputs.k_cache[int(inputs.block_table[0, 2]), 8:].view(torch.uint8)
    assert set(tail.reshape(-1).tolist()) == {byte}


def test_a_target_with_its_own_fp8(monkeypatch):
    monkeypatch.setattr("pagegate.cases.content._emulated_target", "gfx942")
    _, inputs = placed("q1s40 h2/1 d32 kv=fp8")
    assert inputs.k_cache.dtype == torch.float8_e4m3fnuz
    assert bool(inputs.k_cache[int(inputs.block_table[0, 2]), 8:].float().isnan().all())


@pytest.mark.parametrize("profile", ["needle", "forbidden", "extreme"])
@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
def test_loud_data_fits_into_fp8(monkeypatch, target, profile):
    """FNUZ ends at 240 and has no infinity: louder values would be NaN, in the reference too."""
    monkeypatch.setattr("pagegate.cases.content._emulated_target", target)
    content = make_content(parse_case(f"q6s40_q3s30 h2/2 d32 kv=fp8 profile={profile}"), CPU)
    assert bool(content.keys.float().isfinite().all())
    assert bool(content.values.float().isfinite().all())


def test_content_by_sequence():
    """What the relations do with a batch: other orders, other sequences."""
    content = make_content(parse_case("q2s5_q1s3_q0s2 h2/1 d32"), CPU)
    turned = content.take([2, 0, 1])
    assert (turned.spec.query_lens, turned.spec.seq_lens) == ((0, 2, 1), (2, 5, 3))
    assert torch.equal(turned.q, content.q)
    assert torch.equal(turned.keys, torch.cat([content.keys[8:], content.keys[:8]]))
    both = content.followed_by(turned)
    assert (both.spec.num_tokens, both.keys.shape[0]) == (6, 20)
    assert torch.equal(both.values[10:], turned.values)
    assert content.take([]).q.shape[0] == 0
