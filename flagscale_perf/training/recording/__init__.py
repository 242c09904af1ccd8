"""Measures a training and records it: the loop's interface, a session, the writer's pipeline."""
