"""The process that records and compiles: JSON lines in, JSON lines out. Started by `compiled.table`.

Its path decides which `paged_kernels` and which Triton it uses; so one command can compare two of either.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import warnings
from contextlib import ExitStack
from typing import Any

from pagegate.cases.registry import load_plugin
from pagegate.cases.spec import Case

from .targets import find_target


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--target", required=True)
    parser.add_argument("--plugin", action="append", default=[])
    options = parser.parse_args()
    channel = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever a compiler prints goes to stderr
    warnings.simplefilter("ignore")
    import torch
    import triton

    torch.set_num_threads(1)
    target = find_target(options.target)
    from .inspecting import compile_variant
    from .recording import recording

    for plugin in options.plugin:
        load_plugin(plugin)

    def say(message: Any) -> None:
        channel.write(json.dumps(message) + "\n")

    with ExitStack() as stack:
        recorder = stack.enter_context(recording(target))
        say({"triton": triton.__version__})
        for line in sys.stdin:
            request = json.loads(line)
            if "compile" in request:
                say(compile_variant(recorder.seen[request["compile"]], target).to_json())
            else:
                say(_record(recorder, request))


def _record(recorder: Any, request: dict[str, Any]) -> dict[str, Any]:
    """What each kernel launches for each case, or the reason why it does not."""
    launches: dict[str, list[str]] = {}
    refused: dict[str, str] = {}
    for name, case in request["cases"].items():
        for kernel in request["kernels"]:
            launch = f"{name} {kernel}"
            try:
                launches[launch] = recorder.launches(kernel, Case.from_json(case))
            except NotImplementedError as error:
                refused[launch] = str(error)[:300]
            except Exception as error:  # a kernel may be anyone's
                refused[launch] = f"{type(error).__name__}: {error}"[:300]
    variants = {digest: recorded.kernel for digest, recorded in recorder.seen.items()}
    return {"launches": launches, "refused": refused, "variants": variants}


if __name__ == "__main__":
    main()
