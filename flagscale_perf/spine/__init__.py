"""What every instrument shares and no instrument is named in: clock, errors, files, the run file's codec, the
ring, sessions.
"""
