"""The figures of `pagegate compiled` against those of the driver, on the GPU that they are about."""

import ctypes
import os
import sys

import pytest
import torch
import triton

from pagegate.cases.content import make_content
from pagegate.cases.inputs import Placement, place
from pagegate.cases.registry import find_kernel
from pagegate.cases.workloads import find_workloads
from pagegate.compiled.recording import recorded_from
from pagegate.compiled.table import Toolchain, compile_table
from pagegate.compiled.targets import TARGETS, find_target, occupancy

KERNELS = ("unified", "naive")


def _target():
    """The row of this GPU; "" where there is none."""
    if not torch.cuda.is_available() or torch.version.hip:
        return ""
    major, minor = torch.cuda.get_device_capability()
    name = f"sm_{10 * major + minor}"
    return name if name in TARGETS else ""


pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not _target(), reason="needs an NVIDIA GPU that is a compile target"),
]


@pytest.fixture(scope="module")
def rows():
    return {row.name: row.case for row in find_workloads("pr")}


@pytest.fixture(scope="module")
def table(rows, tmp_path_factory):
    """Compiled without the GPU, in processes that never touch it."""
    cores = len(os.sched_getaffinity(0))
    toolchain = Toolchain(cache=tmp_path_factory.mktemp("figures"), workers=cores)
    compiled = compile_table(_target(), rows, KERNELS, toolchain)
    assert not compiled.refused
    return compiled


@pytest.fixture(scope="module")
def launched(rows):
    """What is really launched: "workload kernel" -> (what was recorded, compiled kernel), in order."""
    found, device, target = {}, torch.cuda.current_device(), find_target(_target())
    functions = _jit_functions()
    for name, case in rows.items():
        inputs = place(make_content(case, torch.device("cuda")), Placement(seed=case.seed, dead=case.dead))
        for kernel in KERNELS:
            calls = []

            def keep(*, key, fn, compile, calls=calls, **_):
                calls.append((fn.jit_function, key, recorded_from(target, fn.jit_function, compile)))
                return False

            for function in functions:
                function.device_caches.clear()  # each variant passes the hook again
            triton.knobs.runtime.jit_cache_hook = keep
            try:
                find_kernel(kernel).call(inputs, out=torch.empty_like(inputs.q))
            finally:
                triton.knobs.runtime.jit_cache_hook = None
            found[f"{name} {kernel}"] = [
                (recorded, function.device_caches[device][0][key]) for function, key, recorded in calls
            ]
        torch.cuda.synchronize()
        del inputs
        torch.cuda.empty_cache()
    return found


def _jit_functions():
    for kernel in KERNELS:
        find_kernel(kernel).load()
    modules = [module for name, module in sys.modules.items() if name.startswith("paged_kernels.")]
    things = [thing for module in modules for thing in vars(module).values()]
    return [thing for thing in things if isinstance(thing, triton.JITFunction)]


def _pairs(table, launched):
    """(name, variant, compiled kernel) of every launch."""
    for launch, names in table.launches.items():
        for name, (_, kernel) in zip(names, launched[launch], strict=True):
            yield f"{launch}: {name}", table.variants[name], kernel


def test_the_variants_are_those_that_are_launched(table, launched):
    assert table.launches.keys() == launched.keys()
    assert len(table.launches) >= 30
    for launch, names in table.launches.items():
        ours = [(table.variants[name].kernel, dict(table.variants[name].options)) for name in names]
        assert ours == [(recorded.kernel, dict(recorded.options)) for recorded, _ in launched[launch]], launch
    assert len(table.variants) == len({recorded.digest for row in launched.values() for recorded, _ in row})


def test_registers_spills_and_shared_memory_are_the_drivers(table, launched):
    for name, variant, kernel in _pairs(table, launched):
        ours = (variant.figures.registers, variant.figures.spills, variant.figures.shared)
        assert ours == (kernel.n_regs, kernel.n_spills, kernel.metadata.shared), name


def test_occupancy_is_the_drivers(table, launched):
    for name, variant, kernel in _pairs(table, launched):
        threads = 32 * kernel.metadata.num_warps
        groups = _driver_groups(kernel.function, threads, variant.figures.shared)
        assert (variant.figures.groups, variant.figures.warps) == (groups, groups * threads // 32), name


def test_occupancy_is_the_drivers_for_any_shared_memory(launched):
    """Beyond what the table happens to use: every pair of registers and warps that it has, other sizes."""
    target, checked = find_target(_target()), 0
    kernels = {
        (kernel.n_regs, kernel.metadata.num_warps, kernel.metadata.shared > 48 << 10): kernel
        for of_launch in launched.values()
        for _, kernel in of_launch
    }
    for (registers, num_warps, large), kernel in kernels.items():
        for shared in (0, 1, 1024, 9000, 33_333, 48 << 10, 60_000, 100_000, 113 << 10, 227 << 10):
            if shared > 48 << 10 and not large:
                continue  # Triton raises the limit for those alone that ask for more
            ours = occupancy(target, registers, shared, num_warps).groups
            assert ours == _driver_groups(kernel.function, 32 * num_warps, shared), (
                registers,
                num_warps,
                shared,
            )
            checked += 1
    assert checked >= 50


def _driver_groups(function, threads, shared):
    driver, groups = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
    status = driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(
        ctypes.byref(groups), ctypes.c_void_p(function), threads, ctypes.c_size_t(shared)
    )
    assert status == 0
    return groups.value
