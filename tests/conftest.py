"""Without a GPU, in-process tests run kernels in Triton's interpreter; it has to be chosen before import."""

import os

import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
