"""Latency and parallel efficiency of a model that serves: vLLM's own bench run, arm beside arm."""
