"""Checks of a real device, for a machine that has one.

When one is lent, first `test_gpm.py`: MFU by counter has never met a real counter. Then the others, then a
training of real size with the two MFUs of its report.
"""
