"""pagegate: a correctness and performance gate for paged-attention kernels."""

__version__ = "0.1.0"
