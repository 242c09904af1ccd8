"""Loaded by verl when it is imported (entry point of the group `verl.plugins`): before its workers' functions
are decorated, and in every process that uses verl.
"""

from flagscale_perf.hosts.transfer_queue.install import from_environment

from_environment()
