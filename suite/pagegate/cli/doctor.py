"""What can this machine run? Versions, GPU, and what will be skipped and why."""

from __future__ import annotations

import argparse
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from rich.markup import escape

from pagegate.bootstrap import BUILDS, choose_build, gpus_here
from pagegate.cases.registry import has_triton
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


def skipped(gpu: bool, triton: bool) -> list[tuple[str, str]]:
    """What this machine cannot do, and why."""
    rows = []
    if not triton:
        reason = f"{common.NO_TRITON}: it is made for Linux; kernels in torch run"
        rows.append(("naive, unified, compiled, --target", reason))
    if not gpu:
        if triton:
            rows.append(("compiled kernels", "no GPU: kernels run in Triton's interpreter, small cases only"))
        rows += [
            ("bench", "no GPU: nothing times the interpreter"),
            ("graph_replay relation, tests/gpu", "no GPU"),
        ]
    return rows


def other_build(system: str, nvidia: bool, amd: bool, has: str) -> str | None:
    """Advice when this machine has a GPU that the installed torch (a build of BUILDS) is not made for."""
    wanted, why = choose_build(system, nvidia, amd)
    if wanted == has or wanted not in ("cuda", "rocm"):
        return None
    index = f" --index-url {BUILDS[wanted].index}" if BUILDS[wanted].index else ""
    return (
        f"{why}, and torch is {BUILDS[has].what}: make clean setup BUILD={wanted}, or pip install "
        f"{BUILDS[wanted].torch}{index}"
    )


def _advice() -> str | None:
    import torch

    if platform.system() not in ("Linux", "Darwin"):
        return None
    has = "rocm" if torch.version.hip else "cuda" if torch.version.cuda else "cpu"
    return other_build(platform.system(), *gpus_here(), has)


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
    reasons = skipped(device.kind == "cuda", has_triton())
    if reasons:
        out.print(terminal.table("skipped here", ["what", "why"], reasons))
    advice = _advice()
    if advice:
        out.print(f"[yellow]GPU:[/] {escape(advice)}")
    if options.json:
        write_json(
            options.json, {"facts": facts, "advice": advice, "skipped": [list(row) for row in reasons]}
        )
    return PASSED
