"""The public call: what it refuses, and that every launch configuration is right."""

import inspect

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paged_kernels import (
    LaunchConfig,
    Machine,
    Problem,
    choose_config,
    paged_attention,
    plan,
    validate_tables,
)
from paged_kernels.launch import MAX_SPLITS, RUNGS, q_block_bound
from pagegate.cases.content import make_content
from pagegate.cases.inputs import Placement, place
from pagegate.cases.notation import parse_case
from pagegate.cases.registry import find_kernel
from pagegate.oracle.checking import judge
from pagegate.oracle.reference import reference
from pagegate.oracle.running import run

CPU = torch.device("cpu")


@pytest.fixture
def call():
    """A call that works; keyword arguments replace its own."""
    inputs = place(make_content(parse_case("q3s40_q1s33 h4/2 d32"), CPU), Placement())

    def make(**changes):
        arguments = inputs.keywords() | changes
        return paged_attention(
            arguments.pop("q"), arguments.pop("k_cache"), arguments.pop("v_cache"), **arguments
        )

    make.inputs = inputs
    return make


def test_out_is_returned_and_lse_has_one_number_per_token_and_head(call):
    out = torch.empty(4, 4, 32, dtype=torch.bfloat16)
    assert call(out=out) is out
    out, lse = call(return_lse=True)
    assert (out.shape, out.dtype, lse.shape, lse.dtype) == (
        (4, 4, 32), torch.bfloat16, (4, 4), torch.float32
    )  # fmt: skip


