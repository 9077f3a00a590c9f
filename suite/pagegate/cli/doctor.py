"""What can this machine run? Versions, GPU, and what will be skipped and why."""

from __future__ import annotations

import argparse
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from pagegate.errors import UsageError

from . import PASSED, common

_PACKAGES = ("torch", "triton", "numpy", "hypothesis", "pytest", "pytest-benchmark", "asv", "nvidia-ml-py")


def configure(parser: argparse.ArgumentParser) -> None:
    common.add_device(parser, targets=False)
    common.add_json(parser)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _gpu() -> dict[str, str]:
    import torch

    if not torch.cuda.is_available():
        return {}
    facts = torch.cuda.get_device_properties(0)
    runtime = f"HIP {torch.version.hip}" if torch.version.hip else f"CUDA {torch.version.cuda}"
    return {
        "GPU": facts.name,
        "GPU memory": f"{facts.total_memory / 2**30:.0f} GiB",
        "multiprocessors": str(facts.multi_processor_count),
        "runtime": runtime,
        **_driver(),
    }


def _driver() -> dict[str, str]:
    """Driver and clocks through NVML, where it is there; AMD's library is asked when measuring."""
    try:
        import pynvml as nvml

        nvml.nvmlInit()
        handle = nvml.nvmlDeviceGetHandleByIndex(0)
        clock: Any = nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)
        most: Any = nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM)
        return {"driver": str(nvml.nvmlSystemGetDriverVersion()), "SM clock": f"{clock} of {most} MHz"}
    except Exception as error:
        return {"driver": f"unknown: {type(error).__name__}: {error}"}


def skipped(gpu: bool) -> list[tuple[str, str]]:
    """What this machine cannot do, and why."""
    rows = []
    if not gpu:
        rows += [
            ("compiled kernels", "no GPU: kernels run in Triton's interpreter, small cases only"),
            ("bench", "no GPU: nothing times the interpreter"),
            ("graph_replay relation, tests/gpu", "no GPU"),
        ]
    return rows


def run(options: argparse.Namespace) -> int:
    common.refuse_unwritable(options.json)
    from pagegate.cases.registry import kernels_root
    from pagegate.files import write_json
    from pagegate.report import terminal

    device = common.choose_device(options.device)
    facts = {
        "device": device.name,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cores": str(device.workers),
        **{name: _version(name) for name in _PACKAGES},
        **_gpu(),
    }
    try:
        facts["paged_kernels"] = str(kernels_root())
    except UsageError as error:
        facts["paged_kernels"] = str(error)
    out = terminal.console()
    out.print(terminal.table("this machine", ["", ""], facts.items()))
    reasons = skipped(device.kind == "cuda")
    if reasons:
        out.print(terminal.table("skipped here", ["what", "why"], reasons))
    if options.json:
        write_json(options.json, {"facts": facts, "skipped": [list(row) for row in reasons]})
    return PASSED
