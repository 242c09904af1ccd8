"""Reads a profile's run file and says what it shows."""
