"""Workloads, features, strategies and the registry."""

from random import Random

import pytest
import torch
from hypothesis import HealthCheck, Phase, find, given, settings

from pagegate.cases.content import make_content
from pagegate.cases.features import FEATURES, feature_names
from pagegate.cases.inputs import Placement, place
from pagegate.cases.matching import matches
from pagegate.cases.notation import format_case, parse_case, parse_spec
from pagegate.cases.registry import Kernel, find_kernel, kernels, load_plugin, register
from pagegate.cases.spec import Case
from pagegate.cases.strategies import FULL, SMALL, cases
from pagegate.cases.workloads import find_workloads, workloads
from pagegate.errors import UsageError


def test_the_table():
    rows = workloads()
    assert len({row.name for row in rows}) == len(rows)
    assert all(row.why for row in rows)
    assert 18 <= len(find_workloads("pr")) <= 25
    assert len(find_workloads("nightly")) >= 100
    assert len(find_workloads("asm")) >= 24
    # a repeated digest would be a repeated measurement
    timed = [row.spec.digest() for row in rows if row.tier == "pr"]
    assert len(set(timed)) == len(timed)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("dec", True),
        ("dec and b16", True),
        ("dec and not b16", False),
        ("pre or (dec and c4096)", True),
        ("mix", False),
    ],
)
def test_expressions(expression, expected):
    assert matches(expression, "dec_b16_c4096") is expected


@pytest.mark.parametrize("expression", ["", "a b", "a +", "f(x)", "3", "a & b"])
def test_expressions_that_are_none(expression):
    with pytest.raises(UsageError, match="required words"):
        matches(expression, "dec")


def test_a_whole_name_means_that_row_alone():
    longer = [row.name for row in find_workloads("small", "fp32 or extreme")]
    assert {"fp32", "extreme", "extreme_fp16"} <= set(longer)
    assert [row.name for row in find_workloads(None, "extreme")] == ["extreme"]
    assert len(find_workloads()) == len(workloads())


def test_nothing_matches():
    with pytest.raises(UsageError, match="found 'zzz'"):
        find_workloads("pr", "zzz")
    with pytest.raises(UsageError, match="one of small, asm, pr, peers, nightly"):
        find_workloads("weekly")


@pytest.mark.parametrize(("size", "count"), [(SMALL, 500), (FULL, 500)])
def test_strategies_reach_everything_within_their_size(size, count):
    seen: set[str] = set()

    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(cases(size))
    def draw(case: Case) -> None:
        spec = case.spec
        seen.update(feature_names(spec), (f"profile_{case.profile}", f"dead_{case.dead}", spec.dtype))
        pairs = zip(spec.query_lens, spec.seq_lens, strict=True)
        assert sum(q * s for q, s in pairs) * spec.num_query_heads <= size.score_limit + 8 * size.row_limit
        assert spec.num_tokens * spec.num_query_heads <= size.row_limit
        assert spec.num_seqs <= size.max_seqs

    draw()
    wanted = {f.name for f in FEATURES if f.variants}
    wanted |= {"layout_hnd", "layout_interleaved", "layout_mixed", "far_pages"}
    wanted |= {"tokens_fused", "tokens_transposed", "tokens_far"}
    wanted |= {"shared_prefix", "table_slack", "pad_tokens", "bf16", "fp16", "fp32"}
    wanted |= {f"profile_{p}" for p in ("randn", "needle", "forbidden", "extreme")}
    wanted |= {f"dead_{d}" for d in ("nan", "inf", "large")}
    assert wanted <= seen, wanted - seen


def test_shrinking_ends_at_one_sequence_one_head_one_page():
    smallest = find(
        cases(SMALL),
        lambda case: case.spec.num_tokens > 0,
        settings=settings(database=None, deadline=None),
        random=Random(1),
    )
    assert format_case(smallest) == "q1 h1/1 d32 p16 bf16 profile=randn dead=nan seed=0"


@pytest.mark.parametrize(
    ("wanted", "kept", "num_seqs"),
    [
        (lambda s: s.sinks and s.kv_dtype == "fp8", {"sinks", "kv_dtype"}, 1),
        (lambda s: s.num_tokens and s.num_seqs > 1, set(), 2),
        (lambda s: s.max_seq_len > 16, set(), 1),
        (lambda s: s.sliding_window and s.max_query_len > 4, {"sliding_window"}, 1),
    ],
)
def test_shrinking_keeps_what_matters_and_nothing_else(wanted, kept, num_seqs):
    smallest = find(
        cases(SMALL),
        lambda case: bool(wanted(case.spec)),
        settings=settings(database=None, deadline=None, max_examples=3000),
        random=Random(1),
    )
    spec = smallest.spec
    shape = {"query_lens", "seq_lens", "num_query_heads", "num_kv_heads", "head_dim"}
    assert spec.non_defaults().keys() - shape == kept
    assert (spec.num_seqs, spec.num_query_heads, spec.head_dim, smallest.seed) == (num_seqs, 1, 32, 0)
    assert spec.max_seq_len <= 17


