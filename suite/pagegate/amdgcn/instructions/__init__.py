"""One small function per instruction, in tables by family. Importing this package fills the tables."""

from ..rules import SCALAR, SPECIAL, VECTOR
from . import arithmetic, compare, convert, lanes, matrix, memory, private, scalar, shared, vector

__all__ = [
    "SCALAR",
    "SPECIAL",
    "VECTOR",
    "arithmetic",
    "compare",
    "convert",
    "lanes",
    "matrix",
    "memory",
    "private",
    "scalar",
    "shared",
    "vector",
]
