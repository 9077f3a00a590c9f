"""What the machine says of its GPU: NVML for NVIDIA, amdsmi for AMD. Nothing here changes a setting."""

from __future__ import annotations

import contextlib
from functools import cache
from typing import Any

import torch

from .samples import Reading

# NVML clock event reasons that distort a measurement; a software power cap (0x4) is normal under load
_REASONS = {
    0x08: "hardware slowdown",
    0x20: "software thermal",
    0x40: "hardware thermal",
    0x80: "power brake",
}
# what amdsmi calls a violation of the power cap: normal under load, too
_POWER_CAP = "active_ppt_pwr"


def read_machine() -> Reading:
    """Clocks and throttling now; an empty reading where neither library can tell."""
    return _read_amd() if torch.version.hip else _read_nvidia()


def gpu_facts() -> dict[str, Any]:
    """driver, partition, ecc, clock_policy and processes of an `Environment`, as far as they are known."""
    return _amd_facts() if torch.version.hip else _nvidia_facts()


@cache
def _nvml() -> tuple[Any, Any] | None:
    """NVML and the handle of torch's device, by its identity: CUDA_VISIBLE_DEVICES renumbers torch only."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        index = torch.cuda.current_device()
        identity = getattr(torch.cuda.get_device_properties(index), "uuid", None)
        if identity is not None:
            with contextlib.suppress(pynvml.NVMLError):
                return pynvml, pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{identity}")
        return pynvml, pynvml.nvmlDeviceGetHandleByIndex(index)
    except pynvml.NVMLError:
        return None


def _read_nvidia() -> Reading:
    found = _nvml()
    if found is None:
        return Reading()
    nvml, handle = found
    try:
        mask = nvml.nvmlDeviceGetCurrentClocksEventReasons(handle)
        sm = nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)
        memory = nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM)
    except nvml.NVMLError:
        return Reading()
    return Reading(sm, memory, reasons_in(mask))


def reasons_in(mask: int) -> tuple[str, ...]:
    """The distorting reasons in an NVML bit mask of clock event reasons."""
    return tuple(words for bit, words in _REASONS.items() if mask & bit)


def _nvidia_facts() -> dict[str, Any]:
    found = _nvml()
    if found is None:
        return {"driver": "unknown (NVML does not answer; is nvidia-ml-py installed?)"}
    nvml, handle = found

    def ask(question: Any, *arguments: Any, otherwise: Any) -> Any:
        try:
            return question(*arguments)
        except nvml.NVMLError:
            return otherwise

    mig = ask(nvml.nvmlDeviceGetMigMode, handle, otherwise=[0])[0]
    ecc = ask(nvml.nvmlDeviceGetEccMode, handle, otherwise=["unknown"])[0]
    clock = ask(nvml.nvmlDeviceGetApplicationsClock, handle, nvml.NVML_CLOCK_SM, otherwise="unknown")
    highest = ask(nvml.nvmlDeviceGetMaxClockInfo, handle, nvml.NVML_CLOCK_SM, otherwise="unknown")
    running = ask(nvml.nvmlDeviceGetComputeRunningProcesses, handle, otherwise=[])
    return {
        "driver": ask(nvml.nvmlSystemGetDriverVersion, otherwise="unknown"),
        "partition": "MIG" if mig else "none",
        "ecc": {0: "off", 1: "on"}.get(ecc, "unknown"),
        "clock_policy": f"application clock {clock} of {highest} MHz",
        "processes": max(0, len(running) - 1),
    }


@cache
def _amd() -> tuple[Any, Any] | None:
    """amdsmi and the handle of torch's device, by its PCI bus."""
    try:
        import amdsmi

        amdsmi.amdsmi_init()
        handles = amdsmi.amdsmi_get_processor_handles()
        index = torch.cuda.current_device()
        bus = getattr(torch.cuda.get_device_properties(index), "pci_bus_id", None)
        for handle in handles:
            # dddd:bb:dd.f
            if bus is not None and int(amdsmi.amdsmi_get_gpu_device_bdf(handle).split(":")[1], 16) == bus:
                return amdsmi, handle
        return amdsmi, handles[index]
    except Exception:  # amdsmi's errors have no common base that every version exports
        return None


def _read_amd() -> Reading:
    found = _amd()
    if found is None:
        return Reading()
    amdsmi, handle = found
    try:
        status = amdsmi.amdsmi_get_violation_status(handle)
        clock = amdsmi.amdsmi_get_clock_info(handle, amdsmi.AmdSmiClkType.GFX)["clk"]
        memory = amdsmi.amdsmi_get_clock_info(handle, amdsmi.AmdSmiClkType.MEM)["clk"]
        return Reading(int(clock), int(memory), violations_in(status))
    except Exception:
        return Reading()


def violations_in(status: dict[str, Any]) -> tuple[str, ...]:
    """The distorting violations in amdsmi's answer, where a value may also be the text "N/A"."""
    active = (name for name, value in status.items() if name.startswith("active_") and value is True)
    return tuple(sorted(name.removeprefix("active_") for name in active if name != _POWER_CAP))


def _amd_facts() -> dict[str, Any]:
    found = _amd()
    if found is None:
        return {"driver": "unknown (amdsmi does not answer)"}
    amdsmi, handle = found

    def ask(question: str, otherwise: Any = "unknown") -> Any:
        try:
            return getattr(amdsmi, question)(handle)
        except Exception:
            return otherwise

    compute = ask("amdsmi_get_gpu_compute_partition")
    memory = ask("amdsmi_get_gpu_memory_partition")
    driver = ask("amdsmi_get_gpu_driver_info", {})
    level = ask("amdsmi_get_gpu_perf_level")
    return {
        "driver": str(driver.get("driver_version", "unknown")),
        "partition": f"{compute} {memory}",
        "clock_policy": f"performance level {level}",
        "processes": max(0, len(ask("amdsmi_get_gpu_process_list", [])) - 1),
    }
