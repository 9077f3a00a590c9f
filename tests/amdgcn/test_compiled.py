"""The tests that need compiled kernels, in a process of their own: the others may run Triton's interpreter,
which has to be chosen before Triton's kernels are imported.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import triton

FILES = ("test_atomics.py", "test_matrix.py", "test_attention.py", "test_plants.py")


@pytest.mark.parametrize("file", FILES)
def test_in_compiled_mode(file: str) -> None:
    if not triton.knobs.runtime.interpret:
        pytest.skip("this process compiles kernels: the files run in it directly")
    command = [sys.executable, "-m", "pytest", "-q", "-x", str(Path(__file__).parent / file)]
    # without the second, triton 3.9 warns about kernels here that leave fusing to the default
    environment = os.environ | {"TRITON_INTERPRET": "0", "TRITON_DEFAULT_FP_FUSION": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
