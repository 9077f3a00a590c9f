"""One kernel on one case: against the reference, and against itself."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import torch

from pagegate.cases.content import Content, make_content
from pagegate.cases.inputs import Placement, place
from pagegate.cases.registry import Kernel
from pagegate.cases.spec import AttentionSpec, Case

from .reference import Reference, reference
from .relations import Base, Relation, applicable, broken
from .results import CheckResult, Worst
from .running import Run, run

if TYPE_CHECKING:
    from pagegate.amdgcn.driver import Session


@dataclass(frozen=True)
class Problem:
    """A case's data and its reference, shared by all kernels that are checked on it."""

    content: Content
    reference: Reference


@lru_cache(maxsize=1)
def problem_of(case: Case, device: torch.device) -> Problem:
    content = make_content(case, device)
    return Problem(content, reference(content))


def check(kernel: Kernel, case: Case, device: torch.device, max_relations: int | None = None) -> CheckResult:
    """Check a kernel on a case. max_relations: how many relations, chosen by the case's seed; None = all."""
    started = time.monotonic()
    reason = kernel.unsupported_reason(case.spec)
    if reason is not None:
        return CheckResult(kernel.name, case, "UNSUPPORTED", reason)
    problem = problem_of(case, device)
    placement = Placement(seed=case.seed, dead=case.dead)
    inputs = place(problem.content, placement)
    plan = kernel.plan(inputs) if kernel.plan else {}
    outcome = run(kernel, inputs, case.spec, plan)
    if outcome.status != "PASSED":
        return _result(kernel, case, started, outcome.status, outcome.reason)
    del inputs
    status, worst = judge(case.spec, outcome, problem.reference)
    if status != "PASSED":
        return _result(kernel, case, started, status, str(worst), worst=worst)
    base = Base(kernel, case, problem.content, placement, plan, outcome)
    held = []
    for relation in chosen_relations(kernel, case, max_relations):
        how = broken(relation, base)
        if how:
            reason = f"{relation.name}: {how} ({relation.summary})"
            return _result(kernel, case, started, "BROKE_PROPERTY", reason, worst, relation.name)
        if how is None:
            held.append(relation.name)
    return _result(kernel, case, started, "PASSED", "", worst, relations=tuple(held))


def check_machine_code(
    session: Session, kernel: Kernel, case: Case, max_relations: int | None = None
) -> CheckResult:
    """Check a kernel while its AMD machine code is interpreted: races, accesses out of bounds and
    registers used before their wait break the relation "machine_code"."""
    session.outcomes.clear()
    result = check(kernel, case, torch.device("cpu"), max_relations)
    findings = session.report.findings
    if findings and not result.failed:
        reason = f"machine_code: {findings[0]}"
        if len(findings) > 1:
            reason += f" (and {len(findings) - 1} more)"
        return replace(result, status="BROKE_PROPERTY", reason=reason, relation="machine_code")
    return result


def chosen_relations(kernel: Kernel, case: Case, count: int | None) -> tuple[Relation, ...]:
    """All applicable relations, or `count` of them, rotated by the case's own number."""
    relations = applicable(kernel, case.spec)
    if count is None or count >= len(relations):
        return relations
    first = case.stream() % len(relations)
    return tuple((relations + relations)[first : first + count])


def _result(
    kernel: Kernel,
    case: Case,
    started: float,
    status: str,
    reason: str,
    worst: Worst | None = None,
    relation: str | None = None,
    relations: tuple[str, ...] = (),
) -> CheckResult:
    seconds = time.monotonic() - started
    return CheckResult(kernel.name, case, status, reason, worst, relation, relations, seconds)


def judge(spec: AttentionSpec, outcome: Run, expected: Reference) -> tuple[str, Worst | None]:
    """The status of a run against the reference, and the worst element by share of its budget."""
    assert outcome.out is not None
    out = outcome.out[: spec.num_tokens].to(torch.float64)
    if out.numel() == 0:
        return "PASSED", None
    error = (out - expected.out).abs()
    worst = _worst(spec, "out", out, expected.out, error, expected.out_budget[..., None].expand_as(error))
    if not bool(out.isfinite().all()):
        return "NON_FINITE", worst
    mean = float(error.mean())
    if worst.ratio > 1 or mean > expected.out_mean_budget:
        return "OUT_OF_BUDGET", worst if worst.ratio > 1 else _mean_worst(worst, mean, expected)
    if outcome.lse is None:
        return "PASSED", worst
    lse = outcome.lse[: spec.num_tokens].to(torch.float64)
    lse_error = torch.where(lse == expected.lse, 0.0, (lse - expected.lse).abs())
    worst_lse = _worst(spec, "lse", lse, expected.lse, lse_error, expected.lse_budget)
    if bool((lse.isnan() | (lse == torch.inf)).any()):
        return "NON_FINITE", worst_lse
    status = "OUT_OF_BUDGET" if worst_lse.ratio > 1 else "PASSED"
    return status, max(worst, worst_lse, key=lambda w: w.ratio)


def _mean_worst(worst: Worst, mean: float, expected: Reference) -> Worst:
    """The mean's own verdict, carried at the place where the error is largest."""
    return Worst("mean error of out", worst.sequence, worst.token, worst.head, worst.dim, mean, 0.0,
                 expected.out_mean_budget)  # fmt: skip


def _worst(
    spec: AttentionSpec,
    quantity: str,
    found: torch.Tensor,
    expected: torch.Tensor,
    error: torch.Tensor,
    budget: torch.Tensor,
) -> Worst:
    ratio = (error / budget.clamp(min=1e-300)).nan_to_num(nan=torch.inf, posinf=torch.inf)
    flat = int(ratio.reshape(-1).argmax())
    index = [int(i) for i in torch.unravel_index(torch.tensor(flat), ratio.shape)]
    sequence, token = spec.locate(index[0])
    at = tuple(index)
    dim = index[2] if len(index) == 3 else None
    return Worst(
        quantity,
        sequence,
        token,
        index[1],
        dim,
        float(found[at]),
        float(expected[at]),
        float(budget[at]),
    )