def _bad(inputs):
    q, k = inputs.q, inputs.k_cache
    return {
        "q has two dimensions": ("q", {"q": q[0]}),
        "q is float64": ("q", {"q": q.double()}),
        "q is strided in its last dimension": ("q", {"q": q.transpose(1, 2).contiguous().transpose(1, 2)}),
        "heads do not divide": ("q", {"q": q[:, :3].contiguous()}),
        "q is no tensor": ("q", {"q": None}),
        "a head_dim of 257": ("q", {"q": torch.zeros(4, 4, 257, dtype=q.dtype)}),
        "a ratio of 129": (
            "q", {"q": q[:, :1].repeat(1, 129, 1), "k_cache": k[:, :, :1], "v_cache": k[:, :, :1]}
        ),
        "no query heads": ("q", {"q": q[:, :0]}),
        "the cache is no tensor": ("v_cache", {"v_cache": [1, 2]}),
        "the cache is elsewhere": ("k_cache", {"k_cache": k.to("meta")}),
        "the cache is strided in its last dimension": (
            "k_cache", {"k_cache": k.transpose(2, 3).contiguous().transpose(2, 3)}
        ),
        "v's dtype differs": ("v_cache", {"v_cache": inputs.v_cache.to(torch.float8_e4m3fn)}),
        "pages of 4": ("k_cache", {"k_cache": k[:, :4], "v_cache": k[:, :4]}),
        "seq_lens is a list": ("seq_lens", {"seq_lens": [40, 33]}),
        "seq_lens is elsewhere": ("seq_lens", {"seq_lens": inputs.seq_lens.to("meta")}),
        "seq_lens is strided": ("seq_lens", {"seq_lens": inputs.seq_lens.repeat(2)[::2]}),
        "cu_seqlens_q is int64": ("cu_seqlens_q", {"cu_seqlens_q": inputs.cu_seqlens_q.long()}),
        "cu_seqlens_q is missing": ("cu_seqlens_q", {"cu_seqlens_q": None}),
        "the table has a row too few": ("block_table", {"block_table": inputs.block_table[:1]}),
        "the table is no tensor": ("block_table", {"block_table": [[1, 2]]}),
        "the table is transposed": ("block_table", {"block_table": inputs.block_table.T.contiguous().T}),
        "head_dim differs": ("k_cache", {"k_cache": k[..., :16].contiguous()}),
        "the cache has three dimensions": ("k_cache", {"k_cache": k[0]}),
        "the page size is odd": ("k_cache", {"k_cache": k[:, :15], "v_cache": k[:, :15]}),
        "the cache's dtype differs": ("k_cache", {"k_cache": k.half()}),
        "v differs from k": ("v_cache", {"v_cache": inputs.v_cache[:-1]}),
        "seq_lens is int64": ("seq_lens", {"seq_lens": inputs.seq_lens.long()}),
        "seq_lens has two dimensions": ("seq_lens", {"seq_lens": inputs.seq_lens[None]}),
        "cu_seqlens_q is short": ("cu_seqlens_q", {"cu_seqlens_q": inputs.cu_seqlens_q[:-1]}),
        "the table is flat": ("block_table", {"block_table": inputs.block_table[0]}),
        "the table is int64": ("block_table", {"block_table": inputs.block_table.long()}),
        "max_query_len is negative": ("max_query_len", {"max_query_len": -1}),
        "max_query_len is past the tokens": ("max_query_len", {"max_query_len": 5}),
        "a window of no key": ("sliding_window", {"sliding_window": 0}),
        "a cap of 0": ("logits_soft_cap", {"logits_soft_cap": 0.0}),
        "slopes per KV head": ("alibi_slopes", {"alibi_slopes": torch.ones(2)}),
        "slopes in bf16": ("alibi_slopes", {"alibi_slopes": torch.ones(4, dtype=torch.bfloat16)}),
        "an infinite cap": ("logits_soft_cap", {"logits_soft_cap": float("inf")}),
        "a scale of nan": ("softmax_scale", {"softmax_scale": float("nan")}),
        "a negative cap": ("logits_soft_cap", {"logits_soft_cap": -1.0}),
        "a negative window": ("sliding_window", {"sliding_window": -3}),
        "slopes that are a list": ("alibi_slopes", {"alibi_slopes": [0.5] * 4}),
        "sinks that are a number": ("sinks", {"sinks": 1.0}),
        "sinks in float64": ("sinks", {"sinks": torch.ones(4, dtype=torch.float64)}),
        "sinks of another length": ("sinks", {"sinks": torch.ones(3)}),
        "a scale in bf16": ("k_scale", {"k_scale": torch.ones(1, dtype=torch.bfloat16)}),
        "a scale without dimensions": ("v_scale", {"v_scale": torch.tensor(1.0)}),
        "out is strided in its last dimension": (
            "out", {"out": torch.empty(4, 32, 4, dtype=torch.bfloat16).transpose(1, 2)}
        ),
        "out is elsewhere": ("out", {"out": torch.empty(4, 4, 32, dtype=torch.bfloat16, device="meta")}),
        "a scale that is a number": ("k_scale", {"k_scale": 2.0}),
        "a scale per head": ("v_scale", {"v_scale": torch.ones(2)}),
        "out of another shape": ("out", {"out": torch.empty(4, 4, 16, dtype=torch.bfloat16)}),
        "out of another dtype": ("out", {"out": torch.empty(4, 4, 32)}),
        "a block too small for the ratio": (
            "config", {"q": q.repeat(1, 10, 1), "config": LaunchConfig(block_m=16)}
        ),
    }  # fmt: skip


def test_every_argument_has_a_way_to_be_wrong():
    inputs = place(make_content(parse_case("q3s40_q1s33 h4/2 d32"), CPU), Placement())
    refused = {argument for argument, _ in _bad(inputs).values()}
    taken = set(inspect.signature(paged_attention).parameters)
    assert taken - refused == {"causal", "return_lse"}


NAMES = sorted(_bad(place(make_content(parse_case("q3s40_q1s33 h4/2 d32"), CPU), Placement())))


