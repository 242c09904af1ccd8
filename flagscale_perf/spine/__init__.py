"""Shared by all instruments, and naming none of them: clock, errors, files, the run file's codec, the ring,
sessions.
"""
