"""A decoder step as serving engines run it: small, plain, around any registered attention kernel.

Llama's layer (arXiv 2407.21783): RMSNorm, QKV projection, rotary embedding, `write_kv_cache`, paged
attention, output projection, residual, RMSNorm, SwiGLU, residual; then the greedy choice of each sequence's
next token. Everything that a step reads lies in tensors that stay where they are, so that one captured graph
serves every step of a capacity (arXiv 2511.11581, section 6).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch.nn import functional

from pagegate.cases.inputs import Inputs
from pagegate.cases.registry import Kernel, cache_writer
from pagegate.errors import UsageError

from .batch import Batch
from .model import Layer, Model, ModelShape

MODES = {
    "eager": "every launch from Python",
    "partial": "graphs between the attention calls, as for kernels whose grid depends on lengths",
    "full": "one graph per step, replayed while lengths, tables and slots change in place",
}
Cache = tuple[torch.Tensor, torch.Tensor]
Piece = Callable[[], object]
Capture = Callable[[Piece], Piece]


def graph_capture(pieces: int) -> Capture:
    """Captures into CUDA or HIP graphs that share one memory pool. Raises UsageError without a GPU."""
    if not torch.cuda.is_available():
        raise UsageError(
            f"mode: required a CUDA or HIP GPU to capture {pieces} graphs, found none; use eager"
        )
    pool = torch.cuda.graph_pool_handle()

    def capture(piece: Piece) -> Piece:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            piece()
        return graph.replay

    return capture


class Decoder:
    """One step of a model over a batch; call it after each `Batch.fill`.

    The results stay in place: logits [num_seqs, vocab] and next_ids [num_seqs] int64 (of padding: anything).
    caches: K and V of each layer, [num_pages, page_size, num_kv_heads, head_dim]; with fewer than there are
    layers they are used in turn, which times right and computes wrong. kernel: None leaves the attention out,
    to be subtracted. A peer that plans from lengths holds for those that the batch has now.

    Raises UsageError for a mode or a cache that cannot be, and for graphs without a GPU.
    """

    def __init__(
        self,
        model: Model,
        caches: Sequence[Cache],
        batch: Batch,
        kernel: Kernel | None,
        mode: str = "eager",
        capture: Capture | None = None,
    ):
        _check(model.shape, caches, batch, mode)
        shape, rows = model.shape, batch.capacity.num_tokens
        device, dtype = model.embedding.device, model.embedding.dtype
        self.model, self.batch, self.caches = model, batch, list(caches)
        self.logits = torch.zeros(batch.capacity.num_seqs, shape.vocab, dtype=dtype, device=device)
        self.next_ids = torch.zeros(batch.capacity.num_seqs, dtype=torch.int64, device=device)
        self._hidden = torch.zeros(rows, shape.hidden, dtype=dtype, device=device)
        self._rotated = torch.zeros(rows, shape.num_rotated, shape.head_dim, dtype=dtype, device=device)
        # rows of padding are never written: they stay zero
        self._attended = torch.zeros(rows, shape.num_query_heads, shape.head_dim, dtype=dtype, device=device)
        self._turns = _turns(shape, batch.capacity.max_pages * batch.capacity.page_size, device)
        self._turn = torch.zeros(rows, 1, shape.head_dim // 2, dtype=torch.complex64, device=device)
        self._launches = [self._bind(kernel, cache) for cache in self.caches] if kernel else []
        self._run = self._prepare(mode, capture)

    def __call__(self) -> None:
        self._run()

    def _prepare(self, mode: str, capture: Capture | None) -> Piece:
        between = [partial(self._between, number) for number in range(self.model.shape.num_layers + 1)]
        attention = [partial(self._attend, number) for number in range(self.model.shape.num_layers)]
        if mode != "eager":
            capture = capture or graph_capture(len(between) if mode == "partial" else 1)
            # compiles kernels and lets libraries allocate; a step changes nothing when it is repeated
            _run_all(_in_turn(between, attention))
        if mode == "eager" or capture is None:
            return partial(_run_all, _in_turn(between, attention))
        if mode == "full":
            return capture(partial(_run_all, _in_turn(between, attention)))
        return partial(_run_all, _in_turn([capture(piece) for piece in between], attention))

    def _bind(self, kernel: Kernel, cache: Cache) -> Callable[[], Any]:
        inputs = Inputs(
            q=self._rotated[:, : self.model.shape.num_query_heads],
            k_cache=cache[0],
            v_cache=cache[1],
            block_table=self.batch.block_table,
            seq_lens=self.batch.seq_lens,
            cu_seqlens_q=self.batch.cu_seqlens_q,
            max_query_len=self.batch.capacity.max_query_len,
        )
        return kernel.bind(inputs, out=self._attended)

    def _attend(self, number: int) -> None:
        if not self._launches:
            return
        out = self._launches[number % len(self._launches)]()
        if out.data_ptr() != self._attended.data_ptr():
            self._attended.copy_(out)

    def _between(self, number: int) -> None:
        """All from one attention call to the next: the rest of a layer, then the next one up to its cache."""
        layers = self.model.layers
        if number == 0:
            torch.index_select(self.model.embedding, 0, self.batch.token_ids, out=self._hidden)
            self._turn.copy_(self._turns[self.batch.positions][:, None])
        else:
            self._finish_layer(layers[number - 1])
        if number < len(layers):
            self._start_layer(layers[number], self.caches[number % len(self.caches)])
        else:
            last = self._norm(self._hidden[self.batch.last_rows], self.model.norm)
            torch.mm(last, self.model.head.t(), out=self.logits)
            torch.argmax(self.logits, dim=-1, out=self.next_ids)

    def _start_layer(self, layer: Layer, cache: Cache) -> None:
        shape = self.model.shape
        row = functional.linear(self._norm(self._hidden, layer.attention_norm), layer.qkv)
        row = row.view(row.shape[0], -1, shape.head_dim)
        pairs = row[:, : shape.num_rotated].float().view(*row.shape[:1], shape.num_rotated, -1, 2)
        turned = torch.view_as_real(torch.view_as_complex(pairs) * self._turn)
        self._rotated.copy_(turned.flatten(-2))
        keys, values = self._rotated[:, shape.num_query_heads :], row[:, shape.num_rotated :]
        cache_writer()(keys, values, *cache, slot_mapping=self.batch.slots)

    def _finish_layer(self, layer: Layer) -> None:
        self._hidden.add_(functional.linear(self._attended.flatten(1), layer.output))
        gate, up = functional.linear(self._norm(self._hidden, layer.mlp_norm), layer.gate_up).chunk(2, dim=-1)
        self._hidden.add_(functional.linear(functional.silu(gate) * up, layer.down))

    def _norm(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return functional.rms_norm(x, (x.shape[-1],), weight, self.model.shape.norm_eps)


def _in_turn(between: Sequence[Piece], attention: Sequence[Piece]) -> list[Piece]:
    pieces = list(between[:1])
    for attend, after in zip(attention, between[1:], strict=True):
        pieces += [attend, after]
    return pieces


def _run_all(pieces: Sequence[Piece]) -> None:
    for piece in pieces:
        piece()


def _turns(shape: ModelShape, positions: int, device: torch.device) -> torch.Tensor:
    """[positions, head_dim / 2] complex64: rotary angles of neighbouring dimensions (arXiv 2104.09864)."""
    exponents = torch.arange(0, shape.head_dim, 2, dtype=torch.float64, device=device) / shape.head_dim
    frequencies = shape.rope_theta**-exponents
    angles = torch.arange(positions, dtype=torch.float64, device=device)[:, None] * frequencies[None]
    return torch.polar(torch.ones_like(angles), angles).to(torch.complex64)


def _check(shape: ModelShape, caches: Sequence[Cache], batch: Batch, mode: str) -> None:
    if mode not in MODES:
        raise UsageError(f"mode: required one of {', '.join(MODES)}, found {mode!r}")
    if not 1 <= len(caches) <= shape.num_layers:
        raise UsageError(f"caches: required 1 to {shape.num_layers} (the layers), found {len(caches)}")
    wanted = (batch.capacity.page_size, shape.num_kv_heads, shape.head_dim)
    for tensor in (tensor for cache in caches for tensor in cache):
        if tuple(tensor.shape[1:]) != wanted:
            raise UsageError(f"caches: required [num_pages, {wanted}], found {list(tensor.shape)}")
