"""A Hugging Face model built from its configuration: its steps profiled, or run with fake tensors."""
