"""The `flagscale-perf` command: one command, one file."""
