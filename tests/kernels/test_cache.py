"""Writing into the cache and merging partial states, against plain indexing and one attention."""

import pytest
import torch

from paged_kernels import merge_states, paged_attention, write_kv_cache


def caches(layout="nhd", dtype=torch.bfloat16, pages=6, size=16, heads=2, dim=80):
    """K and V caches full of NaN in some layout."""
    if layout == "interleaved":
        both = torch.full((pages, size, 2, heads, dim), float("nan")).to(dtype)
        return both[:, :, 0], both[:, :, 1]
    if layout == "hnd":
        return tuple(
            torch.full((pages, heads, size, dim), float("nan")).to(dtype).transpose(1, 2) for _ in "kv"
        )
    if layout == "mixed":
        return caches("nhd", dtype, pages, size, heads, dim)[0], caches(
            "hnd", dtype, pages, size, heads, dim
        )[1]
    if layout == "far":
        stride = (1 << 31) // (pages - 1) + 128
        flat = (torch.empty(stride * (pages - 1) + size * heads * dim, dtype=dtype) for _ in "kv")
        views = tuple(x.as_strided((pages, size, heads, dim), (stride, heads * dim, dim, 1)) for x in flat)
        for view in views:
            view.fill_(float("nan"))
        return views
    return tuple(torch.full((pages, size, heads, dim), float("nan")).to(dtype) for _ in "kv")


