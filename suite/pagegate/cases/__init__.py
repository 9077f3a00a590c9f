"""What is computed: specs, workloads, features, inputs, strategies."""
