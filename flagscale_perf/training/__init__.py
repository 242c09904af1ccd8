"""The training instrument: its records and everything computed from them."""
