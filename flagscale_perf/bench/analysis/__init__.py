"""Experiments read back: figures, verdicts, findings, pictures, comparison."""
