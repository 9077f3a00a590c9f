"""What the compiler made of a kernel, for targets that need not be present."""
