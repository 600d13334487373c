"""Training: processes, the loop and its step, precision, the optimizer, checkpoints and logs."""
