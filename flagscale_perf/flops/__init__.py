"""FLOPs of a model, counted from its shape."""
