"""A run file of a queue's operations as spans for other systems: OTLP."""
