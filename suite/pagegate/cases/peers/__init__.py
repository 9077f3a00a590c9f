"""Other people's kernels, one module each; the registry imports a module when its kernel is asked for.

A module has `parameters` (a function whose signature names what the kernel takes; it is never called),
`unsupported(spec)` (a reason, or None; the library that is not installed is one) and `prepare(inputs)`,
which converts layouts and conventions, plans on the host, and returns the call that is checked and timed.
Plans read lengths, so a captured graph holds for these lengths only.
"""

from __future__ import annotations

import importlib
from functools import cache
from typing import Any

import torch

from pagegate.cases.inputs import Inputs


@cache
def find_library(name: str) -> tuple[Any, str]:
    """A module and "", or None and why it does not import."""
    if torch.cuda.is_available():
        # extensions expect the CUDA libraries that torch brings
        torch.cuda.init()  # type: ignore[no-untyped-call]
    try:
        return importlib.import_module(name), ""
    except Exception as error:  # a library built for another torch or driver fails in ways of its own
        first = str(error).partition("\n")[0]
        return None, f"required {name}, found that it does not import ({type(error).__name__}: {first})"


def safe_table(inputs: Inputs) -> torch.Tensor:
    """The block table with page ids that exist everywhere: libraries may look one entry too far."""
    return inputs.block_table.clamp(0, inputs.k_cache.shape[0] - 1).contiguous()


def scale_of(inputs: Inputs) -> float:
    scale: float | None = inputs.features.get("softmax_scale")
    return inputs.q.shape[-1] ** -0.5 if scale is None else scale


def window_of(inputs: Inputs) -> tuple[int, int]:
    """Keys to the left and right that a query sees besides its own position; -1 means all."""
    window: int | None = inputs.features.get("sliding_window")
    causal = inputs.features.get("causal", True)
    return (-1 if window is None else window - 1, 0 if causal else -1)


def longest(inputs: Inputs) -> int:
    """The longest sequence; at least 1, so that sizes made from it are sizes."""
    return max(1, int(inputs.seq_lens.max())) if inputs.seq_lens.numel() else 1
