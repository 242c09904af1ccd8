"""A training's run file made into the content of a report."""
