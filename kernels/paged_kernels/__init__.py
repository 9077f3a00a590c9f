"""Paged-attention kernels: one Triton source for NVIDIA and AMD GPUs."""

from .attention import paged_attention, plan
from .cache import merge_states, write_kv_cache
from .launch import LaunchConfig, Machine, Problem
from .planning import choose_config
from .validation import validate_tables

__all__ = [
    "LaunchConfig",
    "Machine",
    "Problem",
    "choose_config",
    "merge_states",
    "paged_attention",
    "plan",
    "validate_tables",
    "write_kv_cache",
]
