"""The processes of one job find and drain each other, without a collective.

A process stores records into a ring (`own`) and hands that over a local socket (`handover`) to one process
of its node, which writes the records of all of them into one run file (`rings`) or folds those of each
(`node`). The folds' items come together in one process of the job: those of its own node directly, those of
any other through a file of the run directory (`gatherer`, `collector`, `exchange` in `training.ranks`). The
instrument defines what the records are, what is made of them and what is known of a process (`kind`).
"""
