"""AMD machine code executed on a CPU: an interpreter of Triton's assembly for gfx942 and gfx950.

Results are those of an interpreter, not verified on hardware, and no timing is ever derived from them.
"""

from .driver import PROPERTIES, Session, emulated
from .errors import AssemblyError, LaunchError
from .findings import Finding
from .program import TARGETS
from .report import Coverage, Report, merged

__all__ = [
    "PROPERTIES",
    "TARGETS",
    "AssemblyError",
    "Coverage",
    "Finding",
    "LaunchError",
    "Report",
    "Session",
    "emulated",
    "merged",
]
