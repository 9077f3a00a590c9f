"""Relations that must hold bit for bit, with the launch path held fixed.

Each varies something that must not matter (where pages lie, what dead slots hold, who else is in the
batch) and says which rows of the two outputs must be the same bits. Idea: metamorphic testing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from pagegate.cases.content import Content, make_content, plant_forbidden
from pagegate.cases.draws import Draws
from pagegate.cases.inputs import Placement, place, token_buffer
from pagegate.cases.registry import Kernel
from pagegate.cases.spec import AttentionSpec, Case

from .running import Run, bits, run

_SMALL_BYTES = 64 << 20


@dataclass(frozen=True)
class Base:
    """The run that a relation starts from."""

    kernel: Kernel
    case: Case
    content: Content
    placement: Placement
    plan: dict[str, Any]
    run: Run


@dataclass(frozen=True)
class Variation:
    """Another call: rows `new_rows` of its output must equal rows `old_rows` of the base's."""

    content: Content
    placement: Placement
    new_rows: torch.Tensor
    old_rows: torch.Tensor


@dataclass(frozen=True)
class Relation:
    """name, one sentence, and `vary`, which returns None where it has nothing to say.

    reshapes: the batch has another shape, so the kernel needs a `plan`; runner: for what is not just
    another call.
    """

    name: str
    summary: str
    vary: Callable[[Base, Draws], Variation | None]
    reshapes: bool = False
    runner: Callable[[Base, Variation], Run] | None = None


def _rows(content: Content) -> torch.Tensor:
    return torch.arange(content.spec.num_tokens, device=content.q.device)


def _same_rows(base: Base, content: Content, placement: Placement) -> Variation:
    rows = _rows(base.content)
    return Variation(content, placement, rows, rows)


def _repeat(base: Base, draws: Draws) -> Variation:
    return _same_rows(base, base.content, base.placement)


def _permuted(base: Base, draws: Draws) -> Variation | None:
    return _same_rows(base, base.content, replace(base.placement, seed=base.placement.seed + 1))


