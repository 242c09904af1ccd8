"""The second instrument: calls between two processes, carried, measured and explained.

`transport` carries arrays over ZeroMQ, a unix socket and sealed shared memory; every call leaves one
record (`records`), whoever carried it.
"""
