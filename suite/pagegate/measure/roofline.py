"""The least that a problem costs: bytes and FLOPs from its real lengths and mask. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from pagegate.cases.spec import AttentionSpec

_BYTES = {"bf16": 2, "fp16": 2, "fp32": 4}


@dataclass(frozen=True)
class Cost:
    """Bytes that must move (queries and visible keys and values read once, output written once) and
    FLOPs of the two products over visible pairs."""

    bytes: int
    flops: int


@dataclass(frozen=True)
class Ceilings:
    """What this machine was seen to do: bytes per second of a large copy (read and written), FLOPs per
    second of a large matrix product in bf16."""

    bytes_per_s: float
    flops_per_s: float


def cost(spec: AttentionSpec) -> Cost:
    element = _BYTES[spec.dtype]
    kv_element = 1 if spec.kv_dtype == "fp8" else element
    shared = range(spec.shared_prefix // spec.page_size * spec.page_size)
    keys = pairs = 0
    shared_keys: set[int] = set()
    for seq, query_len in enumerate(spec.query_lens):
        reachable = spec.reachable(seq)
        mine = range(max(reachable.start, len(shared)), max(reachable.stop, len(shared)))
        keys += len(mine)
        shared_keys.update(range(reachable.start, min(reachable.stop, len(shared))))
        pairs += sum(len(spec.visible(seq, query)) for query in range(query_len))
    keys += len(shared_keys)
    kv_bytes = 2 * keys * spec.num_kv_heads * spec.head_dim * kv_element
    token_bytes = 2 * spec.num_tokens * spec.num_query_heads * spec.head_dim * element
    return Cost(kv_bytes + token_bytes, 4 * pairs * spec.num_query_heads * spec.head_dim)


def floor_s(spec: AttentionSpec, ceilings: Ceilings) -> float:
    """Seconds below which no kernel gets on a machine with these ceilings."""
    needed = cost(spec)
    return max(needed.bytes / ceilings.bytes_per_s, needed.flops / ceilings.flops_per_s)


def bound_by(spec: AttentionSpec, ceilings: Ceilings) -> str:
    needed = cost(spec)
    memory = needed.bytes / ceilings.bytes_per_s
    return "memory" if memory >= needed.flops / ceilings.flops_per_s else "compute"
