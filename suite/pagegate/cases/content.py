"""The logical data of a case, before it is placed in memory: queries, keys and values by sequence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import torch

from .draws import Draws
from .features import active_features
from .spec import AttentionSpec, Case

TORCH_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
# edges where kernels go wrong: pages (added per spec) and the usual tiles
_TILES = (16, 32, 64, 128, 256)


# the target that kernels on CPU or meta tensors are compiled for, where they are (no GPU runs them)
_emulated_target = ""


def emulate_formats_of(target: str) -> None:
    """CPU and meta tensors get the number formats of this target from now on."""
    global _emulated_target
    _emulated_target = target


def fp8_dtype(device: torch.device) -> torch.dtype:
    """The e4m3 variant of a device: FNUZ on gfx942, OCP elsewhere."""
    if device.type in ("cpu", "meta") and _emulated_target.startswith("gfx94"):
        return torch.float8_e4m3fnuz
    if device.type == "cuda" and torch.version.hip:
        architecture: str = torch.cuda.get_device_properties(device).gcnArchName
        if architecture.startswith("gfx94"):
            return torch.float8_e4m3fnuz
    return torch.float8_e4m3fn


@dataclass(frozen=True)
class Content:
    """Queries [num_tokens, num_query_heads, head_dim]; keys and values [sum(seq_lens), num_kv_heads,
    head_dim], as stored (fp8 not dequantised), sequence after sequence; arguments of active features."""

    spec: AttentionSpec
    q: torch.Tensor
    keys: torch.Tensor
    values: torch.Tensor
    arguments: dict[str, Any]

    def query_starts(self) -> list[int]:
        return [0, *accumulate(self.spec.query_lens)]

    def key_starts(self) -> list[int]:
        return [0, *accumulate(self.spec.seq_lens)]

    def take(self, order: list[int]) -> Content:
        """The same content with its sequences in another order; fewer of them, too."""
        q_starts, k_starts = self.query_starts(), self.key_starts()
        tokens = [t for s in order for t in range(q_starts[s], q_starts[s + 1])]
        keys = torch.cat([torch.arange(k_starts[s], k_starts[s + 1]) for s in order] or [torch.arange(0)])
        device = self.q.device
        spec = replace(
            self.spec,
            query_lens=tuple(self.spec.query_lens[s] for s in order),
            seq_lens=tuple(self.spec.seq_lens[s] for s in order),
        )
        rows = torch.tensor(tokens, dtype=torch.int64, device=device)
        keys = keys.to(device)
        return replace(self, spec=spec, q=self.q[rows], keys=self.keys[keys], values=self.values[keys])

    def followed_by(self, other: Content) -> Content:
        """Both batches in one; the arguments stay this one's."""
        spec = replace(
            self.spec,
            query_lens=self.spec.query_lens + other.spec.query_lens,
            seq_lens=self.spec.seq_lens + other.spec.seq_lens,
            shared_prefix=0,
        )
        return Content(
            spec,
            torch.cat([self.q, other.q]),
            torch.cat([self.keys.view(torch.uint8), other.keys.view(torch.uint8)]).view(self.keys.dtype),
            torch.cat([self.values.view(torch.uint8), other.values.view(torch.uint8)]).view(self.keys.dtype),
            self.arguments,
        )


def make_content(case: Case, device: torch.device) -> Content:
    """The data of a case on a device; the same bits on every device of one fp8 variant."""
    spec = case.spec
    draws = Draws(case.stream(), device)
    dtype = TORCH_DTYPES[spec.dtype]
    kv_dtype = fp8_dtype(device) if spec.kv_dtype == "fp8" else dtype
    kv_shape = (sum(spec.seq_lens), spec.num_kv_heads, spec.head_dim)
    q_shape = (spec.num_tokens, spec.num_query_heads, spec.head_dim)
    arguments: dict[str, Any] = {}
    for feature in active_features(spec):
        arguments |= feature.arguments(spec, draws)
    content = Content(
        spec,
        draws.normal("q", q_shape, dtype),
        draws.normal("keys", kv_shape, kv_dtype),
        draws.normal("values", kv_shape, kv_dtype),
        arguments,
    )
    return _share_prefix(_PROFILES[case.profile](content, draws))


def _share_prefix(content: Content) -> Content:
    starts = content.key_starts()
    for start in starts[1:-1]:
        for data in (content.keys, content.values):
            raw = data.view(torch.uint8)
            raw[start : start + content.spec.shared_prefix] = raw[: content.spec.shared_prefix]
    return content


