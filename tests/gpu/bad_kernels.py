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
def load_nowhere(out_ptr, address):
    pointer = tl.cast(address, tl.pointer_type(tl.float32))
    tl.store(out_ptr, tl.load(pointer).to(out_ptr.dtype.element_ty))


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
    """Reads an address that is not mapped."""
    load_nowhere[(1,)](arguments["out"], 1 << 40)
    return _attend(q, k_cache, v_cache, arguments)
