"""The only place that ties profiling to the frameworks that run a model."""
