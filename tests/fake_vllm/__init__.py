"""A package `vllm` for `PYTHONPATH`, with which `bench.serving` can be run without vLLM."""
