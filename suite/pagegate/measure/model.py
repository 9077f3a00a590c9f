"""Llama-like models with random weights: shapes, and the tensors of a decoder."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from pagegate.cases.draws import Draws
from pagegate.errors import UsageError


@dataclass(frozen=True)
class ModelShape:
    """Sizes of a decoder-only model as in Llama: RMSNorm, rotary embedding, GQA, SwiGLU, no biases.

    intermediate: width of the MLP. rope_theta: base of the rotary frequencies (without Llama 3.1's
    stretching of the low ones, which costs nothing).
    """

    num_layers: int
    hidden: int
    num_query_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    rope_theta: float = 500_000.0
    norm_eps: float = 1e-5

    @property
    def num_rotated(self) -> int:
        """Heads that the rotary embedding turns: queries and keys."""
        return self.num_query_heads + self.num_kv_heads

    @property
    def parameters(self) -> int:
        """How many numbers the weights are."""
        attention = self.hidden * self.head_dim * (2 * self.num_query_heads + 2 * self.num_kv_heads)
        layer = attention + 3 * self.hidden * self.intermediate + 2 * self.hidden
        return self.num_layers * layer + 2 * self.vocab * self.hidden + self.hidden


MODELS = {
    "llama31_8b": ModelShape(32, 4096, 32, 8, 128, 14336, 128_256),
    "small": ModelShape(2, 64, 4, 2, 32, 96, 61, rope_theta=10_000.0),
}


@dataclass(frozen=True)
class Layer:
    """Weights of one layer, each [outputs, inputs]; projections of the same input are one matrix.

    qkv [(num_query_heads + 2 num_kv_heads) * head_dim, hidden], output [hidden, num_query_heads *
    head_dim], gate_up [2 * intermediate, hidden], down [hidden, intermediate]; norms [hidden].
    """

    attention_norm: torch.Tensor
    qkv: torch.Tensor
    output: torch.Tensor
    mlp_norm: torch.Tensor
    gate_up: torch.Tensor
    down: torch.Tensor


@dataclass(frozen=True)
class Model:
    """A shape and its weights: embedding and head [vocab, hidden], norm [hidden]."""

    shape: ModelShape
    embedding: torch.Tensor
    layers: tuple[Layer, ...]
    norm: torch.Tensor
    head: torch.Tensor


def find_shape(name: str) -> ModelShape:
    """Raises UsageError for an unknown name."""
    if name not in MODELS:
        raise UsageError(f"model: required one of {', '.join(MODELS)}, found {name!r}")
    return MODELS[name]


def make_model(shape: ModelShape, dtype: torch.dtype, device: torch.device, seed: int = 0) -> Model:
    """Random weights, the same on every machine; scaled so that activations neither grow nor vanish."""
    draws = Draws(seed, device)

    def matrix(name: str, outputs: int, inputs: int) -> torch.Tensor:
        return draws.normal(name, (outputs, inputs), dtype, spread=inputs**-0.5)

    def norm(name: str) -> torch.Tensor:
        return draws.normal(name, (shape.hidden,), torch.float32, spread=0.1).add_(1.0).to(dtype)

    heads = shape.num_query_heads * shape.head_dim
    projected = heads + 2 * shape.num_kv_heads * shape.head_dim

    def layer(number: int) -> Layer:
        return Layer(
            attention_norm=norm(f"attention_norm {number}"),
            qkv=matrix(f"qkv {number}", projected, shape.hidden),
            output=matrix(f"output {number}", shape.hidden, heads),
            mlp_norm=norm(f"mlp_norm {number}"),
            gate_up=matrix(f"gate_up {number}", 2 * shape.intermediate, shape.hidden),
            down=matrix(f"down {number}", shape.hidden, shape.intermediate),
        )

    return Model(
        shape,
        embedding=draws.normal("embedding", (shape.vocab, shape.hidden), dtype),
        layers=tuple(layer(number) for number in range(shape.num_layers)),
        norm=norm("norm"),
        head=matrix("head", shape.vocab, shape.hidden),
    )
