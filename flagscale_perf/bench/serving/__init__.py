"""Latency and parallel efficiency of a serving model, by vLLM's own bench, with all arms interleaved."""
