"""Each status has a kernel that earns it, and an honest kernel earns none."""

import json
from dataclasses import replace

import pytest
import torch

from pagegate.cases.content import make_content
from pagegate.cases.inputs import Placement, place
from pagegate.cases.notation import parse_case
from pagegate.oracle.checking import check, chosen_relations, judge, problem_of
from pagegate.oracle.reference import reference
from pagegate.oracle.results import STATUSES, CheckResult, Worst
from pagegate.oracle.running import DeviceLost, Run, run

CPU = torch.device("cpu")
CASE = parse_case("q3s40_q1s33 h4/2 d32 pad=2")


def returns(change, honest):
    """A kernel without `out` that returns something made of the right result."""

    def kernel(q, k_cache, v_cache, block_table, seq_lens, cu_seqlens_q, max_query_len):
        out = honest(
            q, k_cache, v_cache, block_table=block_table, seq_lens=seq_lens, cu_seqlens_q=cu_seqlens_q,
            max_query_len=max_query_len,
        )  # fmt: skip
        return change(out)

    return kernel


def status(kernel, line=None, relations=0):
    return check(kernel, parse_case(line) if line else CASE, CPU, relations)


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
@pytest.mark.parametrize("profile", ["randn", "needle", "forbidden", "extreme"])
@pytest.mark.parametrize("dead", ["nan", "inf", "large"])
def test_an_honest_kernel_passes(honest, kernel_of, dtype, profile, dead):
    line = f"q3s40_q1s33_q9_q5s3 h4/2 d32 {dtype} profile={profile} dead={dead} tokens=fused pad=2 slack=2"
    if dead == "inf":
        line += " window=9"
    result = status(kernel_of(honest), line, relations=None)
    assert result.status == "PASSED", result.reason
    assert result.worst.ratio < 1


def test_wrong_shape(honest, kernel_of):
    assert status(kernel_of(returns(lambda out: out[:, :1], honest))).status == "WRONG_SHAPE"
    assert status(kernel_of(returns(lambda out: None, honest))).status == "WRONG_SHAPE"
    assert status(kernel_of(returns(lambda out: (out, out[:, 0]), honest))).status == "WRONG_SHAPE"


def test_lse_that_is_promised_must_come(honest, kernel_of):
    def promises(q, k_cache, v_cache, block_table, seq_lens, cu_seqlens_q, max_query_len, out, return_lse):
        return honest(
            q, k_cache, v_cache, block_table=block_table, seq_lens=seq_lens, cu_seqlens_q=cu_seqlens_q,
            max_query_len=max_query_len, out=out,
        )  # fmt: skip

    result = status(kernel_of(promises))
    assert (result.status, "lse: required" in result.reason) == ("WRONG_SHAPE", True)


def test_wrong_dtype(honest, kernel_of):
    result = status(kernel_of(returns(lambda out: out.float(), honest)))
    assert (result.status, "float32" in result.reason) == ("WRONG_DTYPE", True)


def test_unwritten(honest, kernel_of):
    def skips_a_head(out, **rest):
        kept = out[1, 2].clone()
        honest(out=out, **rest)
        out[1, 2] = kept
        return out

    result = status(kernel_of(skips_a_head))
    assert result.status == "UNWRITTEN"
    assert "token 1 of the batch, head 2" in result.reason


def test_what_counts_is_what_a_caller_who_passes_out_gets(honest, kernel_of):
    def forgets_out(out, **rest):
        out.fill_(7.0)
        return honest(out=None, **rest)

    def returns_nothing(out, **rest):
        honest(out=out, **rest)

    assert status(kernel_of(forgets_out), "q3s40_q1s33 h4/2 d32").status == "OUT_OF_BUDGET"
    assert status(kernel_of(lambda **a: honest(**{**a, "out": None}))).status == "UNWRITTEN"
    assert status(kernel_of(returns_nothing)).status == "PASSED"


@pytest.mark.parametrize("where", ["before", "after", "padding", "gap"])
def test_wrote_outside_the_output(honest, kernel_of, where):
    def strays(out, **rest):
        honest(out=out, **rest)
        first = out.storage_offset()
        index = {
            "before": first - 1,
            "after": first + out.shape[0] * out.stride(0) + 5,
            "padding": first + (out.shape[0] - 1) * out.stride(0),
            "gap": first + out.shape[2],
        }[where]
        torch.as_strided(out, (1,), (1,), index).fill_(1.0)
        return out

    line = "q3s40_q1s33 h4/2 d32 pad=2" + (" tokens=fused" if where == "gap" else "")
    assert status(kernel_of(strays), line).status == "WROTE_OUTSIDE"


