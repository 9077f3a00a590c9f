"""What changed: verdicts, baselines, gating, history, bisecting."""