@pytest.mark.parametrize("layout", ["nhd", "hnd", "interleaved", "mixed", "far"])
def test_tokens_land_in_their_slots_and_nowhere_else(layout):
    k_cache, v_cache = caches(layout)
    torch.manual_seed(0)
    # queries, keys and values as slices of one row, as a fused projection leaves them
    row = torch.randn(5, 8, 80).bfloat16()
    k, v = row[:, 4:6], row[:, 6:8]
    slots = torch.tensor([3, 95, -1, 16, 40])
    write_kv_cache(k, v, k_cache, v_cache, slot_mapping=slots)
    for token, slot in enumerate(slots.tolist()):
        if slot >= 0:
            assert torch.equal(k_cache[slot // 16, slot % 16], k[token])
            assert torch.equal(v_cache[slot // 16, slot % 16], v[token])
    written = ~k_cache.isnan().all(-1).all(-1)
    assert written.nonzero().tolist() == [[0, 3], [1, 0], [2, 8], [5, 15]]


def test_fp8_divides_by_the_scale_and_saturates():
    k_cache, v_cache = (c.to(torch.float8_e4m3fn) for c in caches())
    k = torch.full((1, 2, 80), 3.0)
    v = torch.full((1, 2, 80), -1e6)
    k_scale, v_scale = torch.tensor([0.5]), torch.tensor([2.0])
    write_kv_cache(k, v, k_cache, v_cache, slot_mapping=torch.tensor([7]), k_scale=k_scale, v_scale=v_scale)
    assert bool((k_cache[0, 7].float() == 6.0).all())
    assert bool((v_cache[0, 7].float() == -448.0).all())


def _no_carry(x):
    """Without numbers that round up to a power of two, or to subnormals: Triton's interpreter (3.6 to
    3.9) may lose the carry into fp8's exponent, and stores 16 for 31.5."""
    mantissa, _ = torch.frexp(x)
    return torch.where((mantissa.abs() > 0.95) | (x.abs() < 0.02), x.sign(), x)


@pytest.mark.parametrize("layout", ["nhd", "hnd", "interleaved", "mixed"])
def test_fp8_against_plain_indexing(layout):
    fp8 = torch.float8_e4m3fn
    k_cache, v_cache = caches(layout, dtype=fp8)
    torch.manual_seed(1)
    slots = torch.tensor([90, 0, 15, 16, -5, 31, 47])
    scales = torch.tensor([0.3]), torch.tensor([1.7])
    k, v = (_no_carry(4 * torch.randn(7, 2, 80)) * scale for scale in scales)
    write_kv_cache(k, v, k_cache, v_cache, slot_mapping=slots, k_scale=scales[0], v_scale=scales[1])
    for cache, data, scale in ((k_cache, k, scales[0]), (v_cache, v, scales[1])):
        expected = torch.full((6, 16, 2, 80), float("nan"))
        for token, slot in enumerate(slots.tolist()):
            if slot >= 0:
                expected[slot // 16, slot % 16] = (data[token] / scale).to(fp8).float()
        assert torch.equal(cache.float().nan_to_num(1e6), expected.nan_to_num(1e6))


def test_one_scale_is_enough():
    k_cache, v_cache = (c.to(torch.float8_e4m3fn) for c in caches())
    k = torch.full((1, 2, 80), 3.0)
    write_kv_cache(k, k, k_cache, v_cache, slot_mapping=torch.tensor([7]), v_scale=torch.tensor([0.5]))
    assert float(k_cache[0, 7, 1, 79]) == 3.0
    assert float(v_cache[0, 7, 1, 79]) == 6.0


def test_no_tokens_write_nothing():
    k_cache, v_cache = caches()
    k = torch.zeros(0, 2, 80, dtype=torch.bfloat16)
    write_kv_cache(k, k, k_cache, v_cache, slot_mapping=torch.zeros(0, dtype=torch.int64))
    assert bool(k_cache.isnan().all())


@pytest.mark.parametrize(
    ("argument", "changes"),
    [
        ("k", {"k": None}),
        ("k", {"k": torch.zeros(5, 2, 80, dtype=torch.float64)}),
        ("k", {"k": torch.zeros(5, 80, 2, dtype=torch.bfloat16).transpose(1, 2)}),
        ("v", {"v": torch.zeros(5, 2, 80)}),
        ("v", {"v": None}),
        ("k_cache", {"k_cache": None}),
        ("k_cache", {"k_cache": torch.zeros(6, 16, 160, dtype=torch.bfloat16)}),
        ("k_cache", {"k_cache": torch.zeros(6, 16, 2, 64, dtype=torch.bfloat16)}),
        ("k_cache", {"k_cache": torch.zeros(6, 16, 4, 80, dtype=torch.bfloat16)}),
        ("k_cache", {"k_cache": torch.zeros(6, 16, 2, 80)}),
        ("v_cache", {"v_cache": torch.zeros(6, 16, 2, 80).to(torch.float8_e4m3fn)}),
        ("v_cache", {"v_cache": torch.zeros(6, 16, 80, 2, dtype=torch.bfloat16).transpose(2, 3)}),
        ("slot_mapping", {"slot_mapping": torch.zeros(5, dtype=torch.int64, device="meta")}),
        ("slot_mapping", {"slot_mapping": [0] * 5}),
        ("v_scale", {"v_scale": torch.ones(1)}),
        ("k", {"k": torch.zeros(5, 160)}),
        ("v", {"v": torch.zeros(5, 3, 80, dtype=torch.bfloat16)}),
        ("slot_mapping", {"slot_mapping": torch.zeros(5, dtype=torch.int32)}),
        ("slot_mapping", {"slot_mapping": torch.zeros(4, dtype=torch.int64)}),
        ("k_scale", {"k_scale": torch.ones(1)}),
        ("v_cache", {"v_cache": torch.zeros(5, 16, 2, 80, dtype=torch.bfloat16)}),
    ],
)
def test_writes_that_cannot_work(argument, changes):
    k_cache, v_cache = caches()
    arguments = {
        "k": torch.zeros(5, 2, 80, dtype=torch.bfloat16),
        "v": torch.zeros(5, 2, 80, dtype=torch.bfloat16),
        "k_cache": k_cache,
        "v_cache": v_cache,
        "slot_mapping": torch.zeros(5, dtype=torch.int64),
    } | changes
    with pytest.raises(ValueError, match=rf"^{argument}: required .*, found "):
        write_kv_cache(**arguments)
    assert bool(k_cache.isnan().all())


def test_a_prefix_and_the_rest_merge_into_the_whole():
    torch.manual_seed(0)
    k_cache, v_cache = (torch.randn(5, 16, 2, 64) for _ in "kv")
    q = torch.randn(3, 4, 64)
    one = dict(max_query_len=3, return_lse=True, cu_seqlens_q=torch.tensor([0, 3], dtype=torch.int32))

    def attend(pages, keys, causal):
        table = torch.tensor([pages], dtype=torch.int32)
        lengths = torch.tensor([keys], dtype=torch.int32)
        return paged_attention(q, k_cache, v_cache, block_table=table, seq_lens=lengths, causal=causal, **one)

    whole, whole_lse = attend([4, 0, 2], 45, True)
    prefix, prefix_lse = attend([4, 0], 32, False)
    rest, rest_lse = attend([2], 13, True)
    out, lse = merge_states(prefix, prefix_lse, rest, rest_lse)
    assert torch.allclose(out, whole, atol=2e-6)
    assert torch.allclose(lse, whole_lse, atol=2e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_merging_against_one_softmax(dtype):
    """Strided states, and the result into one of them."""
    torch.manual_seed(2)
    logits, values = torch.randn(3, 4, 10, dtype=torch.float64) * 3, torch.randn(10, 80, dtype=torch.float64)

    def state(keys):
        some = logits[..., keys]
        return some.softmax(-1) @ values[keys], some.logsumexp(-1)

    (a, lse_a), (b, lse_b) = state(slice(0, 7)), state(slice(7, 10))
    whole, whole_lse = state(slice(0, 10))
    wide = torch.full((3, 4, 96), float("nan"), dtype=dtype)
    wide[..., :80] = a.to(dtype)
    heads_first = b.to(dtype).transpose(0, 1).contiguous().transpose(0, 1)
    out = wide[..., :80]
    merged, lse = merge_states(out, lse_a.float(), heads_first, lse_b.float(), out=out)
    assert merged is out
    assert torch.allclose(out.double(), whole, atol=4 * torch.finfo(dtype).eps)
    assert torch.allclose(lse.double(), whole_lse, atol=2e-6)
    assert bool(wide[..., 80:].isnan().all())


def test_merging_survives_far_apart_weights():
    a, b = torch.full((1, 1, 32), 1.0), torch.full((1, 1, 32), 5.0)
    for lse_a, lse_b, expected in ((300.0, -300.0, 1.0), (-1e4, 1e4, 5.0), (90.0, 90.0, 3.0)):
        out, lse = merge_states(a, torch.tensor([[lse_a]]), b, torch.tensor([[lse_b]]))
        assert bool((out == expected).all())
        assert float(lse) == pytest.approx(
            max(lse_a, lse_b) + (0.6931472 if lse_a == lse_b else 0.0), rel=1e-6
        )


def test_no_states_merge_into_none():
    out, lse = merge_states(
        torch.zeros(0, 3, 32), torch.zeros(0, 3), torch.zeros(0, 3, 32), torch.zeros(0, 3)
    )
    assert (out.shape, lse.shape) == ((0, 3, 32), (0, 3))


def test_states_that_saw_nothing():
    torch.manual_seed(0)
    a, b = torch.randn(2, 3, 32), torch.full((2, 3, 32), float("nan"))
    lse_a = torch.randn(2, 3)
    nothing = torch.full((2, 3), -torch.inf)
    out, lse = merge_states(a, lse_a, b, nothing)
    assert torch.allclose(out, a, atol=1e-6)
    assert torch.allclose(lse, lse_a, atol=1e-6)
    out, lse = merge_states(b, nothing, b, nothing)
    assert bool((out == 0).all())
    assert bool((lse == -torch.inf).all())


@pytest.mark.parametrize(
    ("argument", "changes"),
    [
        ("out_a", {"out_a": None}),
        ("out_a", {"out_a": torch.zeros(3, 32)}),
        ("out_a", {"out_a": torch.zeros(2, 3, 32, dtype=torch.float64)}),
        ("out_a", {"out_a": torch.zeros(2, 32, 3).transpose(1, 2)}),
        ("out_b", {"out_b": torch.zeros(2, 3, 16)}),
        ("out_b", {"out_b": torch.zeros(2, 3, 32).half()}),
        ("lse_a", {"lse_a": torch.zeros(3, 2)}),
        ("lse_a", {"lse_a": torch.zeros(2, 3, dtype=torch.float64)}),
        ("lse_b", {"lse_b": torch.zeros(2, 6)[:, :3]}),
        ("lse_b", {"lse_b": None}),
        ("out", {"out": torch.zeros(2, 3, 32).half()}),
        ("out", {"out": torch.zeros(2, 3, 32, device="meta")}),
    ],
)
def test_merges_that_cannot_work(argument, changes):
    state = {"out_a": torch.zeros(2, 3, 32), "lse_a": torch.zeros(2, 3)}
    state |= {"out_b": torch.zeros(2, 3, 32), "lse_b": torch.zeros(2, 3)}
    with pytest.raises(ValueError, match=rf"^{argument}: required .*, found "):
        merge_states(**(state | changes))
