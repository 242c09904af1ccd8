"""Traces of a queue, read back from run files or from their lines in any log."""