def test_unsupported_says_which_keyword_is_missing():
    def plain(q, k_cache, v_cache, block_table, seq_lens, cu_seqlens_q, max_query_len):
        raise AssertionError

    kernel = Kernel(
        "plain", "", lambda: plain, supports=lambda spec: "only d64" if spec.head_dim != 64 else None
    )
    assert kernel.unsupported_reason(parse_spec("q1 h1/1 d64")) is None
    assert kernel.unsupported_reason(parse_spec("q1 h1/1 d32")) == "only d64"
    reason = kernel.unsupported_reason(parse_spec("q1 h1/1 d64 window=3"))
    assert reason == "takes no sliding_window (sliding_window)"
    assert "k_scale or v_scale" in str(kernel.unsupported_reason(parse_spec("q1 h1/1 d64 kv=fp8")))


def test_our_kernels_support_every_feature():
    spec = parse_spec("q1 h1/1 d64 kv=fp8 window=3 softcap=2 alibi sinks noncausal scale=1.0")
    complete = [kernel.name for kernel in kernels().values() if kernel.unsupported_reason(spec) is None]
    assert complete[:5] == ["naive", "qblock", "split", "tiled", "unified"]


def test_registry_refusals(tmp_path):
    with pytest.raises(UsageError, match="new kernel name"):
        register("naive")(lambda q: q)
    with pytest.raises(UsageError, match="one of naive"):
        find_kernel("nothing")
    with pytest.raises(UsageError, match="found no file"):
        load_plugin(str(tmp_path / "none.py"))
    for name, text, words in (
        ("empty", "", "registers a kernel, found none"),
        ("syntax", "def f(:", "SyntaxError"),
        ("leaves", "raise SystemExit(3)", "SystemExit"),
        (
            "again",
            "from pagegate.cases.registry import register\nregister('unified')(print)",
            "new kernel name",
        ),
    ):
        (tmp_path / f"{name}.py").write_text(text)
        with pytest.raises(UsageError, match=words):
            load_plugin(str(tmp_path / f"{name}.py"))
    broken = tmp_path / "broken.py"
    broken.write_text("import nothing_like_this\n")
    with pytest.raises(UsageError, match="ModuleNotFoundError"):
        load_plugin(str(broken))


@pytest.fixture
def registry(monkeypatch):
    """What a test registers is gone after it."""
    monkeypatch.setattr("pagegate.cases.registry._KERNELS", dict(kernels()))
    monkeypatch.setattr("pagegate.cases.registry._LOADED", set())


def test_a_plugin_registers_once(registry, tmp_path):
    plugin = tmp_path / "mine.py"
    plugin.write_text(
        "from pagegate.cases.registry import register\n"
        "@register('mine', supports=lambda spec: 'no fp16' if spec.dtype == 'fp16' else None)\n"
        "def attend(q, out, window=None):\n"
        "    'First line.\\n\\n    More.'\n"
        "    return q, out\n"
    )
    load_plugin(str(plugin))
    load_plugin(str(plugin))  # several commands in one process
    kernel = find_kernel("mine")
    assert (kernel.summary, kernel.peer, kernel.plan) == ("First line.", False, None)
    assert (kernel.takes("out"), kernel.takes("return_lse")) == (True, False)
    assert kernel.unsupported_reason(parse_spec("q1 h1/1 d32 fp16")) == "no fp16"
    assert list(kernels())[-1] == "mine"


def test_a_kernel_gets_what_it_takes(registry):
    inputs = place(make_content(parse_case("q1s5 h2/1 d32 window=3 sinks"), torch.device("cpu")), Placement())
    seen = {}

    @register("narrow")
    def narrow(q, sliding_window, block_table):
        seen.update(q=q, sliding_window=sliding_window)
        return q

    @register("wide")
    def wide(**arguments):
        seen.update(arguments)

    assert find_kernel("narrow").call(inputs, out=None, config=1) is inputs.q
    assert seen.keys() == {"q", "sliding_window"}
    assert seen["sliding_window"] == 3
    find_kernel("wide").call(inputs, out=None, config=1)
    names = {"q", "k_cache", "v_cache", "block_table", "seq_lens", "cu_seqlens_q", "max_query_len"}
    assert seen.keys() == names | {"sliding_window", "sinks", "out", "config"}
