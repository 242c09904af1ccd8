"""Traces of a queue read back: from run files, or from the lines that any log has of them."""