def test_wrote_outside_a_cache(honest, kernel_of):
    def strays(k_cache, **rest):
        torch.as_strided(k_cache, (8,), (1,), k_cache.storage_offset() - 8).fill_(1.0)
        return honest(k_cache=k_cache, **rest)

    result = status(kernel_of(strays))
    assert (result.status, "k_cache" in result.reason) == ("WROTE_OUTSIDE", True)


@pytest.mark.parametrize("name", ["q", "k_cache", "v_cache", "seq_lens", "block_table", "cu_seqlens_q"])
def test_mutated_input(honest, kernel_of, name):
    def meddles(**arguments):
        result = honest(**arguments)
        arguments[name][-1:] = 1
        return result

    result = status(kernel_of(meddles), "q3s40_q1s33 h4/2 d32")
    assert result.status == "MUTATED_INPUT"
    assert name in result.reason


def test_raised_and_unsupported(kernel_of):
    def raises(**arguments):
        raise KeyError("lost")

    def declines(**arguments):
        raise NotImplementedError("not today")

    result = status(kernel_of(raises))
    assert (result.status, "KeyError" in result.reason) == ("RAISED", True)
    result = status(kernel_of(declines))
    assert (result.status, result.reason, result.failed) == ("UNSUPPORTED", "not today", False)


def test_a_dead_gpu_is_no_result(kernel_of):
    """The process has to go: nothing after it would mean anything."""

    def faults(**arguments):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    with pytest.raises(DeviceLost, match="illegal memory access"):
        status(kernel_of(faults))


def test_non_finite_and_out_of_budget_name_the_place(honest, kernel_of):
    def spoils(value):
        def kernel(out, **rest):
            honest(out=out, **rest)
            out[3, 2, 7] = value
            return out

        return kernel

    result = status(kernel_of(spoils(float("nan"))))
    assert result.status == "NON_FINITE"
    result = status(kernel_of(spoils(3.0)))
    assert result.status == "OUT_OF_BUDGET"
    worst = result.worst
    assert (worst.sequence, worst.token, worst.head, worst.dim) == (1, 0, 2, 7)
    assert worst.ratio > 100
    assert "ratio" in result.reason


def test_scratch_from_torch_empty_is_poisoned(honest, kernel_of):
    def trust(out):
        return out + torch.empty(1, dtype=out.dtype).clamp(0, 0)

    assert status(kernel_of(returns(trust, honest))).status == "NON_FINITE"


def test_a_dropped_page_of_a_long_context_is_seen_where_a_fixed_tolerance_is_blind(honest, kernel_of):
    case = parse_case("q1s8k h2/1 d64 bf16")

    def drops_a_page(block_table, seq_lens, **rest):
        pages = torch.cat([block_table[:, :100], block_table[:, 101:]], dim=1)
        return honest(block_table=pages, seq_lens=seq_lens - 16, **rest)

    result = check(kernel_of(drops_a_page), case, CPU, 0)
    assert result.status == "OUT_OF_BUDGET"
    assert check(kernel_of(honest), case, CPU, 0).status == "PASSED"
    problem = problem_of(case, CPU)
    outcome = run(kernel_of(drops_a_page), place(problem.content, Placement()), case.spec)
    assert float((outcome.out - problem.reference.out).abs().max()) < 1.5e-2


@pytest.mark.parametrize(
    ("line", "dropped"),
    [
        *(("q1s45 h8/4 d32", key) for key in (0, 15, 16, 31, 32, 44)),
        *(("q1s200 h8/4 d32 p128", key) for key in (63, 64, 127, 128)),  # the usual tiles
        *(("q1s45 h8/4 d32 window=20", key) for key in (25, 26, 44)),  # first, second and last in the window
    ],
)
def test_a_needle_shows_a_single_dropped_key(honest, kernel_of, line, dropped):
    """Some seed points at each edge; dropping that key then moves the output by its whole value."""
    seen = False
    for seed in range(12):
        case = parse_case(f"{line} profile=needle seed={seed}")

        def drops(v_cache, block_table, **rest):
            fewer = v_cache.clone()
            page, slot = divmod(dropped, v_cache.shape[1])
            fewer[block_table[0, page], slot] = 0
            return honest(v_cache=fewer, block_table=block_table, **rest)

        seen |= check(kernel_of(drops), case, CPU, 0).status == "OUT_OF_BUDGET"
    assert seen


