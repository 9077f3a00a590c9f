"""The features of an attention problem: one entry each, read by inputs, reference and registry.

The reference applies the entries in the order of the table: `logits` first (scale, soft cap, ALiBi),
then `visible`. They use tensor methods only, so this module needs no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .spec import AttentionSpec

if TYPE_CHECKING:
    import torch

    from .draws import Draws

Arguments = Mapping[str, Any]


def _no_arguments(spec: AttentionSpec, draws: Draws) -> dict[str, Any]:
    return {}


@dataclass(frozen=True)
class Feature:
    """One feature of an attention problem.

    keywords: what a kernel has to take to support it. active: whether a spec asks for it. variants: the
    spec's fields that ask for it, as fuzzing draws them, the simplest first.
    arguments: the keyword arguments it adds to a call. logits(logits, arguments, distances) changes
    [num_query_heads, queries, keys]; visible(seen, arguments, query_positions, key_positions) changes
    [queries, keys]; distances and positions broadcast, distance = key position - query position.
    """

    name: str
    summary: str
    keywords: tuple[str, ...]
    active: Callable[[AttentionSpec], bool]
    variants: tuple[Mapping[str, Any], ...] = ()
    arguments: Callable[[AttentionSpec, Draws], dict[str, Any]] = _no_arguments
    logits: Callable[[torch.Tensor, Arguments, torch.Tensor], torch.Tensor] | None = None
    visible: Callable[[torch.Tensor, Arguments, torch.Tensor, torch.Tensor], torch.Tensor] | None = None


def _kv_scales(spec: AttentionSpec, draws: Draws) -> dict[str, Any]:
    # neither 1 nor equal: a scale that is dropped or swapped must show
    return {
        "k_scale": draws.choice("k_scale", (0.25, 0.6, 1.75), (1,)),
        "v_scale": draws.choice("v_scale", (0.35, 0.8, 2.5), (1,)),
    }


def _soft_cap(logits: torch.Tensor, arguments: Arguments, distances: torch.Tensor) -> torch.Tensor:
    cap: float = arguments["logits_soft_cap"]
    capped: torch.Tensor = (logits / cap).tanh() * cap
    return capped


def _alibi_slopes(spec: AttentionSpec, draws: Draws) -> dict[str, Any]:
    slopes = draws.choice("alibi", (0.5, 0.125, 0.03, 0.004), (spec.num_query_heads,))
    return {"alibi_slopes": slopes}


def _alibi(logits: torch.Tensor, arguments: Arguments, distances: torch.Tensor) -> torch.Tensor:
    slopes: torch.Tensor = arguments["alibi_slopes"].to(logits.dtype)
    return logits + slopes[:, None, None] * distances


def _sinks(spec: AttentionSpec, draws: Draws) -> dict[str, Any]:
    # up to the size of a whole context's denominator, so that a dropped sink shows
    sinks = draws.choice("sinks", (-2.0, 0.5, 3.0, 7.0), (spec.num_query_heads,))
    return {"sinks": sinks}


def _causal(
    seen: torch.Tensor, arguments: Arguments, queries: torch.Tensor, keys: torch.Tensor
) -> torch.Tensor:
    return seen & (keys <= queries)


def _window(
    seen: torch.Tensor, arguments: Arguments, queries: torch.Tensor, keys: torch.Tensor
) -> torch.Tensor:
    window: int = arguments["sliding_window"]
    return seen & (queries - keys < window)


FEATURES = (
    Feature(
        "fp8_cache",
        "KV cache in fp8 e4m3 with per-tensor scales",
        ("k_scale", "v_scale"),
        lambda spec: spec.kv_dtype == "fp8",
        ({"kv_dtype": "fp8"},),
        _kv_scales,
    ),
    Feature(
        "softmax_scale",
        "a scale other than 1 / sqrt(head_dim)",
        ("softmax_scale",),
        lambda spec: spec.softmax_scale is not None,
        ({"softmax_scale": 0.25}, {"softmax_scale": 0.05}),
        lambda spec, draws: {"softmax_scale": spec.softmax_scale},
    ),
    Feature(
        "soft_cap",
        "cap * tanh(logit / cap)",
        ("logits_soft_cap",),
        lambda spec: spec.logits_soft_cap is not None,
        tuple({"logits_soft_cap": cap} for cap in (50.0, 20.0, 2.0)),
        lambda spec, draws: {"logits_soft_cap": spec.logits_soft_cap},
        logits=_soft_cap,
    ),
    Feature(
        "alibi",
        "slope * (key position - query position) per head",
        ("alibi_slopes",),
        lambda spec: spec.alibi,
        ({"alibi": True},),
        _alibi_slopes,
        logits=_alibi,
    ),
    Feature(
        "causal",
        "queries see keys up to their own position, aligned at the end of the sequence",
        (),
        lambda spec: spec.causal,
        visible=_causal,
    ),
    Feature(
        "non_causal",
        "queries see all keys of their sequence",
        ("causal",),
        lambda spec: not spec.causal,
        ({"causal": False},),
        lambda spec, draws: {"causal": False},
    ),
    Feature(
        "sliding_window",
        "only the last keys up to a query's own position",
        ("sliding_window",),
        lambda spec: spec.sliding_window is not None,
        tuple({"sliding_window": keys} for keys in (1, 2, 7, 15, 16, 17, 32, 33, 64, 127, 128, 1024)),
        lambda spec, draws: {"sliding_window": spec.sliding_window},
        visible=_window,
    ),
    Feature(
        "sinks",
        "one more logit per head in the denominator, without a value",
        ("sinks",),
        lambda spec: spec.sinks,
        ({"sinks": True},),
        _sinks,
    ),
)


def active_features(spec: AttentionSpec) -> tuple[Feature, ...]:
    """What a spec asks for, in the order in which the reference applies it."""
    return tuple(feature for feature in FEATURES if feature.active(spec))


def feature_names(spec: AttentionSpec) -> tuple[str, ...]:
    """Names for a coverage report: the features and the unusual placements of a spec."""
    placements = {
        f"layout_{spec.layout}": spec.layout != "nhd",
        f"tokens_{spec.token_layout}": spec.token_layout != "packed",
        "far_pages": spec.far_pages,
        "shared_prefix": spec.shared_prefix > 0,
        "table_slack": spec.table_slack > 0,
        "pad_tokens": spec.pad_tokens > 0,
    }
    names = [f.name for f in active_features(spec) if f.name != "causal"]
    return (*names, *(name for name, present in placements.items() if present))
