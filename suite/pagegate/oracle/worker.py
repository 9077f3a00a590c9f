"""The process in which kernels run: JSON lines in, JSON lines out. Started by `oracle.isolation`.

A kernel that crashes the GPU's context, loops or kills the process takes only this one with it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TextIO

from pagegate.cases.registry import find_kernel, load_plugin
from pagegate.cases.spec import Case

from .memory import footprint

_LARGE_BYTES = 1 << 29


def _private_stdout() -> TextIO:
    """The protocol's own channel; whatever a kernel prints goes to stderr."""
    channel = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    return channel


def _check(request: dict[str, Any], device: Any, session: Any) -> dict[str, Any]:
    from .checking import check, check_machine_code

    case = Case.from_json(request["case"])
    kernel = find_kernel(request["kernel"])
    if session is None:
        result = check(kernel, case, device, request.get("max_relations"))
    else:
        result = check_machine_code(session, kernel, case, request.get("max_relations"))
        if request["coverage"]:
            result = replace(result, machine_code=session.report.to_json())
    if device.type == "cuda" and footprint(case.spec) > _LARGE_BYTES:
        import torch

        torch.cuda.empty_cache()  # other workers want it
    return result.to_json()


def _fingerprint(request: dict[str, Any], device: Any, session: Any) -> dict[str, Any]:
    """A hash of what a kernel returns for a case; None where it returns nothing usable."""
    from pagegate.cases.inputs import Placement, place

    from .checking import problem_of
    from .running import bits, run

    case, kernel = Case.from_json(request["case"]), find_kernel(request["kernel"])
    inputs = place(problem_of(case, device).content, Placement(seed=case.seed, dead=case.dead))
    outcome = run(kernel, inputs, case.spec, kernel.plan(inputs) if kernel.plan else {})
    digest = hashlib.sha256(outcome.status.encode())
    for tensor in (outcome.out, outcome.lse):
        if tensor is not None:
            digest.update(bits(tensor[: case.spec.num_tokens].contiguous()).cpu().numpy().tobytes())
    return {"fingerprint": digest.hexdigest()}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", required=True)
    parser.add_argument("--plugin", action="append", default=[])
    parser.add_argument("--target")
    parser.add_argument("--coverage", action="store_true")
    options = parser.parse_args()
    channel = _private_stdout()
    # interpreted bf16 and fp8 NaNs are cast all the time
    warnings.simplefilter("ignore")
    import torch

    torch.set_num_threads(1)
    device = torch.device(options.device)
    for plugin in options.plugin:
        load_plugin(plugin)
    with _target(options.target) as session:
        _serve(channel, device, session, options.coverage)


@contextmanager
def _target(name: str | None) -> Iterator[Any]:
    """Launches on CPU tensors execute this target's machine code; nothing to do without a target."""
    if name is None:
        yield None
        return
    from pagegate.amdgcn.driver import emulated
    from pagegate.cases.content import emulate_formats_of

    emulate_formats_of(name)
    with emulated(name) as session:
        yield session


def _serve(channel: TextIO, device: Any, session: Any, coverage: bool) -> None:
    def say(message: dict[str, Any]) -> None:
        channel.write(json.dumps(message) + "\n")
        channel.flush()

    say({"ready": True})
    for line in sys.stdin:
        request = {"coverage": coverage, **json.loads(line)}
        action = {"check": _check, "fingerprint": _fingerprint}[request["action"]]
        try:
            say({"answer": action(request, device, session)})
        except Exception as error:
            from .running import DeviceLost

            if not isinstance(error, DeviceLost) and not str(error).startswith("CUDA error"):
                raise
            say({"lost": str(error)})
            # the context is dead and would hang a clean exit
            os._exit(3)


if __name__ == "__main__":
    main()