@pytest.mark.parametrize("window", [19, 21])
def test_needles_and_poison_show_a_window_off_by_one(honest, kernel_of, window):
    def off(sliding_window, **rest):
        return honest(sliding_window=window, **rest)

    case = parse_case("q1s45_q3s47_q2s52 h8/4 d32 window=20 profile=needle")
    assert check(kernel_of(off), case, CPU, 0).status in ("OUT_OF_BUDGET", "NON_FINITE")
    assert check(kernel_of(honest), case, CPU, None).status == "PASSED"


def test_lse_is_judged():
    case = parse_case("q3s40_q2s0 h4/2 d32")
    content = make_content(case, CPU)
    expected = reference(content)
    out, lse = expected.out.to(torch.bfloat16), expected.lse.float()
    assert judge(case.spec, Run("PASSED", out=out, lse=lse), expected)[0] == "PASSED"
    wrong = lse.clone()
    wrong[1, 1] += 0.01
    status, worst = judge(case.spec, Run("PASSED", out=out, lse=wrong), expected)
    assert (status, worst.quantity, worst.token, worst.dim) == ("OUT_OF_BUDGET", "lse", 1, None)
    for value in (1e30, float("inf"), float("nan")):
        wrong = lse.clone()
        wrong[4, 0] = value
        assert judge(case.spec, Run("PASSED", out=out, lse=wrong), expected)[0] != "PASSED"


def test_a_biased_kernel_fails_by_its_mean(honest, kernel_of):
    """Each element within its budget, all of them off to one side."""
    case = parse_case("q64s64 h4/2 d64 bf16")
    content = make_content(case, CPU)
    expected = reference(content)
    out = (expected.out + 0.9 * expected.out_budget[..., None]).float()
    generous = replace(expected, out_budget=expected.out_budget * 2)
    status, worst = judge(case.spec, Run("PASSED", out=out), generous)
    assert (status, worst.quantity) == ("OUT_OF_BUDGET", "mean error of out")


def test_the_reference_by_hand():
    """One query, two keys, one head: softmax of two numbers."""
    content = make_content(parse_case("q1s2 h1/1 d32 fp32 softcap=3 sinks scale=0.2"), CPU)
    q, k, v = content.q[0, 0].double(), content.keys[:, 0].double(), content.values[:, 0].double()
    sink = float(content.arguments["sinks"][0])
    logits = [3 * float(torch.tanh(0.2 * (q @ key) / 3)) for key in k]
    weights = torch.tensor([*logits, sink], dtype=torch.float64).softmax(0)
    expected = reference(content)
    assert torch.allclose(expected.out[0, 0], weights[0] * v[0] + weights[1] * v[1], atol=1e-12)
    lse = torch.tensor([*logits, sink], dtype=torch.float64).logsumexp(0)
    assert torch.allclose(expected.lse[0, 0], lse, atol=1e-12)


def test_the_reference_agrees_with_torch():
    content = make_content(parse_case("q20s50 h4/2 d64 fp32"), CPU)
    q, k, v = (x.double().transpose(0, 1) for x in (content.q, content.keys, content.values))
    mask = torch.ones(20, 50, dtype=torch.bool).tril(30)
    attended = torch.nn.functional.scaled_dot_product_attention(q, k, v, mask, enable_gqa=True)
    assert torch.allclose(reference(content).out, attended.transpose(0, 1), atol=1e-12)


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("q3s40 h2/1 d32 sinks", "UNSUPPORTED"),
        ("q3s40 h2/1 d32 kv=fp8", "UNSUPPORTED"),
        ("q3s40 h2/1 d32", "PASSED"),
    ],
)
def test_what_a_kernel_does_not_take_is_not_run(honest, kernel_of, line, status):
    kernel = kernel_of(returns(lambda out: out, honest))
    assert check(kernel, parse_case(line), CPU, 0).status == status


