"""The processes of one job find and drain each other, without a collective.

A process stores records into a ring whose memory has a name (`own`). One process of each node finds the
rings of its node through /proc (`search`) and drains them (`node`): on the first node the process that
gathers the job (`gather`), on every other node a collector (`collector`), which passes on what it has in a
file of the run directory (`exchange`). The instrument defines what the records are, what is made of them
and what is known of a process (`kind`).

Where processes come and go at any time, and none of them stands above the others, each hands its ring over a
local socket (`handover`) to a process that is nobody's child and drains all of them as one ring (`rings`).
"""
