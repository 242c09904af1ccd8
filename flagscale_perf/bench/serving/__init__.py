"""Latency and parallel efficiency of a serving model, by vLLM's own bench, one arm after another."""
