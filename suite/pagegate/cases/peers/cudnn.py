"""cuDNN's attention graph with page tables (nvidia-cudnn-frontend over the cuDNN that torch ships)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from pagegate.cases.inputs import Inputs
from pagegate.cases.spec import AttentionSpec

from . import find_library, longest, safe_table, scale_of


def parameters(causal: Any = None, softmax_scale: Any = None) -> None:
    """What the graph is built for."""


def unsupported(spec: AttentionSpec) -> str | None:
    module, reason = find_library("cudnn")
    if module is None:
        return reason
    if not torch.cuda.is_available():
        return "required an NVIDIA GPU, found none"
    if spec.dtype == "fp32":
        return "not built for fp32"
    return None


@dataclass(frozen=True)
class _Shape:
    """All that a graph is built from, so that copies of inputs share one."""

    dtype: torch.dtype
    num_seqs: int
    query_len: int
    num_query_heads: int
    head_dim: int
    caches: tuple[tuple[int, ...], ...]  # shape, strides of K, strides of V
    table_width: int
    longest: int
    ragged: bool
    causal: bool
    scale: float


@dataclass(frozen=True)
class _Graph:
    """A built graph; names: its tensors by our names."""

    graph: Any
    names: dict[str, Any]
    workspace: torch.Tensor
    handle: Any


@cache
def _handle() -> Any:
    return find_library("cudnn")[0].create_handle()


def prepare(inputs: Inputs) -> Callable[[], torch.Tensor]:
    """Raises NotImplementedError with cuDNN's own words for a problem it has no engine for."""
    module, _ = find_library("cudnn")
    q = inputs.q.contiguous()
    k, v = inputs.k_cache, inputs.v_cache
    query_lens = inputs.cu_seqlens_q.diff().to(torch.int32).contiguous()
    table = safe_table(inputs)
    shape = _Shape(
        dtype=q.dtype,
        num_seqs=inputs.seq_lens.shape[0],
        query_len=inputs.max_query_len,
        num_query_heads=q.shape[1],
        head_dim=q.shape[2],
        caches=(tuple(k.shape), k.stride(), v.stride()),
        table_width=table.shape[1],
        longest=longest(inputs),
        ragged=not bool((query_lens == 1).all()),
        causal=inputs.features.get("causal", True),
        scale=scale_of(inputs),
    )
    try:
        built = _build(shape)
    except Exception as error:
        if "NotSupported" in type(error).__name__:
            first = str(error).partition("\n")[0]
            raise NotImplementedError(f"cuDNN has no engine for it: {first}") from error
        raise
    names = built.names
    tensors = {
        names["q"]: q,
        names["k"]: k,
        names["v"]: v,
        names["k_table"]: table,
        names["v_table"]: table,
        names["query_lens"]: query_lens,
        names["seq_lens"]: inputs.seq_lens,
    }
    if shape.ragged:
        tensors[names["starts"]] = (inputs.cu_seqlens_q * (q.shape[1] * q.shape[2])).contiguous()

    def attend() -> torch.Tensor:
        out = torch.empty_like(q)
        stream = torch.cuda.current_stream().cuda_stream
        module.set_stream(handle=built.handle, stream=stream)
        built.graph.execute(tensors | {names["out"]: out}, built.workspace, handle=built.handle)
        return out

    return attend


@cache
def _build(shape: _Shape) -> _Graph:
    cudnn, _ = find_library("cudnn")
    kind, handle = cudnn.data_type, _handle()
    io = kind.BFLOAT16 if shape.dtype == torch.bfloat16 else kind.HALF
    graph = cudnn.pygraph(
        io_data_type=io, intermediate_data_type=kind.FLOAT, compute_data_type=kind.FLOAT, handle=handle
    )
    heads, dim = shape.num_query_heads, shape.head_dim
    token_dims = [shape.num_seqs, heads, shape.query_len, dim]
    token_strides = [shape.query_len * heads * dim, dim, heads * dim, 1]
    q = graph.tensor(name="q", dim=token_dims, stride=token_strides, data_type=io)
    (num_pages, page_size, kv_heads, _), *strides = shape.caches
    k, v = (
        # [pages, heads, slots, dims], as cuDNN orders them
        graph.tensor(
            name=name,
            dim=[num_pages, kv_heads, page_size, dim],
            stride=[page, head, slot, last],
            data_type=io,
        )
        for name, (page, slot, head, last) in zip("kv", strides, strict=True)
    )

    def whole_numbers(name: str, count: int) -> Any:
        return graph.tensor(name=name, dim=[count, 1, 1, 1], stride=[1, 1, 1, 1], data_type=kind.INT32)

    def page_table(name: str) -> Any:
        width = shape.table_width
        return graph.tensor(
            name=name,
            dim=[shape.num_seqs, 1, width, 1],
            stride=[width, width, 1, 1],
            data_type=kind.INT32,
        )

    names = {
        "q": q,
        "k": k,
        "v": v,
        "k_table": page_table("k_table"),
        "v_table": page_table("v_table"),
        "query_lens": whole_numbers("query_lens", shape.num_seqs),
        "seq_lens": whole_numbers("seq_lens", shape.num_seqs),
    }
    masks: dict[str, Any] = {}
    if shape.ragged:
        names["starts"] = whole_numbers("starts", shape.num_seqs + 1)
        q.set_ragged_offset(names["starts"])
    if shape.causal and shape.query_len > 1:
        masks = {
            "diagonal_alignment": cudnn.diagonal_alignment.BOTTOM_RIGHT,
            "diagonal_band_right_bound": 0,
        }
    out, _ = graph.sdpa(
        name="attention",
        q=q,
        k=k,
        v=v,
        generate_stats=False,
        attn_scale=shape.scale,
        use_padding_mask=True,
        seq_len_q=names["query_lens"],
        seq_len_kv=names["seq_lens"],
        paged_attention_k_table=names["k_table"],
        paged_attention_v_table=names["v_table"],
        paged_attention_max_seq_len_kv=shape.longest,
        **masks,
    )
    out.set_output(True).set_dim(token_dims).set_stride(token_strides).set_data_type(io)
    if shape.ragged:
        out.set_ragged_offset(names["starts"])
    names["out"] = out
    graph.validate()
    graph.build_operation_graph()
    graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
    graph.check_support()
    graph.build_plans()
    workspace = torch.empty(max(1, graph.get_workspace_size()), dtype=torch.uint8, device="cuda")
    return _Graph(graph, names, workspace, handle)
