"""Random data that is the same on every machine: a hash of (stream, name, index), not a device's generator.

The hash is SplitMix64's finaliser (Steele, Lea and Flood, 2014) in wrapping 64-bit arithmetic. Normal
numbers are the sum of its four 16-bit fields (Irwin-Hall of order 4): exact in integers, so equal bit
for bit on a CPU and on any GPU.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

import torch

_CHUNK = {"cpu": 1 << 20, "cuda": 1 << 26}
_SIGMA = 65536 * math.sqrt(4 / 12)


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


def _logical_shift(x: torch.Tensor, amount: int) -> torch.Tensor:
    return (x >> amount).bitwise_and_((1 << (64 - amount)) - 1)


@dataclass(frozen=True)
class Draws:
    """A source of numbers for one stream on one device; each name is a stream of its own."""

    stream: int
    device: torch.device

    def _hash(self, name: str, start: int, stop: int) -> torch.Tensor:
        digest = hashlib.sha256(f"{self.stream} {name}".encode()).digest()
        key = _signed(int.from_bytes(digest[:8], "big"))
        x = torch.arange(start, stop, dtype=torch.int64, device=self.device)
        x.mul_(_signed(0x9E3779B97F4A7C15)).add_(key)
        x.bitwise_xor_(_logical_shift(x, 30)).mul_(_signed(0xBF58476D1CE4E5B9))
        x.bitwise_xor_(_logical_shift(x, 27)).mul_(_signed(0x94D049BB133111EB))
        return x.bitwise_xor_(_logical_shift(x, 31))

    def integers(self, name: str, shape: tuple[int, ...], bound: int) -> torch.Tensor:
        """int64 from 0 to bound - 1."""
        x = self._hash(name, 0, math.prod(shape))
        return _logical_shift(x, 2).remainder_(bound).reshape(shape)

    def normal(
        self, name: str, shape: tuple[int, ...], dtype: torch.dtype = torch.float32, spread: float = 1.0
    ) -> torch.Tensor:
        """About normal, mean 0 and standard deviation `spread`."""
        count = math.prod(shape)
        out = torch.empty(count, dtype=dtype, device=self.device)
        chunk = _CHUNK.get(self.device.type, 1 << 24)
        for start in range(0, count, chunk):
            stop = min(start + chunk, count)
            x = self._hash(name, start, stop)
            total = x.bitwise_and(0xFFFF)
            for field in (16, 32, 48):
                total.add_((x >> field).bitwise_and_(0xFFFF))
            out[start:stop] = total.sub_(2 * 65535).to(torch.float32).mul_(spread / _SIGMA).to(dtype)
        return out.reshape(shape)

    def choice(self, name: str, values: tuple[float, ...], shape: tuple[int, ...]) -> torch.Tensor:
        """float32, each element one of `values`."""
        table = torch.tensor(values, dtype=torch.float32, device=self.device)
        return table[self.integers(name, shape, len(values))]

    def permutation(self, name: str, count: int) -> list[int]:
        # page numbers are wanted on the host, and on the meta device there is nothing to read back
        keys = Draws(self.stream, torch.device("cpu")).integers(name, (count,), 1 << 62).tolist()
        return sorted(range(count), key=keys.__getitem__)
