"""A field made by `table.option` is one option of an instrument: its flag, environment variable, yaml key,
check, help and line of the docs follow from that row.
"""
