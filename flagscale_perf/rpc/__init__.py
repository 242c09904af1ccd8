"""The second instrument: calls between two processes, carried, measured and explained.

`client` and `server` carry arrays over ZeroMQ, a unix socket and sealed shared memory; every call leaves one
record (`records`), whoever carried it.
"""
