"""AMD machine code executed on a CPU: an interpreter of Triton's assembly for gfx942 and gfx950."""
