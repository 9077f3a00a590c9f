"""Kernels that misbehave on a GPU, each in its own way. A plugin for the tests, not a model."""

import torch
import triton
import triton.language as tl

from pagegate.cases.registry import find_kernel, register


def _attend(q, k_cache, v_cache, arguments):
    honest = find_kernel("unified").load()
    return honest(q=q, k_cache=k_cache, v_cache=v_cache, **arguments)


@triton.jit
def store_before(out_ptr):
    tl.store(out_ptr - 8, 1.0)


@triton.jit
def spin(flag_ptr):
    while tl.load(flag_ptr, volatile=True) == 0:
        pass


@triton.jit
def store_nowhere(address):
    tl.store(tl.cast(address.to(tl.int64), tl.pointer_type(tl.float32)), 1.0)


@register("writes_outside")
def writes_outside(q, k_cache, v_cache, **arguments):
    """One element before the output."""
    result = _attend(q, k_cache, v_cache, arguments)
    store_before[(1,)](arguments["out"])
    return result


@register("loops")
def loops(q, k_cache, v_cache, **arguments):
    """Waits for a flag that nobody sets."""
    spin[(1,)](torch.zeros(1, dtype=torch.int32, device=q.device))
    return _attend(q, k_cache, v_cache, arguments)


@register("faults")
def faults(q, k_cache, v_cache, **arguments):
    """Writes to an address that is never mapped."""
    store_nowhere[(1,)](16)
    return _attend(q, k_cache, v_cache, arguments)
