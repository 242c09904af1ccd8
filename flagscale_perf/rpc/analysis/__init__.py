"""Sessions of calls read back: from their run file, or from a performance log alone, whichever program wrote
it.
"""
