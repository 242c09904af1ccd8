"""Shared by all instruments, naming none of them: clock, errors, files, codec, ring, sessions."""
