"""What the compiler made of the kernels, for GPUs that need not be present."""
