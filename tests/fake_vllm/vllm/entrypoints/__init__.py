"""Stands in for vLLM: what `bench.serving` uses of it, with times that are planted."""
