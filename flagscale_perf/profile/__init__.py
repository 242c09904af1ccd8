"""Takes steps apart: layers, operators, collectives and memory, from sampled windows of steps."""
