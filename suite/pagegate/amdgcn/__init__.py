"""AMD machine code executed on a CPU: an interpreter of Triton's assembly for gfx942 and gfx950.

Results are those of an interpreter, not verified on hardware, and no timing is ever derived from them.
`amdgcn.driver` puts it under Triton's launches; the rest needs no Triton.
"""

from .errors import AssemblyError, LaunchError
from .findings import Finding
from .program import TARGETS
from .report import Coverage, Report, merged

__all__ = [
    "TARGETS",
    "AssemblyError",
    "Coverage",
    "Finding",
    "LaunchError",
    "Report",
    "merged",
]
