"""What makes two measurements comparable."""

from dataclasses import replace

import pytest
import torch

from pagegate.errors import UsageError
from pagegate.measure.environment import Environment, current_environment, role_of

HERE = Environment("NVIDIA H200", "h200", "580", "CUDA 13.0", "2.11", "3.6.0", "3.12")


def test_the_key_covers_what_matters_and_nothing_else():
    for name in ("gpu", "driver", "runtime", "torch", "triton", "partition", "ecc"):
        other = replace(HERE, **{name: "other"})
        assert other.key() != HERE.key()
        assert HERE.differences(other)[0].startswith(f"{name}: ")
    same = replace(HERE, python="3.11", processes=3, clock_policy="locked")
    assert same.key() == HERE.key()
    assert HERE.differences(same) == []


@pytest.mark.parametrize(
    ("gpu", "role"),
    [
        ("NVIDIA H200", "h200"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA GH200 480GB", "gh200"),
        ("AMD Instinct MI300X", "mi300x"),
        ("NVIDIA GeForce RTX 4090", "nvidia-geforce-rtx-4090"),
    ],
)
def test_roles(gpu, role):
    assert role_of(gpu) == role


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_without_a_gpu_nothing_is_measured():
    with pytest.raises(UsageError, match="required a CUDA or HIP GPU, found none"):
        current_environment()


def test_an_environment_from_a_newer_file():
    with pytest.raises(UsageError, match="the fields of an environment"):
        Environment.from_json(HERE.to_json() | {"cooling": "water"})
