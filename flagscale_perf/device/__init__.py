"""What the accelerator can tell: memory, events, peak."""
