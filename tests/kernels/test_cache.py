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
    if layout == "far":
        stride = (1 << 31) // (pages - 1) + 128
        flat = (torch.empty(stride * (pages - 1) + size * heads * dim, dtype=dtype) for _ in "kv")
        views = tuple(x.as_strided((pages, size, heads, dim), (stride, heads * dim, dim, 1)) for x in flat)
        for view in views:
            view.fill_(float("nan"))
        return views
    return tuple(torch.full((pages, size, heads, dim), float("nan")).to(dtype) for _ in "kv")


@pytest.mark.parametrize("layout", ["nhd", "hnd", "interleaved", "far"])
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


@pytest.mark.parametrize(
    ("argument", "changes"),
    [
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


def test_merges_that_cannot_work():
    a, lse = torch.zeros(2, 3, 32), torch.zeros(2, 3)
    with pytest.raises(ValueError, match="required .*, found "):
        merge_states(a, lse, torch.zeros(2, 3, 16), lse)
    with pytest.raises(ValueError, match="required .*, found "):
        merge_states(a, lse, a, torch.zeros(3, 2))