def _high_pages(base: Base, draws: Draws) -> Variation | None:
    spec = base.content.spec
    if spec.far_pages:
        return None
    page_bytes = spec.page_size * spec.num_kv_heads * spec.head_dim * base.content.keys.element_size()
    spare = max(3, min(5000, (32 << 20) // page_bytes if base.content.q.is_cuda else 61))
    return _same_rows(base, base.content, replace(base.placement, spare_pages=spare))


def _dead_slots(base: Base, draws: Draws) -> Variation:
    other = {"nan": "large", "large": "inf", "inf": "nan"}[base.placement.dead]
    return _same_rows(base, base.content, replace(base.placement, dead=other))


def _appended(base: Base, draws: Draws) -> Variation | None:
    spec = base.content.spec
    longest = spec.max_query_len
    if longest == 0:
        return None
    query_lens = (1, min(longest, 3))
    seq_lens = (min(spec.max_seq_len, 5), min(spec.max_seq_len, spec.page_size + 3))
    other = replace(spec, query_lens=query_lens, seq_lens=seq_lens, shared_prefix=0)
    stranger = make_content(Case(other, seed=base.case.seed + 1), base.content.q.device)
    return _same_rows(base, base.content.followed_by(stranger), base.placement)


def _reordered(base: Base, draws: Draws) -> Variation | None:
    spec = base.content.spec
    if spec.num_seqs < 2:
        return None
    order = draws.permutation("order", spec.num_seqs)
    if order == sorted(order):
        order = order[::-1]
    starts = base.content.query_starts()
    old = [row for seq in order for row in range(starts[seq], starts[seq + 1])]
    rows = torch.tensor(old, dtype=torch.int64, device=base.content.q.device)
    return Variation(base.content.take(order), base.placement, _rows(base.content), rows)


def _padded(base: Base, draws: Draws) -> Variation:
    content = base.content
    spec = replace(
        content.spec,
        query_lens=(*content.spec.query_lens, 0, 0),
        seq_lens=(*content.spec.seq_lens, 0, 0),
        shared_prefix=0,
        pad_tokens=content.spec.pad_tokens + 3,
    )
    return _same_rows(base, replace(content, spec=spec), base.placement)


def _forbidden(base: Base, draws: Draws) -> Variation | None:
    content, sees = plant_forbidden(base.content, draws)
    if content.spec.shared_prefix or bool(sees.all()) or not bool(sees.any()):
        return None
    # a key that the base's own profile planted is replaced too, so rows that saw it are out as well
    rows = (~sees).nonzero()[:, 0]
    return Variation(content, base.placement, rows, rows)


def _graph(base: Base, draws: Draws) -> Variation | None:
    if not base.content.q.is_cuda or base.content.spec.num_tokens == 0:
        return None
    return _same_rows(base, base.content, base.placement)


def _replay_graph(base: Base, variation: Variation) -> Run:
    """Capture with one query and no context per sequence, one page everywhere; replay with the real ones."""
    spec = base.content.spec
    inputs = place(variation.content, variation.placement)
    mutable = [inputs.seq_lens, inputs.cu_seqlens_q, inputs.block_table]
    real = [tensor.clone() for tensor in mutable]
    query_lens = torch.tensor(spec.query_lens, device=inputs.q.device).clamp(max=1)
    inputs.seq_lens.copy_(torch.minimum(query_lens, inputs.seq_lens))
    inputs.cu_seqlens_q[1:] = query_lens.cumsum(0)
    inputs.block_table.fill_(inputs.k_cache.shape[0] - 1)
    buffer, _ = token_buffer(spec, inputs.q.dtype, inputs.q.device, "nan", output=True)
    options = base.plan | {"out": buffer, "return_lse": True}
    try:
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            base.kernel.call(inputs, **options)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            returned = base.kernel.call(inputs, **options)
    except RuntimeError as error:
        return Run("RAISED", f"graph capture: {str(error).partition(chr(10))[0]}")
    for tensor, value in zip(mutable, real, strict=True):
        tensor.copy_(value)
    buffer.fill_(float("nan"))
    graph.replay()
    torch.cuda.synchronize()
    out, lse = returned if isinstance(returned, tuple) else (returned, None)
    return Run("PASSED", out=out.clone(), lse=None if lse is None else lse.clone())


RELATIONS = (
    Relation("repeat", "a second run gives the same bits", _repeat),
    Relation("permuted_pages", "physical pages in another order", _permuted),
    Relation("high_pages", "content moved to high page ids", _high_pages),
    Relation("dead_slots", "other contents in everything that no query can reach", _dead_slots),
    Relation("appended", "unrelated sequences appended", _appended, reshapes=True),
    Relation("reordered", "the batch in another order", _reordered),
    Relation("padded", "empty sequences and spare tokens appended", _padded, reshapes=True),
    Relation("forbidden_keys", "a huge score and a loud value on keys that a query must not see", _forbidden),
    Relation("graph_replay", "a captured graph replayed with other lengths and tables", _graph,
             runner=_replay_graph),
)  # fmt: skip


def applicable(kernel: Kernel, spec: AttentionSpec) -> tuple[Relation, ...]:
    """The relations that a kernel can be held to; only a repetition for very large problems."""
    if spec.kv_bytes > _SMALL_BYTES:
        return RELATIONS[:1]
    return tuple(
        relation
        for relation in RELATIONS
        if (kernel.plan is not None or not relation.reshapes)
        and (kernel.replayable or relation.name != "graph_replay")
    )


def broken(relation: Relation, base: Base) -> str | None:
    """How a relation is broken, or None; "" when it has nothing to say about this case."""
    draws = Draws(base.case.stream() ^ 0x5EED, base.content.q.device)
    variation = relation.vary(base, draws)
    if variation is None:
        return ""
    if relation.runner:
        other = relation.runner(base, variation)
    else:
        inputs = place(variation.content, variation.placement)
        other = run(base.kernel, inputs, variation.content.spec, base.plan, guard_inputs=False)
    if other.status != "PASSED":
        return f"{other.status}: {other.reason}"
    for name, old, new in (("out", base.run.out, other.out), ("lse", base.run.lse, other.lse)):
        if old is None or new is None:
            continue
        before, after = old[variation.old_rows], new[variation.new_rows]
        # the sign of a zero may follow from values of weight 0
        differ = (bits(before) != bits(after)) & ~((before == 0) & (after == 0))
        if bool(differ.any()):
            at = tuple(differ.nonzero()[0].tolist())
            sequence, token = base.case.spec.locate(int(variation.old_rows[at[0]]))
            return (
                f"{int(differ.sum())} elements of {name} differ, the first at sequence {sequence}, token "
                f"{token}, head {at[1]}: {float(before[at]):.9g} before, {float(after[at]):.9g} after"
            )
    return None
