"""One guarded run of a kernel: sentinels in the output, poison in scratch, inputs compared afterwards."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from pagegate.cases.inputs import GUARD, Inputs, token_buffer
from pagegate.cases.registry import Kernel
from pagegate.cases.spec import AttentionSpec

_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32}
# quiet NaNs with a payload that no arithmetic makes
_SENTINELS = {torch.bfloat16: 0x7FE5, torch.float16: 0x7F5A, torch.float32: 0x7FE5A5A5}


@dataclass(frozen=True)
class Run:
    """What came back: out [num_tokens + padding, num_query_heads, head_dim] and lse (or None), or a
    status other than PASSED with its reason."""

    status: str
    reason: str = ""
    out: torch.Tensor | None = None
    lse: torch.Tensor | None = None


class DeviceLost(Exception):
    """The GPU context is dead: the process has to be replaced."""


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory as integers, so that NaNs compare."""
    return tensor.view(_BITS[tensor.element_size()])


def run(
    kernel: Kernel,
    inputs: Inputs,
    spec: AttentionSpec,
    plan: dict[str, Any] | None = None,
    *,
    guard_inputs: bool = True,
) -> Run:
    """Run a kernel once. Raises DeviceLost when the GPU's context did not survive it."""
    sentinel = _SENTINELS[inputs.q.dtype]
    buffer, storage = token_buffer(spec, inputs.q.dtype, inputs.q.device, "nan", output=True)
    bits(storage).fill_(sentinel)
    before = {name: bits(tensor).clone() for name, tensor in _watched(inputs).items()} if guard_inputs else {}
    try:
        with _poisoned_scratch():
            returned = kernel.call(inputs, out=buffer, return_lse=True, **(plan or {}))
        _wait(inputs.q.device)
    except NotImplementedError as error:
        return Run("UNSUPPORTED", str(error))
    except Exception as error:
        if _is_device_error(error):
            raise DeviceLost(_first_lines(error)) from error
        return Run("RAISED", f"{type(error).__name__}: {_first_lines(error)}{_where(error)}")
    out, lse = returned if isinstance(returned, tuple) else (returned, None)
    if kernel.takes("out"):
        out = buffer  # what a caller who passes `out` gets
    names = kernel.parameters()
    if lse is None and names is not None and "return_lse" in names:
        return Run("WRONG_SHAPE", "lse: required with return_lse=True, found none")
    wrong = _wrong_form(out, lse, inputs.q)
    if wrong is not None:
        return wrong
    for name, tensor in _watched(inputs).items():
        if guard_inputs and not torch.equal(before[name], bits(tensor)):
            return _changed_input(name, before[name], tensor)
    if kernel.takes("out"):
        problem = _guards(spec, storage, buffer, sentinel)
        if problem is not None:
            return problem
    return Run("PASSED", out=out, lse=lse)


def _watched(inputs: Inputs) -> dict[str, torch.Tensor]:
    tensors = dict(inputs.storages) | {"seq_lens": inputs.seq_lens, "cu_seqlens_q": inputs.cu_seqlens_q}
    tensors |= {name: value for name, value in inputs.features.items() if isinstance(value, torch.Tensor)}
    return tensors


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


@contextmanager
def _poisoned_scratch() -> Iterator[None]:
    """Memory from torch.empty holds NaN, so that scratch which is read before it is written shows."""
    before = torch.are_deterministic_algorithms_enabled()
    settings: Any = torch.utils.deterministic
    fill = settings.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True, warn_only=True)
    settings.fill_uninitialized_memory = True
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)
        settings.fill_uninitialized_memory = fill


def _is_device_error(error: Exception) -> bool:
    text = str(error)
    return isinstance(error, (RuntimeError, MemoryError)) and (
        "CUDA error" in text or "HIP error" in text or "illegal memory access" in text
    )


def _first_lines(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:3])[:400]


def _where(error: Exception) -> str:
    """The last place in the traceback, which is the kernel's own unless a library raised."""
    frames = traceback.extract_tb(error.__traceback__)
    return f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""


def _wrong_form(out: Any, lse: Any, q: torch.Tensor) -> Run | None:
    expected = [("out", out, tuple(q.shape), q.dtype)]
    if lse is not None:
        expected.append(("lse", lse, tuple(q.shape[:2]), torch.float32))
    for name, tensor, shape, dtype in expected:
        if not isinstance(tensor, torch.Tensor):
            return Run("WRONG_SHAPE", f"{name}: required a tensor, found {type(tensor).__name__}")
        if tuple(tensor.shape) != shape:
            return Run("WRONG_SHAPE", f"{name}: required {list(shape)}, found {list(tensor.shape)}")
        if tensor.dtype != dtype:
            return Run("WRONG_DTYPE", f"{name}: required {dtype}, found {tensor.dtype}")
    return None


def _changed_input(name: str, before: torch.Tensor, tensor: torch.Tensor) -> Run:
    changed = (before != bits(tensor)).reshape(-1)
    first = int(changed.nonzero()[0])
    detail = f"{name}: {int(changed.sum())} elements changed, the first at {first} of {changed.numel()}"
    guarded = "cache" in name or name == "q"
    outside = guarded and (first < GUARD or first >= changed.numel() - GUARD)
    return Run("WROTE_OUTSIDE" if outside else "MUTATED_INPUT", detail)


def _guards(spec: AttentionSpec, storage: torch.Tensor, buffer: torch.Tensor, sentinel: int) -> Run | None:
    """Whether all rows were written, and nothing but rows. Rows past the last query are not rows."""
    untouched = bits(buffer[: spec.num_tokens]) == sentinel
    if bool(untouched.any()):
        token, head, dim = untouched.nonzero()[0].tolist()
        count = int(untouched.sum())
        where = f"the first at token {token} of the batch, head {head}, dim {dim}"
        return Run("UNWRITTEN", f"{count} elements of out=, {where} (a kernel that takes out= must write it)")
    stray = bits(storage) != sentinel
    if storage is buffer:
        rows = stray
    else:
        rows = stray.as_strided(buffer.shape, buffer.stride(), buffer.storage_offset())
    rows[: spec.num_tokens] = False
    if bool(rows.any()):
        token, head, dim = rows.nonzero()[0].tolist()
        past = f"{int(rows.sum())} elements in rows past the last query"
        return Run("WROTE_OUTSIDE", f"{past}, the first at row {token}, head {head}, dim {dim}")
    if bool(stray.any()):
        first = int(stray.reshape(-1).nonzero()[0]) - GUARD
        return Run(
            "WROTE_OUTSIDE", f"{int(stray.sum())} elements around the output, the first {first} from it"
        )
    return None