@pytest.mark.parametrize("what", NAMES)
def test_what_cannot_work_is_refused_by_name(call, what):
    argument, changes = _bad(call.inputs)[what]
    out = torch.full((4, 4, 32), 7.0, dtype=torch.bfloat16)
    with pytest.raises(ValueError, match=rf"^{argument}: required .*, found ") as error:
        call(**(({"out": out} if "q" not in changes else {}) | changes))
    assert len(str(error.value)) < 300
    assert bool((out == 7).all())  # refused before anything runs


def _tables(**changes):
    arguments = {
        "block_table": torch.tensor([[0, 1], [2, 9]], dtype=torch.int32),
        "seq_lens": torch.tensor([20, 16], dtype=torch.int32),
        "cu_seqlens_q": torch.tensor([0, 1, 3], dtype=torch.int32),
        "num_pages": 3,
        "page_size": 16,
        "max_query_len": 2,
        "num_tokens": 3,
    }
    return validate_tables(**(arguments | changes))


def test_tables_that_work():
    _tables()
    # the first page is out of the window: it may hold anything
    table = torch.tensor([[-7, 1], [2, 9]], dtype=torch.int32)
    _tables(block_table=table, sliding_window=4)
    with pytest.raises(ValueError, match=r"block_table\[0, 0\]"):
        _tables(block_table=table)


@pytest.mark.parametrize(
    ("argument", "changes"),
    [
        (r"block_table\[1, 1\]", {"seq_lens": torch.tensor([20, 17])}),
        ("block_table", {"seq_lens": torch.tensor([33, 16])}),
        ("seq_lens", {"seq_lens": torch.tensor([20, -1])}),
        ("cu_seqlens_q", {"cu_seqlens_q": torch.tensor([0, 2, 1])}),
        ("cu_seqlens_q", {"cu_seqlens_q": torch.tensor([1, 2, 3])}),
        ("cu_seqlens_q", {"cu_seqlens_q": torch.tensor([0, 2, 4])}),
        ("max_query_len", {"max_query_len": 1}),
    ],
)
def test_tables_that_lead_astray(argument, changes):
    with pytest.raises(ValueError, match=rf"^{argument}: required .*, found "):
        _tables(**changes)


@pytest.mark.parametrize(
    "config",
    [
        LaunchConfig(rung="naive", tile=16),
        LaunchConfig(rung="naive", tile=64),
        LaunchConfig(block_m=16, tile=16),
        LaunchConfig(block_m=64, tile=64, num_splits=2),
        LaunchConfig(block_m=32, tile=32, num_splits=7),
        LaunchConfig(block_m=16, tile=128, num_splits=MAX_SPLITS),
    ],
    ids=str,
)
@pytest.mark.parametrize("line", ["q1s150_q4s40_q0s3_q1s2 h4/2 d80 sinks", "q1s90 h5/1 d64 window=33 fp16"])
def test_every_forced_configuration_is_right(config, line):
    case = parse_case(line)
    content = make_content(case, CPU)
    outcome = run(find_kernel("unified"), place(content, Placement()), case.spec, {"config": config})
    assert outcome.status == "PASSED", outcome.reason
    assert judge(case.spec, outcome, reference(content))[0] == "PASSED"


@pytest.mark.parametrize(
    ("words", "match"),
    [
        ({"rung": "best"}, "rung: required one of"),
        ({"tile": 24}, "tile: required a power of two"),
        ({"block_m": 8}, "block_m: required"),
        ({"num_splits": 0}, "num_splits: required 1 to"),
    ],
)
def test_configurations_that_cannot_be(words, match):
    with pytest.raises(ValueError, match=match):
        LaunchConfig(**words)


problems = st.builds(
    Problem,
    num_tokens=st.integers(0, 5000),
    num_seqs=st.integers(1, 300),
    max_query_len=st.integers(0, 5000),
    capacity=st.integers(0, 200_000),
    num_query_heads=st.sampled_from([1, 2, 5, 7, 32, 128]),
    num_kv_heads=st.just(1),
    head_dim=st.sampled_from([32, 80, 128, 256]),
    element_size=st.sampled_from([2, 4]),
    sliding_window=st.none() | st.integers(1, 5000),
)


