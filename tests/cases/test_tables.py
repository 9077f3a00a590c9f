"""Workloads, features, strategies and the registry."""

from random import Random

import pytest
from hypothesis import HealthCheck, Phase, find, given, settings

from pagegate.cases.features import FEATURES, feature_names
from pagegate.cases.notation import format_case, parse_spec
from pagegate.cases.registry import Kernel, find_kernel, kernels, load_plugin, register
from pagegate.cases.spec import Case
from pagegate.cases.strategies import FULL, SMALL, cases
from pagegate.cases.workloads import find_workloads, matches, workloads
from pagegate.errors import UsageError


def test_the_table():
    rows = workloads()
    assert len({row.name for row in rows}) == len(rows)
    assert all(row.why for row in rows)
    assert 18 <= len(find_workloads("pr")) <= 25
    assert len(find_workloads("nightly")) >= 100
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


def test_nothing_matches():
    with pytest.raises(UsageError, match="found 'zzz'"):
        find_workloads("pr", "zzz")
    with pytest.raises(UsageError, match="one of small, pr, nightly"):
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
    assert [k.name for k in kernels().values() if k.unsupported_reason(spec) is None][:2] == [
        "naive",
        "unified",
    ]


def test_registry_refusals(tmp_path):
    with pytest.raises(UsageError, match="new kernel name"):
        register("naive")(lambda q: q)
    with pytest.raises(UsageError, match="one of naive"):
        find_kernel("nothing")
    with pytest.raises(UsageError, match="found no file"):
        load_plugin(str(tmp_path / "none.py"))
    broken = tmp_path / "broken.py"
    broken.write_text("import nothing_like_this\n")
    with pytest.raises(UsageError, match="ModuleNotFoundError"):
        load_plugin(str(broken))
