"""The fifth instrument: self-contained experiments that measure what a machine and a model can do."""
