"""The accelerator: events, memory, hardware counters, peak FLOP/s."""
