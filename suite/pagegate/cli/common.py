"""Options and choices that commands share."""

from __future__ import annotations

import argparse
import os
import shlex
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pagegate.cases.registry import Kernel, find_kernel, has_triton, kernels, load_plugin
from pagegate.errors import UsageError

if TYPE_CHECKING:
    from pagegate.oracle.isolation import Setup


TARGETS = ("gfx942", "gfx950")
# what is checked where Triton cannot be: a peer in plain torch
_PLAIN = "torch_sdpa"
NO_TRITON = "no Triton here"


@dataclass(frozen=True)
class Device:
    """Where kernels run. kind: "cuda" (CUDA or HIP) or "cpu" (Triton's interpreter); name: for people."""

    kind: str
    name: str
    memory_bytes: int = 1 << 35
    target: str | None = None

    @property
    def workers(self) -> int:
        """As many processes as help: on a GPU compiling dominates, and contexts take memory."""
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return max(1, min(cores, 14))


def add_device(parser: argparse.ArgumentParser, *, targets: bool = True) -> None:
    parser.add_argument("--device", choices=("auto", "gpu", "interpreter"), default="auto")
    if targets:
        words = "compile for this GPU and interpret its machine code on the CPU"
        parser.add_argument("--target", choices=TARGETS, help=words)


def add_kernels(parser: argparse.ArgumentParser, default: str = "all but peers") -> None:
    parser.add_argument(
        "--kernel",
        action="append",
        metavar="NAME",
        help=f"a registered kernel; may be repeated ({default})",
    )
    parser.add_argument(
        "--plugin",
        action="append",
        default=[],
        metavar="FILE",
        help="a file or module that registers kernels",
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results here")


def choose_device(wanted: str, target: str | None = None) -> Device:
    """Chosen once, here. Without a GPU, kernels run in Triton's interpreter, which has to be said before
    anything imports them. Raises UsageError when a GPU is asked for and there is none."""
    if target:
        if wanted != "auto":
            raise UsageError(f"--target: required without --device, found --device {wanted}")
        return Device("cpu", f"{target} machine code, interpreted (not verified on hardware)", target=target)
    if wanted != "interpreter":
        import torch

        if torch.cuda.is_available():
            free, _ = torch.cuda.mem_get_info()
            return Device("cuda", torch.cuda.get_device_name(), int(0.6 * free))
        if wanted == "gpu":
            raise UsageError(
                "--device gpu: required a CUDA or HIP GPU that torch can use, found none "
                f"(torch {torch.__version__}); leave --device out to use Triton's interpreter"
            )
    if not has_triton():
        return Device("cpu", f"the CPU ({NO_TRITON})")
    os.environ["TRITON_INTERPRET"] = "1"
    return Device("cpu", "Triton's interpreter (no GPU)" if wanted == "auto" else "Triton's interpreter")


def choose_kernels(options: argparse.Namespace) -> list[Kernel]:
    """The kernels that were asked for, plugins loaded. Raises UsageError for unknown ones."""
    for plugin in options.plugin:
        load_plugin(plugin)
    chosen = [find_kernel(name) for name in dict.fromkeys(options.kernel or ())]
    chosen = chosen or [kernel for kernel in kernels().values() if not kernel.peer]
    if has_triton():
        return chosen
    able = [kernel for kernel in chosen if not kernel.triton]
    if options.kernel and len(able) < len(chosen):
        name = next(kernel.name for kernel in chosen if kernel.triton)
        raise UsageError(
            f"--kernel {name}: required Triton, found none (it is made for Linux); name a kernel without it, "
            f"such as {_PLAIN}"
        )
    return able or [find_kernel(_PLAIN)]


def worker_setup(device: Device, options: argparse.Namespace, timeout_s: float | None = None) -> Setup:
    """How this command's worker processes are started."""
    from pagegate.oracle.isolation import Setup

    default = 60.0 if device.kind == "cuda" else 600.0
    plugins = tuple(options.plugin)
    return Setup(
        device.kind,
        plugins,
        timeout_s=timeout_s or default,
        memory_bytes=device.memory_bytes,
        target=device.target,
    )


def refuse_unwritable(path: Path | None) -> None:
    """Before the work, not after it: raises UsageError if no file can be written there."""
    if path is None:
        return
    if not path.parent.is_dir() or path.is_dir():
        raise UsageError(
            f"{path}: required a file in a folder that exists, found none; make the folder first"
        )
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise UsageError(f"{path}: required a folder that can be written, found {error.strerror}") from None


def refuse_not_positive(options: argparse.Namespace, *names: str) -> None:
    """Raises UsageError for options that are given and not above 0 (or not a number)."""
    for name in names:
        value = getattr(options, name)
        if value is not None and not 0 < value < float("inf"):
            raise UsageError(f"--{name}: required more than 0, found {value}")


def command_line(*words: str) -> str:
    """A command to print, quoted for a shell."""
    return shlex.join(["pagegate", *words])


def target_words(device: Device) -> list[str]:
    return ["--target", device.target] if device.target else []


def plugin_words(options: argparse.Namespace) -> list[str]:
    return [word for plugin in options.plugin for word in ("--plugin", plugin)]


def refuse_nothing_checked(names: list[str]) -> None:
    """Raises UsageError when a kernel supports none of the cases: an empty check is no pass."""
    if names:
        raise UsageError(
            f"kernel: required at least one case that {', '.join(names)} supports, found none "
            "(reasons above); an empty check is no pass"
        )
