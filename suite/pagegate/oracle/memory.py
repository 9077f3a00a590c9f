"""Who may have how much of the device's memory: workers are processes and know nothing of each other."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pagegate.cases.spec import AttentionSpec

_FAR_ELEMENTS = 1 << 31


def footprint(spec: AttentionSpec) -> int:
    """About the bytes that checking a spec takes: content, placed twice, a snapshot, a relation's copy."""
    element = 4 if spec.dtype == "fp32" else 2
    tokens = (spec.num_tokens + spec.pad_tokens) * spec.num_query_heads * spec.head_dim
    far = 2 * spec.far_pages + 3 * (spec.token_layout == "far")
    return 5 * spec.kv_bytes + 20 * tokens * element + 2 * far * _FAR_ELEMENTS * element


class MemoryGate:
    """Lets cases in while their footprints fit into `capacity` bytes; one that never fits runs alone."""

    def __init__(self, capacity: int):
        self.capacity = capacity
        self._used = 0
        self._changed = threading.Condition()

    @contextmanager
    def hold(self, spec: AttentionSpec) -> Iterator[None]:
        need = min(footprint(spec), self.capacity)
        with self._changed:
            self._changed.wait_for(lambda: self._used + need <= self.capacity)
            self._used += need
        try:
            yield
        finally:
            with self._changed:
                self._used -= need
                self._changed.notify_all()