def test_a_spec_without_anything_to_compute(honest, kernel_of):
    for line in ("empty h1/1 d32", "q0s5 h1/1 d32", "q0s0 h1/1 d32 pad=3"):
        result = check(kernel_of(honest), parse_case(line), CPU)
        assert (result.status, result.worst) == ("PASSED", None), result.reason


def test_queries_that_see_nothing_have_no_budget_but_rounding():
    expected = reference(make_content(parse_case("q3s1_q2s0 h2/1 d32 fp32"), CPU))
    nothing = [0, 1, 3, 4]
    assert bool((expected.out[nothing] == 0).all())
    assert bool((expected.lse[nothing] == -torch.inf).all())
    assert bool((expected.out_budget[nothing] < 1e-30).all())


def test_budgets_follow_the_dtype():
    """Wider for coarser numbers, and far below what the values themselves are."""
    mean = {
        dtype: float(reference(make_content(parse_case(f"q8s64 h2/1 d64 {dtype}"), CPU)).out_budget.mean())
        for dtype in ("bf16", "fp16", "fp32")
    }
    assert mean["fp32"] < 1e-4 < mean["fp16"] < mean["bf16"] < 2e-2
    # pinned: wider budgets let more through, and have to be asked for
    assert mean["bf16"] == pytest.approx(8.51e-3, rel=0.1)
    assert mean["fp16"] == pytest.approx(9.52e-4, rel=0.1)
    assert mean["fp32"] == pytest.approx(1.64e-5, rel=0.1)


def test_a_soft_cap_may_be_computed_with_a_fast_exponential():
    """One key per query, so that the log-sum-exp is its capped logit."""
    content = make_content(parse_case("200q1s1 h8/1 d32 softcap=50 scale=0.05"), CPU)
    expected = reference(content)
    logits = torch.einsum("thd,tkd->th", content.q.double(), content.keys.double()) * content.spec.scale
    ratio = (logits / 50).float()
    # a GPU's exp2 is off by 2 ** -22.5 at most
    decay = torch.exp2(ratio.abs() * -2 * 1.4426950408889634) * (1 + 2**-22.5)
    fast = 50 * ratio.sign() * (1 - decay) / (1 + decay)
    error = (fast.double() - expected.lse).abs()
    assert (error <= expected.lse_budget).all()
    # an error of the cap itself is still seen
    wrong = 50.01 * torch.tanh(logits / 50.01) * 1.0002
    assert ((wrong - expected.lse).abs() > expected.lse_budget).any()


def test_large_problems_are_taken_in_steps(monkeypatch):
    content = make_content(parse_case("q20s50_q3s9 h4/2 d32"), CPU)
    whole = reference(content)
    monkeypatch.setattr("pagegate.oracle.reference._SCORES", {"cpu": 400})
    steps = reference(content)
    assert torch.allclose(whole.out, steps.out, atol=1e-14)
    assert torch.allclose(whole.out_budget, steps.out_budget)


def test_relations_are_chosen_by_the_case(honest, kernel_of):
    kernel = kernel_of(honest)
    names = {
        tuple(r.name for r in chosen_relations(kernel, parse_case(f"q3s40 h2/1 d32 seed={seed}"), 2))
        for seed in range(40)
    }
    assert all(len(set(pair)) == 2 for pair in names)
    everything = {r.name for r in chosen_relations(kernel, CASE, None)}
    assert {name for pair in names for name in pair} == everything
    assert chosen_relations(kernel, CASE, 0) == ()


@pytest.mark.parametrize("status", STATUSES)
def test_results_survive_json(status):
    worst = Worst("out", 0, 1, 2, None, float("nan"), -torch.inf, 1e-3)
    result = CheckResult("k", CASE, status, "why", worst, "padded", ("repeat",), 1.5)
    text = json.dumps(result.to_json())
    back = CheckResult.from_json(json.loads(text))
    assert replace(back, worst=None) == replace(result, worst=None)
    assert str(back.worst) == str(worst)
    assert result.failed == (status not in ("PASSED", "UNSUPPORTED"))
    assert CheckResult.from_json(CheckResult("k", CASE, status).to_json()) == CheckResult("k", CASE, status)


def test_infinities_that_agree_are_no_error():
    worst = Worst("lse", 0, 0, 0, None, -torch.inf, -torch.inf, 1e-6)
    assert worst.ratio == 0.0
    assert replace(worst, found=float("nan")).ratio == float("inf")
    assert replace(worst, found=0.0).ratio == float("inf")