def _positions(content: Content) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Per token: index of its first key in `keys`, its own position, first and last visible key."""
    spec = content.spec
    rows = []
    for seq, (start, query_len) in enumerate(zip(content.key_starts(), spec.query_lens, strict=False)):
        context = spec.seq_lens[seq] - query_len
        for query in range(query_len):
            seen = spec.visible(seq, query)
            rows.append((start, context + query, seen.start, seen.stop - 1))
    table = torch.tensor(rows, dtype=torch.int64, device=content.q.device).reshape(-1, 4)
    return table[:, 0], table[:, 1], table[:, 2], table[:, 3]


def _randn(content: Content, draws: Draws) -> Content:
    return content


def _needle(content: Content, draws: Draws) -> Content:
    """Each query and head points at one visible key at some edge, which takes almost all the weight."""
    spec = content.spec
    if spec.num_tokens == 0:
        return content
    shape = (spec.num_tokens, spec.num_query_heads)
    starts, _, low, high = (x[:, None].expand(shape) for x in _positions(content))
    anywhere = low + draws.integers("needle_key", shape, 1 << 62) % (high - low + 1).clamp(min=1)
    edges = [low, low + 1, high, high - 1, anywhere]
    for size in (spec.page_size, *_TILES):
        edges += [anywhere // size * size, anywhere // size * size - 1]
    kind = draws.integers("needle_kind", shape, len(edges))
    target = torch.stack(edges).gather(0, kind[None])[0].clamp(low, torch.maximum(high, low))
    heads = torch.arange(spec.num_query_heads, device=content.q.device)[None] // spec.gqa_ratio
    index = (starts + target).clamp(max=max(content.keys.shape[0] - 1, 0))
    if content.keys.shape[0] == 0:
        return content
    keys = content.keys[index, heads.expand(shape)].to(torch.float32)
    # 16 standard deviations of the other logits, less under a soft cap, which would flatten them all
    strength = 16.0 if spec.logits_soft_cap is None else min(16.0, spec.logits_soft_cap / spec.head_dim**0.5)
    k_scale = content.arguments.get("k_scale")
    strength_over_scale = strength / (spec.scale * spec.head_dim**0.5)
    q = keys * (strength_over_scale if k_scale is None else strength_over_scale / k_scale)
    return replace(content, q=q.to(content.q.dtype))


def _extreme(content: Content, draws: Draws) -> Content:
    """Constant rows, large and saturated scores, and large values, token by token."""
    spec = content.spec
    loudness = draws.choice("loudness", (0.0, 1.0, 32.0, 256.0), (spec.num_tokens, 1, 1))
    weight = draws.choice("weight", (1.0, 1.0, 0.0, 64.0), (content.values.shape[0], 1, 1))
    q = (content.q.to(torch.float32) * loudness).to(content.q.dtype)
    largest = torch.finfo(content.values.dtype).max
    values = (content.values.to(torch.float32) * weight).clamp(-largest, largest).to(content.values.dtype)
    return replace(content, q=q, values=values)


def _forbidden(content: Content, draws: Draws) -> Content:
    return plant_forbidden(content, draws)[0]


def plant_forbidden(content: Content, draws: Draws) -> tuple[Content, torch.Tensor]:
    """Give keys that some queries must not see a huge score and a loud value.

    Per sequence: the key just past the first query's causal frontier, the key just before the last
    query's window, and one in between. Returns the new content and, per token, whether it sees any.
    """
    spec = content.spec
    keys, values = content.keys.clone(), content.values.clone()
    q_starts, k_starts = content.query_starts(), content.key_starts()
    sees = torch.zeros(spec.num_tokens, dtype=torch.bool)
    largest = torch.finfo(keys.dtype).max
    for seq, query_len in enumerate(spec.query_lens):
        if query_len < 2 or spec.shared_prefix:
            continue
        visible = [spec.visible(seq, query) for query in range(query_len)]
        first, last = visible[0], visible[-1]
        wanted = {first.stop, (first.stop + last.stop) // 2, last.start - 1}
        for key in sorted(k for k in wanted if k in spec.reachable(seq)):
            hidden_from = [query for query in range(query_len) if key not in visible[query]]
            if not hidden_from:
                continue
            victim = content.q[q_starts[seq] + hidden_from[-1]].to(torch.float32)
            direction = victim[:: spec.gqa_ratio]
            loud = (direction * 64).clamp(-largest, largest)
            keys[k_starts[seq] + key] = loud.to(keys.dtype)
            shout = draws.choice(f"shout {seq} {key}", (-300.0, 200.0, 400.0), loud.shape)
            # e4m3 of gfx942 ends at 240
            values[k_starts[seq] + key] = shout.clamp(-largest, largest).to(values.dtype)
            for query in range(query_len):
                sees[q_starts[seq] + query] |= key in visible[query]
    return replace(content, keys=keys, values=values), sees.to(content.q.device)


_PROFILES: dict[str, Callable[[Content, Draws], Content]] = {
    "randn": _randn,
    "needle": _needle,
    "forbidden": _forbidden,
    "extreme": _extreme,
}
