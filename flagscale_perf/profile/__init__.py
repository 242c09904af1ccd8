"""Where a step goes: layers, operators, collectives and memory, from sampled windows of steps."""
