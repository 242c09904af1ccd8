"""Experiments read back from run files: figures, verdicts, findings, pictures, comparison."""