@settings(max_examples=300, deadline=None)
@given(problems, st.sampled_from([Machine("cuda", 132), Machine("hip", 304), Machine("interpreter", 8)]))
def test_chosen_configurations_can_be_launched(problem, machine):
    config = choose_config(problem, machine)
    assert config.block_m >= problem.gqa_ratio
    assert 1 <= config.num_splits <= MAX_SPLITS
    assert choose_config.__wrapped__(problem, machine) == config  # pure: the cache hides nothing
    # a split has keys to read, up to rounding to tiles
    assert (config.num_splits - 1) * config.tile < max(problem.capacity, 1)
    for rung in RUNGS:
        step = choose_config(problem, machine, rung)
        assert step.rung == rung
        assert rung == "naive" or step.block_m >= problem.gqa_ratio


def test_each_step_of_the_ladder_adds_one_thing():
    decode = Problem(4, 4, 1, 4096, 32, 8, 128, 2, 2)
    prompt = Problem(2048, 1, 2048, 2048, 32, 8, 128, 2, 2)
    machine = Machine("cuda", 132, 90)
    qblock, split, tiled, unified = (
        [choose_config(problem, machine, rung) for problem in (decode, prompt)] for rung in RUNGS[1:]
    )
    assert [step.num_splits for step in qblock] == [1, 1]
    assert [step.num_splits for step in split] == [16, 1]
    assert [step.tile for step in split] == [16, 16]
    assert [step.tile for step in tiled] == [64, 64]
    assert tiled[1].block_m > split[1].block_m
    assert unified[0].overlap and not tiled[0].overlap


@given(problems, st.integers(1, 2000))
def test_a_plan_depends_on_nothing_but_shapes(problem, multiprocessors):
    """More processors never mean fewer splits or larger blocks."""
    few, many = (
        choose_config(problem, Machine("cuda", count)) for count in (multiprocessors, 2 * multiprocessors)
    )
    assert few.num_splits <= many.num_splits
    assert few.block_m >= many.block_m


@given(st.lists(st.integers(0, 60), min_size=1, max_size=20), st.sampled_from([1, 2, 3, 5, 16]))
def test_the_grid_bound_covers_every_block(query_lens, block_q):
    needed = sum(-(-n // block_q) for n in query_lens)
    assert q_block_bound(sum(query_lens), len(query_lens), block_q) >= needed


@pytest.mark.parametrize("rung", RUNGS)
def test_no_sequences_and_no_tokens(rung):
    """Nothing to do is no error, and writes nothing."""
    config = LaunchConfig(rung=rung)
    for tokens, seqs in ((0, 0), (0, 2), (3, 0)):
        q = torch.zeros(tokens, 2, 32)
        cache = torch.zeros(1, 16, 1, 32)
        out = torch.full((tokens, 2, 32), 7.0)
        paged_attention(
            q, cache, cache, block_table=torch.zeros(seqs, 1, dtype=torch.int32),
            seq_lens=torch.zeros(seqs, dtype=torch.int32),
            cu_seqlens_q=torch.zeros(seqs + 1, dtype=torch.int32), max_query_len=0, out=out, config=config,
        )  # fmt: skip
        assert bool((out == 7).all())


def test_a_plan_reads_no_data(call):
    """Tensors without memory are enough to plan with."""
    inputs = call.inputs
    arguments = (inputs.q, inputs.k_cache, inputs.block_table)
    assert plan(*arguments, 3) == plan(*(torch.full_like(x, 1) for x in arguments), 3)
    assert plan(*arguments, 3, rung="naive").rung == "naive"
    # a window bounds what splits can share
    long = torch.zeros(1, 4096, dtype=torch.int32)
    free, windowed = (plan(inputs.q[:1], inputs.k_cache, long, 1, window) for window in (None, 64))
    assert free.num_splits > windowed.num_splits
