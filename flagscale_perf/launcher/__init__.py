"""The work of `run.py`: a resolved two-level configuration in, one training job out. Knows no metric.

    mapping --config--> Job --plan--> Plan --script--> bash script --job--> process, pid file, output log
    output log, performance log --follow, results--> progress, summary

Imports neither torch nor Hydra; FlagScale's own runner only when a hostfile is given.
"""
