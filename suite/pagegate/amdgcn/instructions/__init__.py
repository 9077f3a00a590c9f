"""One small function per instruction, in tables by family. Importing this package fills the tables."""

from pagegate.amdgcn.rules import SCALAR, SPECIAL, VECTOR

from . import (
    arithmetic,
    atomics,
    bits,
    compare,
    control,
    convert,
    division,
    integer,
    lanes,
    matrix,
    memory,
    private,
    scalar,
    shared,
)

__all__ = [
    "SCALAR",
    "SPECIAL",
    "VECTOR",
    "arithmetic",
    "atomics",
    "bits",
    "compare",
    "control",
    "convert",
    "division",
    "integer",
    "lanes",
    "matrix",
    "memory",
    "private",
    "scalar",
    "shared",
]
